"""Slots: a rule with ``concurrency`` counts the requests that run, instead of those that come.

A slot is a hit on a sliding log whose period is the lease. It is refunded, by the mark of its
decision, when the request has ended. If nobody does that, it leaves the log when the lease is
over. So every store can share slots, and one group of hits decides on them and on rates.

After a reload that changes ``concurrency`` or ``slot_lease``, requests that began before hold
slots of the former limits, where they are released, too. A request is allowed if those slots and
the ones of the limit in force leave room for it:

    slots of former limits + slots + 1 <= concurrency

It hits the limit for the former slots, too, and gives those back at once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from penstock.clock import Clock
from penstock.events import Hooks, SlotRefused, SlotReleased, SlotTaken
from penstock.keys import slots_key
from penstock.limits import Limit
from penstock.rules.deciding.heritage import used
from penstock.rules.deciding.pool import LimitPool
from penstock.rules.deciding.results import DescriptorResult
from penstock.rules.deciding.store_calls import Done, StoreCall, Work
from penstock.rules.deciding.verdict import Slot, Verdict

Flow = Generator[Work, Done, Verdict]


def look_at_former(results: Sequence[DescriptorResult]) -> Generator[Work, Done, None]:
    """Find out how many slots of former limits the keys of a request hold."""
    calls: list[tuple[DescriptorResult, StoreCall]] = [
        (result, ("peek", counters, (slots_key(result.key), 1)))
        for result in results
        for counters in result.former
    ]
    if not calls:
        return
    _, looks = yield Work(calls=[call for _, call in calls])
    for (result, _), look in zip(calls, looks, strict=True):
        if not look.degraded:
            result.held_before += used(look)
            result.held_until = max(result.held_until, look._reset)


class Slots:
    """Releases the slots of a gate, and tells subscribers about them."""

    def __init__(self, pool: LimitPool, clock: Clock, hooks: Hooks) -> None:
        self._pool = pool
        self._clock = clock
        self._hooks = hooks

    def observed(self, flow: Flow) -> Flow:
        """The flow of a check."""
        verdict = yield from flow
        for slot in verdict.slots:
            self._hooks.emit(SlotTaken("rules", slot.rule, slot.units, slot.until))
        for rule in _refusing_rules(verdict):
            self._hooks.emit(SlotRefused("rules", rule))
        return verdict

    def take(self, verdict: Verdict) -> list[StoreCall]:
        """The calls that free the slots of a request, once. The caller makes them."""
        slots, verdict.slots = verdict.slots, ()
        return self._calls(slots)

    def release(self, slots: Sequence[Slot], once: str | None) -> Generator[Work, Done, bool]:
        """Free slots; with ``once``, a key of its own for them, only the first time.

        Returns whether it was done.
        """
        if once is not None:
            counters = self._pool.counters(_once(slots), self._clock.now())
            _, (first,) = yield Work(calls=[("hit", counters, (once, 1))])
            if not first:
                return False
        yield Work(calls=self._calls(slots))
        return True

    def _calls(self, slots: Sequence[Slot]) -> list[StoreCall]:
        for slot in slots:
            self._hooks.emit(SlotReleased("rules", slot.rule, slot.units, slot.until))
        return [("refund", slot.counters, (slot.key, slot.units, slot.mark)) for slot in slots]


def _refusing_rules(verdict: Verdict) -> Iterator[str]:
    """The rules whose concurrency refused a request, or would have in shadow mode."""
    for status in verdict.statuses:
        rule, decision = status.rule, status.decision
        if rule is None or decision is None or decision.allowed:
            continue
        if status.is_about_slots:
            yield rule.id


def _once(slots: Sequence[Slot]) -> Limit:
    """A limit that allows one release: one hit, for as long as the lease lasts."""
    longest = max((slot.counters.limit for slot in slots), key=lambda limit: limit.period_ns)
    return Limit(1, f"{longest.period_ns}ns", on_failure=longest.on_failure)
