"""AsyncGate: `Gate` for coroutines.

>>> import asyncio
>>> from penstock import AsyncGate
>>> rules = {"domain": "api", "descriptors": [{"key": "user", "limits": "2/hour"}]}
>>> gate = AsyncGate.from_rules(rules)
>>> bool(asyncio.run(gate.check({"user": "42"})))
True
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock import flows
from penstock.base_gate import BaseGate
from penstock.gate import Gate
from penstock.pending import awaited
from penstock.rules.deciding.store_calls import Taken, do_work_async, let_finish
from penstock.rules.deciding.verdict import DescriptorLike, Descriptors, Slot, Verdict


class AsyncGate(BaseGate):
    """`Gate` for coroutines: ``await gate.check(...)``. Everything else is the same.

    ``check_now`` needs no await. It blocks if the store has to be waited for.
    """

    @awaited
    async def check(
        self, *descriptors: DescriptorLike, domain: str | None = None, hits: int = 1
    ) -> Verdict:
        """May the request go ahead? See `Gate.check`. A cancelled check takes nothing."""
        if not self.store.waits:
            return self.check_now(*descriptors, domain=domain, hits=hits)
        taken = Taken()
        try:
            return await self.check_into(taken, descriptors, domain, hits)
        except BaseException:
            taken.give_back_async()
            raise

    async def check_into(
        self, taken: Taken, descriptors: Descriptors, domain: str | None, hits: int
    ) -> Verdict:
        """See `Gate.check_into`. If it is cancelled or fails, the caller gives back."""
        store = self.store
        if not store.waits:
            return self.check_into_now(taken, descriptors, domain, hits)
        plan = self.planner.plan(domain, descriptors) if hits == 1 else None
        if plan is not None:
            decisions = await plan.hit_async()
            taken.group(plan.items, decisions)
            return plan.verdict(decisions)
        flow = self._flow(descriptors, domain, hits)
        return await flows.run_async(flow, lambda work: do_work_async(store, work, taken))

    async def release(self, verdict: Verdict) -> None:
        """Free the slots that a request holds: see `Gate.release`. A cancelled task frees them."""
        slots, verdict.slots = verdict.slots, ()
        if slots:
            await self.release_slots(slots)

    async def release_slots(self, slots: Sequence[Slot], once: str | None = None) -> bool:
        """See `Gate.release_slots_now`."""
        if not self.store.waits:
            return self.release_slots_now(slots, once)
        flow = self.slots.release(slots, once)
        releasing = flows.run_async(flow, lambda work: do_work_async(self.store, work, Taken()))
        return await asyncio.shield(let_finish(releasing))


AnyGate = Gate | AsyncGate
