"""Reads the plans of a file, and the quotas of steps.

A plan is what `penstock.quota` makes of it: units of meters in each period. Here it is checked and
written out, ``{"pro": {"requests": {"amount": 1000000, "unit": "month", "rollover": 0, ...}}}``, so
that mistakes are found where they are, and rules know nothing about ledgers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from penstock.limit_options import MOST_UNITS
from penstock.rules.model import Allowance, Domain, MeterUse
from penstock.rules.problems import nearest
from penstock.rules.reading.keywords import ALLOWANCE, PERIODS, QUOTA
from penstock.rules.reading.tree import MappingNode, ScalarNode, SyntaxNode, shown
from penstock.rules.reading.values import Reading, read_fields, read_scalar

_ALLOWANCE = re.compile(r"([0-9][0-9_,]*)\s*([kM]?)\s*(?:/|per)\s*([A-Za-z]+)")
_SCALES = {"": 1, "k": 1_000, "M": 1_000_000}
_OPTIONS = ("rollover", "overdraft")
_EXAMPLE = "write it like 10000/month, with hour, day, week, month or year"
Allowances = dict[str, Allowance]


def read_plan_definitions(reading: Reading, node: SyntaxNode) -> dict[str, Allowances]:
    """The plans at the top of a file, by name."""
    if not isinstance(node, MappingNode):
        reading.error(node.place, f"'plans' must be a mapping of names to meters, not {node}")
        return {}
    names = {name.text for name, _ in node.pairs}
    if {"by", "tiers"} <= names:
        message = "'plans' with 'by' and 'tiers' belongs beside the 'key' of a step"
        reading.error(node.place, f"{message}: here are the plans of a ledger")
        return {}
    return {name.text: _plan(reading, name, inner) for name, inner in node.pairs}


def _plan(reading: Reading, name: ScalarNode, node: SyntaxNode) -> Allowances:
    what = f"the plan {shown(name.text)}"
    if not _is_name(name.text):
        reading.error(name.place, f"{what} has a name that is empty or cannot be printed")
    if not isinstance(node, MappingNode):
        example = "{requests: 10000/month}"
        reading.error(node.place, f"{what} must be a mapping such as {example}, not {node}")
        return {}
    common = {
        key.text: amount
        for key, inner in node.pairs
        if key.text in _OPTIONS
        for amount in [read_scalar(reading, ALLOWANCE.keywords[key.text], inner)]
        if amount is not None
    }
    meters = {}
    for key, inner in node.pairs:
        if key.text in _OPTIONS:
            continue
        if not _is_name(key.text):
            reading.error(key.place, f"{what} has a meter whose name is empty or cannot be printed")
        allowance = _allowance(reading, f"{what}: {shown(key.text)}", inner, common)
        if allowance is not None:
            meters[key.text] = allowance
    if not any(key.text not in _OPTIONS for key, _ in node.pairs):
        reading.error(
            node.place, f"{what} grants nothing: add a meter such as requests: 10000/month"
        )
    return meters


def _allowance(
    reading: Reading, what: str, node: SyntaxNode, common: Mapping[str, int]
) -> Allowance | None:
    if isinstance(node, ScalarNode):
        return _amount(reading, what, node, common)
    fields = read_fields(reading, node, ALLOWANCE, what)
    if fields is None or "amount" not in fields.nodes:
        return None
    amount = fields.nodes["amount"]
    own = {key: fields.values[key] for key in _OPTIONS if key in fields.values}
    if not isinstance(amount, ScalarNode):
        reading.error(amount.place, f"{what}: {_EXAMPLE}")
        return None
    return _amount(reading, what, amount, {**common, **own})


def _amount(
    reading: Reading, what: str, node: ScalarNode, options: Mapping[str, int]
) -> Allowance | None:
    match = _ALLOWANCE.fullmatch(node.text.strip())
    if match is None:
        reading.error(node.place, f"{what} is no allowance, {node}: {_EXAMPLE}")
        return None
    digits, scale, unit = match.groups()
    unit = unit.lower().removesuffix("s")
    if unit not in PERIODS:
        hint = nearest(unit, PERIODS) or f": use {', '.join(PERIODS)}"
        reading.error(node.place, f"{what}: {shown(match[3])} is no period{hint}")
        return None
    number = digits.replace("_", "").replace(",", "")
    amount = int(number) * _SCALES[scale] if len(number) <= 15 else MOST_UNITS + 1
    if amount > MOST_UNITS:
        reading.error(node.place, f"{what} must be at most {MOST_UNITS}, not {number}{scale}")
        return None
    return Allowance(amount, unit, options.get("rollover", 0), options.get("overdraft", 0))


def read_quota(reading: Reading, node: SyntaxNode, rule_id: str) -> MeterUse | None:
    """The ``quota`` of a step."""
    fields = read_fields(reading, node, QUOTA, "'quota'", "meter")
    if fields is None:
        return None
    values = fields.values
    for name in ("meter", "plan_by"):
        if name in values and not _is_name(values[name]):
            reading.error(fields.place(name), f"{name!r} has characters that cannot be printed")
    meter = values.get("meter", "")
    return MeterUse(
        meter, f"{rule_id} quota {meter}", fields.place("meter"),
        values.get("plan_by"), values.get("on_failure", "closed"),
    )  # fmt: skip


def check_meters(reading: Reading, domain: Domain, uses: Iterable[MeterUse]) -> None:
    """Whether the plans of a file, if it has some, grant what its quotas take from."""
    if not domain.plans:
        return
    known = sorted({meter for plan in domain.plans.values() for meter in plan})
    for use in uses:
        if use.meter and use.meter not in known:
            hint = nearest(use.meter, known) or f": they grant {', '.join(known) or 'nothing'}"
            reading.error(use.place, f"no plan of this file grants {shown(use.meter)}{hint}")


def check_plans_agree(reading: Reading, domains: Iterable[Domain]) -> None:
    """A plan may be written in several files, if it is the same everywhere."""
    plans: dict[str, tuple[Allowances, Domain]] = {}
    for domain in domains:
        for name, plan in domain.plans.items():
            first, home = plans.setdefault(name, (dict(plan), domain))
            if first != plan:
                message = f"the plan {shown(name)} is another one in the domain {shown(home.name)}"
                reading.error(domain.place, f"{message}: a ledger has one plan of each name")


def _is_name(text: str) -> bool:
    """As `penstock.quota.values.check_name` wants it."""
    return 0 < len(text) <= 200 and text.isprintable() and text == text.strip()
