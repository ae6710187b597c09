"""Counters: what a descriptor has left of each of its limits; reset or refund it.

The gate is checked first, without consuming anything: that finds the matching rule, and carries
over what the key had used of limits that have changed since. Then each limit is read, including
those that are switched off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from penstock.async_gate import AnyGate
from penstock.errors import InvalidKey
from penstock.keys import slots_key
from penstock.limits import STOCK
from penstock.rules.deciding.check import only_domain
from penstock.rules.deciding.heritage import in_proportion, sources
from penstock.rules.deciding.verdict import Descriptor, Status, Verdict
from penstock.stores.base import Counters, check_cost

logger = logging.getLogger("penstock.admin")

# The counters, the key, the limit's name, and whether an override replaces it.
Kept = tuple[Counters, str, str, bool]
# The counters of earlier versions of a limit, and the counters it has now.
Older = tuple[Counters, Counters]


class CountedDescriptor:
    """One descriptor: its key, and the counters of its limits."""

    __slots__ = ("cost", "former", "kept", "key", "older", "pairs", "status")

    def __init__(self, gate: AnyGate, domain: str, status: Status, only: str | None) -> None:
        self.pairs = status.pairs
        self.status = status
        self.key = ""
        self.cost = 1
        self.kept: list[Kept] = []
        self.older: list[Older] = []
        self.former: list[Counters] = []  # of a concurrency that has changed
        compiled = gate.compiled
        match = compiled.matchers[domain].match(self.pairs)
        if match is None:
            return
        self.key, self.cost = match.key, match.rule.cost
        overrides = gate.switches.state().overrides_by_pair
        override = next((overrides[pair] for pair in self.pairs if pair in overrides), None)
        now = gate.clock.now()
        for counted in compiled.counted(match, self.pairs, now):
            if only not in (None, counted.name, str(counted.limit)):
                continue
            counters, inherited = gate.counters_of(counted, override)
            if any(counters is other for other, *_ in self.kept):
                continue  # an override replaces several limits by one
            overridden = counters is not counted.counters
            self.kept.append((counters, self.key, counted.name, overridden))
            if inherited is not None:
                heritage, inherited_override = inherited
                for old in sources(heritage.ancestors, inherited_override, gate.store):
                    self.older.append((old, counters))
        use = match.rule.meter
        if use is not None and only in (None, use.name):
            counters = compiled.meter(use, self.pairs)
            self.kept.append((counters, self.pairs[-1][1], use.name, False))
        slots = compiled.slots(match.rule, now)
        if slots is not None and only in (None, slots[0].name, str(slots[0].limit)):
            counted, ancestors = slots
            self.former = [gate.store.counters(ancestor.limit) for ancestor in ancestors]
            self.kept.append((counted.counters, slots_key(self.key), counted.name, False))

    async def dump(self) -> dict[str, Any]:
        limits = []
        for counters, key, name, overridden in self.kept:
            cost = 1 if key == slots_key(self.key) else self.cost
            decision = await counters.whole().submit("peek", key, cost)
            limit = decision.limit if counters.limit.algorithm == STOCK else counters.limit
            limits.append(
                {
                    "name": name,
                    "limit": str(limit),
                    "allowed": decision.allowed,
                    "remaining": decision.remaining,
                    "retry_after": decision.retry_after,
                    "reset_after": decision.reset_after,
                    "overridden": overridden,
                    "degraded": decision.degraded,
                    "holders": await _holders(counters, key),
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


async def _holders(counters: Counters, key: str) -> list[dict[str, Any]] | None:
    """Who holds leases of the key, in all processes; None if it is not leased, or not known."""
    holders = getattr(counters, "holders", None)
    if holders is None:
        return None
    try:
        return [asdict(holder) for holder in await asyncio.to_thread(holders, key)]
    except Exception as error:  # redis-py lets many kinds through; the rest is known
        logger.debug("the holders of leases are not known: %s", type(error).__name__)
        return None


async def look(gate: AnyGate, command: dict[str, Any]) -> list[dict[str, Any]]:
    """What is left of each limit. Nothing is consumed."""
    return [await each.dump() for each in await _descriptors(gate, command)]


async def reset(gate: AnyGate, command: dict[str, Any]) -> dict[str, Any]:
    """Reset the keys: their next request has the full limits."""

    async def reset_one(counted: CountedDescriptor) -> None:
        for counters, key, *_ in counted.kept:
            await counters.submit("reset", key)
        for former in counted.former:
            await former.submit("reset", slots_key(counted.key))
        for old, _ in counted.older:  # another process would carry over from them
            await old.submit("reset", counted.key)

    return await _change(gate, command, reset_one)


async def refund(gate: AnyGate, command: dict[str, Any]) -> dict[str, Any]:
    """Refund what this many requests took, up to the full limit."""
    hits = check_cost(command.get("hits", 1))

    async def refund_one(counted: CountedDescriptor) -> None:
        cost = hits * counted.cost
        for counters, key, *_ in counted.kept:
            if key != slots_key(counted.key):  # slots are not refunded: they are released, or reset
                await counters.submit("refund", key, cost)
        for old, counters in counted.older:
            part = in_proportion(cost, counters.limit, old.limit)
            if part:
                await old.submit("refund", counted.key, part)

    return await _change(gate, command, refund_one)


async def _change(
    gate: AnyGate, command: dict[str, Any], change: Callable[[CountedDescriptor], Awaitable[None]]
) -> dict[str, Any]:
    descriptors = await _descriptors(gate, command)
    for each in descriptors:
        if not each.kept:
            text = "|".join(f"{key}={value}" for key, value in each.pairs)
            raise InvalidKey(f"nothing is counted for {text:.200}: {each.status.reason}")
    before = [await each.dump() for each in descriptors]
    for each in descriptors:
        await change(each)
    return {"before": before, "after": [await each.dump() for each in descriptors]}


async def _descriptors(gate: AnyGate, command: dict[str, Any]) -> list[CountedDescriptor]:
    domain = only_domain(gate.compiled, command.get("domain"))
    if domain not in gate.matchers:
        raise InvalidKey(f"the rules have no domain {domain!r:.100}")
    descriptors = [
        Descriptor.of([(key, value) for key, value in pairs], hits=0)
        for pairs in command["descriptors"]
    ]
    checked = gate.check(*descriptors, domain=domain)
    verdict = checked if isinstance(checked, Verdict) else await checked
    return [
        CountedDescriptor(gate, domain, status, command.get("limit")) for status in verdict.statuses
    ]
