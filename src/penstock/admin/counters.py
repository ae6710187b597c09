"""Counters: what a descriptor has left of each of its limits; forget it, or give some back.

The gate is asked first, with a look that takes nothing: it says which rule speaks, and brings
over what the key had used of limits that have changed since. Then each limit is looked at,
also those that are switched off for now.
"""

from __future__ import annotations

from typing import Any

from penstock.async_gate import AnyGate
from penstock.errors import InvalidKey
from penstock.rules.deciding.check import only_domain
from penstock.rules.deciding.heritage import in_proportion, sources
from penstock.rules.deciding.verdict import Descriptor, Pair, Status, Verdict
from penstock.stores.base import Counters, check_cost

# Counters, the limit's name, and whether an override stands in its place.
Kept = tuple[Counters, str, bool]
# Where limits were counted that stood in the place of one before, and its own counters.
Older = tuple[Counters, Counters]


class Seat:
    """Where one descriptor is counted: a key, and the counters of its limits."""

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
                continue  # one limit of an override in the place of several
            self.kept.append((counters, counted.name, counters is not counted.counters))
            if inherited is not None:
                heritage, override = inherited
                for old in sources(heritage.ancestors, override, gate.store):
                    self.older.append((old, counters))

    async def told(self) -> dict[str, Any]:
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
    """What is left. Nothing is counted."""
    return [await seat.told() for seat in await _seats(gate, command)]


async def reset(gate: AnyGate, command: dict[str, Any]) -> dict[str, Any]:
    """Forget the keys: their next request finds the limits untouched."""
    seats = await _counted_seats(gate, command)
    before = [await seat.told() for seat in seats]
    for seat in seats:
        for counters, _, _ in seat.kept:
            await counters.submit("reset", seat.key)
        for old, _ in seat.older:  # another process would take over from them
            await old.submit("reset", seat.key)
    return {"before": before, "after": [await seat.told() for seat in seats]}


async def refund(gate: AnyGate, command: dict[str, Any]) -> dict[str, Any]:
    """Give back what so many requests took, never beyond full."""
    hits = check_cost(command.get("hits", 1))
    seats = await _counted_seats(gate, command)
    before = [await seat.told() for seat in seats]
    for seat in seats:
        for counters, _, _ in seat.kept:
            await counters.submit("refund", seat.key, hits * seat.cost)
        for old, counters in seat.older:
            part = in_proportion(hits * seat.cost, counters.limit, old.limit)
            if part:
                await old.submit("refund", seat.key, part)
    return {"before": before, "after": [await seat.told() for seat in seats]}


async def _seats(gate: AnyGate, command: dict[str, Any]) -> list[Seat]:
    domain = only_domain(gate.compiled, command.get("domain"))
    if domain not in gate.matchers:
        raise InvalidKey(f"the rules have no domain {domain!r:.100}")
    asked = [_descriptor(pairs) for pairs in command["descriptors"]]
    answer = gate.check(*asked, domain=domain)
    verdict = answer if isinstance(answer, Verdict) else await answer
    return [Seat(gate, domain, status, command.get("limit")) for status in verdict.statuses]


def _descriptor(pairs: list[list[str]]) -> Descriptor:
    made: list[Pair] = [(key, value) for key, value in pairs]
    return Descriptor.of(made, hits=0)


async def _counted_seats(gate: AnyGate, command: dict[str, Any]) -> list[Seat]:
    seats = await _seats(gate, command)
    for seat in seats:
        if not seat.kept:
            told = "|".join(f"{key}={value}" for key, value in seat.pairs)
            raise InvalidKey(f"nothing is counted for {told:.200}: {seat.status.reason}")
    return seats
