"""Which rules a value touches, where it stands in each, and why it was refused lately.

A rule may need other pairs than the one that is asked for. They come from the question, from the
rule itself, and from requests that were refused lately: each of their combinations is a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.admin import counters
from penstock.admin.dumps import mode_of
from penstock.async_gate import AnyGate
from penstock.rules.aliases import same_key
from penstock.rules.deciding.overrides import paths_of, takes
from penstock.rules.model import Step

Row = dict[str, Any]
Pairs = list[list[str]]

MOST_RULES = 200
MOST_COMBINATIONS = 10  # of one rule


async def who(gate: AnyGate, command: dict[str, Any]) -> list[Row]:
    """``others`` are more pairs of the request. ``refusals``: see `metrics.refusals`.

    ``needs`` are keys whose values are not known. Where nothing is needed, the counters are read,
    and nothing is consumed.
    """
    key, value = command["key"], command["value"]
    known = dict(command.get("others", []))
    refusals: list[Row] = command.get("refusals", [])
    state = gate.switches.state()
    rows: list[Row] = []
    explained: list[Row] = []
    for domain, path, rule in paths_of(gate.rules):
        refused = [each for each in refusals if (each["domain"], each["rule"]) == (domain, rule.id)]
        explained += refused
        touched = any(same_key(step.key, key) and takes(step.value, value) for step in path)
        if not (touched or refused):
            continue
        head = {"domain": domain, "rule": rule.id, "mode": mode_of(rule, state)}
        of_rule = [
            await _standing(gate, head, each["pairs"], each) for each in refused[:MOST_COMBINATIONS]
        ]
        if touched:
            pairs, needs = _filled(path, key, value, known)
            if not needs and not any(each["pairs"] == pairs for each in of_rule):
                of_rule.append(await _standing(gate, head, pairs, None))
            elif needs and not of_rule:
                of_rule.append({**head, "pairs": pairs, "needs": needs, "limits": [],
                                "reason": "", "refused": None})  # fmt: skip
        rows += of_rule
        if len(rows) >= MOST_RULES:
            break
    return rows + [_without_rule(each) for each in refusals if each not in explained]


def _filled(
    path: Sequence[Step], key: str, value: str, known: Mapping[str, str]
) -> tuple[Pairs, list[str]]:
    """The descriptor that reaches a rule, and the keys for which a value is missing."""
    pairs: Pairs = []
    needs = []
    for step in path:
        given = value if same_key(step.key, key) else known.get(step.key)
        if given is not None and takes(step.value, given):
            pairs.append([step.key, given])
        elif step.value is not None and "*" not in step.value:
            pairs.append([step.key, step.value])
        else:
            needs.append(step.key)
    return pairs, needs


async def _standing(gate: AnyGate, head: Row, pairs: Pairs, refusal: Row | None) -> Row:
    look = {"domain": head["domain"], "descriptors": [pairs], "limit": None, "hits": 1}
    (counted,) = await counters.look(gate, look)
    same = counted["rule"] == head["rule"]
    return {
        **head,
        "pairs": pairs,
        "needs": [],
        "limits": counted["limits"] if same else [],
        "reason": counted["reason"] if same or counted["rule"] is None else "another rule matches",
        "refused": None if refusal is None else _refused(refusal),
    }


def _without_rule(refusal: Row) -> Row:
    """Refused by a deny list, or by a rule that is no longer there."""
    return {
        "domain": refusal["domain"], "rule": refusal["rule"], "mode": None,
        "pairs": refusal["pairs"], "needs": [], "limits": [], "reason": refusal["reason"],
        "refused": _refused(refusal),
    }  # fmt: skip


def _refused(refusal: Row) -> Row:
    return {name: refusal[name] for name in ("since", "last", "count", "reason", "limit")}
