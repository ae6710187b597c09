"""Which rules a value touches, and where it stands in each."""

from __future__ import annotations

from typing import Any

from penstock.admin import counters
from penstock.admin.dumps import mode_of
from penstock.async_gate import AnyGate
from penstock.rules.aliases import same_key
from penstock.rules.deciding.overrides import paths_of, takes

MOST_RULES = 200


async def who(gate: AnyGate, command: dict[str, Any]) -> list[dict[str, Any]]:
    """Rules on whose path the pair is. ``needs`` are keys whose values are not known.

    Where nothing else is needed, the counters are read, and nothing is consumed.
    """
    key, value = command["key"], command["value"]
    state = gate.switches.state()
    rows: list[dict[str, Any]] = []
    for domain, path, rule in paths_of(gate.rules):
        if not any(same_key(step.key, key) and takes(step.value, value) for step in path):
            continue
        pairs, needs = [], []
        for step in path:
            if same_key(step.key, key) and takes(step.value, value):
                pairs.append([step.key, value])
            elif step.value is not None and "*" not in step.value:
                pairs.append([step.key, step.value])
            else:
                needs.append(step.key)
        limits: list[Any] = []
        if not needs:
            look = {"domain": domain, "descriptors": [pairs], "limit": None, "hits": 1}
            (found,) = await counters.look(gate, look)
            limits = found["limits"] if found["rule"] == rule.id else []
        row = {"domain": domain, "rule": rule.id, "mode": mode_of(rule, state)}
        rows.append({**row, "needs": needs, "limits": limits})
        if len(rows) >= MOST_RULES:
            break
    return rows
