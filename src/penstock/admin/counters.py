"""Counters: what a descriptor has left of each of its limits; reset or refund it.

The gate is checked first, without consuming anything: that finds the matching rule, and carries
over what the key had used of limits that have changed since. Then each limit is read, including
those that are switched off.
"""

from __future__ import annotations

from typing import Any

from penstock.async_gate import AnyGate
from penstock.errors import InvalidKey
from penstock.rules.deciding.check import only_domain
from penstock.rules.deciding.heritage import in_proportion, sources
from penstock.rules.deciding.verdict import Descriptor, Pair, Status, Verdict
from penstock.stores.base import Counters, check_cost

# The counters, the limit's name, and whether an override replaces it.
Kept = tuple[Counters, str, bool]
# The counters of earlier versions of a limit, and the counters it has now.
Older = tuple[Counters, Counters]


class CountedDescriptor:
    """One descriptor: its key, and the counters of its limits."""

    __slots__ = ("cost", "kept", "key", "older", "pairs", "status")

    def __init__(self, gate: AnyGate, domain: str, status: Status, only: str | None) -> None:
        self.pairs = status.pairs
        self.status = status
        self.key = ""
        self.cost = 1
        self.kept: list[Kept] = []
        self.older: list[Older] = []
        compiled = gate.compiled
        match = compiled.matchers[domain].match(self.pairs)
        if match is None:
            return
        self.key, self.cost = match.key, match.rule.cost
        overrides = gate.switches.state().overrides
        own = next((overrides[pair] for pair in self.pairs if pair in overrides), None)
        now = gate.clock.now()
        for counted in compiled.counted(match, self.pairs, now):
            if only not in (None, counted.name, str(counted.limit)):
                continue
            counters, inherited = gate.counters_of(counted, own)
            if any(counters is other for other, _, _ in self.kept):
                continue  # an override replaces several limits by one
            self.kept.append((counters, counted.name, counters is not counted.counters))
            if inherited is not None:
                heritage, override = inherited
                for old in sources(heritage.ancestors, override, gate.store):
                    self.older.append((old, counters))

    async def dump(self) -> dict[str, Any]:
        limits = []
        for counters, name, overridden in self.kept:
            decision = await counters.submit("peek", self.key, self.cost)
            limits.append(
                {
                    "name": name,
                    "limit": str(counters.limit),
                    "allowed": decision.allowed,
                    "remaining": decision.remaining,
                    "retry_after": decision.retry_after,
                    "reset_after": decision.reset_after,
                    "overridden": overridden,
                    "degraded": decision.degraded,
                }
            )
        status = self.status
        return {
            "descriptor": [list(pair) for pair in self.pairs],
            "rule": None if status.rule is None else status.rule.id,
            "reason": status.reason,
            "shadow": status.shadow,
            "limits": limits,
        }


async def look(gate: AnyGate, command: dict[str, Any]) -> list[dict[str, Any]]:
    """What is left of each limit. Nothing is consumed."""
    return [await one.dump() for one in await _descriptors(gate, command)]


async def reset(gate: AnyGate, command: dict[str, Any]) -> dict[str, Any]:
    """Reset the keys: their next request has the full limits."""
    descriptors = await _counted(gate, command)
    before = [await one.dump() for one in descriptors]
    for one in descriptors:
        for counters, _, _ in one.kept:
            await counters.submit("reset", one.key)
        for old, _ in one.older:  # another process would carry over from them
            await old.submit("reset", one.key)
    return {"before": before, "after": [await one.dump() for one in descriptors]}


async def refund(gate: AnyGate, command: dict[str, Any]) -> dict[str, Any]:
    """Refund what this many requests took, up to the full limit."""
    hits = check_cost(command.get("hits", 1))
    descriptors = await _counted(gate, command)
    before = [await one.dump() for one in descriptors]
    for one in descriptors:
        for counters, _, _ in one.kept:
            await counters.submit("refund", one.key, hits * one.cost)
        for old, counters in one.older:
            part = in_proportion(hits * one.cost, counters.limit, old.limit)
            if part:
                await old.submit("refund", one.key, part)
    return {"before": before, "after": [await one.dump() for one in descriptors]}


async def _descriptors(gate: AnyGate, command: dict[str, Any]) -> list[CountedDescriptor]:
    domain = only_domain(gate.compiled, command.get("domain"))
    if domain not in gate.matchers:
        raise InvalidKey(f"the rules have no domain {domain!r:.100}")
    descriptors = [_descriptor(pairs) for pairs in command["descriptors"]]
    checked = gate.check(*descriptors, domain=domain)
    verdict = checked if isinstance(checked, Verdict) else await checked
    return [
        CountedDescriptor(gate, domain, status, command.get("limit")) for status in verdict.statuses
    ]


def _descriptor(pairs: list[list[str]]) -> Descriptor:
    as_pairs: list[Pair] = [(key, value) for key, value in pairs]
    return Descriptor.of(as_pairs, hits=0)


async def _counted(gate: AnyGate, command: dict[str, Any]) -> list[CountedDescriptor]:
    descriptors = await _descriptors(gate, command)
    for one in descriptors:
        if not one.kept:
            text = "|".join(f"{key}={value}" for key, value in one.pairs)
            raise InvalidKey(f"nothing is counted for {text:.200}: {one.status.reason}")
    return descriptors
