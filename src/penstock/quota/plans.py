"""Plans: what an account may use in each period.

>>> read_plans({"pro": {"requests": "1000000/month", "rollover": 100_000}})["pro"].meters
{'requests': Allowance(amount=1000000, unit='month', rollover=100000, overdraft=0)}

Beside meters, a plan has ``rollover`` and ``overdraft``, for all of its meters. A meter that
needs its own is written as a mapping: ``{amount: 1000000/month, rollover: 100000}``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.quota.errors import InvalidQuota
from penstock.quota.periods import LENGTHS, UNITS
from penstock.quota.values import check_amount, check_name

_OPTIONS = ("rollover", "overdraft")
_ALLOWANCE = re.compile(r"([\d_,]+)\s*([kM]?)\s*(?:/|per)\s*([a-z]+)", re.I)
_SCALES = {"": 1, "k": 1_000, "m": 1_000_000}
_EXAMPLE = "write it like '10000/month', with hour, day, week, month or year"


@dataclass(frozen=True, slots=True)
class Allowance:
    """Units of one meter that a plan grants in every period.

    ``rollover`` is how many unused ones are carried into the next period, ``overdraft`` how many
    may be used beyond what was granted.
    """

    amount: int
    unit: str = "month"
    rollover: int = 0
    overdraft: int = 0

    def __post_init__(self) -> None:
        check_amount(self.amount, "an allowance", 0)
        check_amount(self.rollover, "rollover", 0)
        check_amount(self.overdraft, "overdraft", 0)
        if self.unit not in UNITS:
            raise InvalidQuota(f"{self.unit!r:.100} is no period: {_EXAMPLE}{_near(self.unit)}")

    def __str__(self) -> str:
        return f"{self.amount:,}/{self.unit}"

    @property
    def rate(self) -> tuple[int, int]:
        """Comparable: how generous it is, by its amount per time."""
        return self.amount * (LENGTHS["year"] * 1000 // LENGTHS[self.unit]), self.overdraft


@dataclass(frozen=True, slots=True)
class Plan:
    """A named set of allowances, by meter."""

    name: str
    meters: Mapping[str, Allowance]

    def definition(self) -> dict[str, dict[str, Any]]:
        """As plain values, for the database and for JSON."""
        return {meter: asdict(allowance) for meter, allowance in sorted(self.meters.items())}

    def is_at_least(self, other: Plan) -> bool:
        """Whether nothing is lost by a change from ``other`` to this plan."""
        mine = self.meters
        return all(
            meter in mine and mine[meter].rate >= allowance.rate
            for meter, allowance in other.meters.items()
        )


def read_plans(plans: Mapping[str, Any]) -> dict[str, Plan]:
    """Plans from their definitions: see the top of this module."""
    if not isinstance(plans, Mapping):
        raise InvalidQuota(f"plans is a mapping of names to meters, not {plans!r:.100}")
    return {check_name(name, "a plan's name"): read_plan(name, plans[name]) for name in plans}


def read_plan(name: str, definition: object) -> Plan:
    if isinstance(definition, Plan):
        return Plan(name, definition.meters)
    if not isinstance(definition, Mapping):
        raise InvalidQuota(
            f"plan {name!r} is a mapping such as {{'requests': '10000/month'}}, not"
            f" {definition!r:.100}"
        )
    try:
        common = {key: definition[key] for key in _OPTIONS if key in definition}
        meters = {
            check_name(meter, "a meter"): _allowance(value, common)
            for meter, value in definition.items()
            if meter not in _OPTIONS
        }
        if not meters:
            raise InvalidQuota("it grants nothing: add a meter such as 'requests: 10000/month'")
        for key, value in common.items():
            check_amount(value, key, 0)
    except InvalidQuota as error:
        raise InvalidQuota(f"plan {name!r}: {error}") from None
    return Plan(name, meters)


def _allowance(value: object, common: Mapping[str, int]) -> Allowance:
    if isinstance(value, Allowance):
        return value
    if isinstance(value, Mapping):
        known = ("amount", "unit", *_OPTIONS)
        for key in value:
            if key not in known:
                raise InvalidQuota(f"{key!r:.100} is not one of {', '.join(known)}")
        amount, unit = value.get("amount"), value.get("unit", "month")
        if isinstance(amount, str):
            amount, unit = _amount_and_unit(amount)
        own = {key: value[key] for key in _OPTIONS if key in value}
        return Allowance(check_amount(amount, "amount", 0), unit, **{**common, **own})
    amount, unit = _amount_and_unit(value)
    return Allowance(amount, unit, **common)


def _amount_and_unit(value: object) -> tuple[int, str]:
    match = _ALLOWANCE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InvalidQuota(f"{value!r:.100} is no allowance: {_EXAMPLE}")
    digits, scale, unit = match.groups()
    number = digits.replace("_", "").replace(",", "")
    if not number.isdigit() or len(number) > 18:
        raise InvalidQuota(f"{value!r:.100} is no allowance: {_EXAMPLE}")
    unit = unit.lower()
    return int(number) * _SCALES[scale.lower()], unit.removesuffix("s") if unit != "s" else unit


def _near(unit: str) -> str:
    close = difflib.get_close_matches(unit, UNITS, 1)
    return f"; did you mean {close[0]!r}?" if close else ""
