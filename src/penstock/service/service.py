"""Service: the rate limit service without a wire. Messages in, messages out.

A request to which nothing special applies goes the short way (rls_quick.py): its bytes lead
to a plan, and the answer is written straight from the decision. Everything else goes through
the gate (rls_general.py). Both come to the same bytes.

It answers as Envoy's service does, but for one thing: a request of one hit that is refused
consumes nothing, whereas there it is counted all the same. Debits are booked as there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from itertools import zip_longest
from typing import Any, Protocol

from penstock.async_gate import AsyncGate
from penstock.clock import MONOTONIC, WALL, Clock
from penstock.decision import Decision
from penstock.errors import PenstockError
from penstock.rules.check import only_domain
from penstock.rules.compiled import Compiled, Told
from penstock.rules.taken import Taken
from penstock.rules.verdict import Descriptor, Verdict
from penstock.rules.weigh import quick_verdict
from penstock.rules.work import Item
from penstock.service.envoy_constants import OK, OVER_LIMIT
from penstock.service.failures import as_status
from penstock.service.rls_general import Flow, General, Response, ratelimit_headers
from penstock.service.rls_quick import Plan, Planner, check
from penstock.service.rls_request import Request
from penstock.service.rls_response import write_response

Reply = bytes | Awaitable[bytes]
# A domain, descriptors, and hits.
Question = tuple[str | None, Sequence[Descriptor], int]


class Observer(Protocol):
    """Who is told of every decision; see `penstock.metrics`.

    One that has ``decided_one(domain, rule, pairs, decision, seconds)`` is told by that of
    requests with a single limit.
    """

    def decided(self, domain: str, verdict: Verdict, seconds: float) -> None:
        """``seconds`` is how long it took. It is called between two requests: be quick."""


class One:
    """A question about one descriptor to which one limit applies, and nothing special."""

    __slots__ = ("compiled", "cost", "counters", "domain", "key", "name", "pairs", "rule")

    def __init__(self, compiled: Compiled, domain: str, item: Item, told: Told) -> None:
        self.compiled = compiled  # the rules that it was made for
        self.domain = domain
        self.counters, self.key, self.cost = item
        pairs, rule, counted = told
        assert rule is not None
        self.pairs = pairs
        self.rule = rule
        self.name = counted[0].name


class Service:
    """Decides for all wires.

    ``headers`` adds RateLimit-Limit, -Remaining and -Reset to Envoy's answers. ``clock``
    tells the time of day, ``timer`` how long decisions take.
    """

    def __init__(
        self,
        gate: AsyncGate,
        *,
        clock: Clock = WALL,
        observer: Observer | None = None,
        headers: bool = False,
        timer: Clock = MONOTONIC,
    ) -> None:
        if not isinstance(gate, AsyncGate):
            raise TypeError(f"a service is made of an AsyncGate, not of {gate!r:.100}")
        self.gate = gate
        self._clock = clock
        self._observer = observer
        # Most requests have one descriptor with one limit; they need no verdict.
        self._tell_one = getattr(observer, "decided_one", None)
        self._headers = headers
        self._timer = timer
        self._waits = gate.store.waits
        self._general = General(gate.sync, clock)
        self._planner = Planner(gate.sync)

    def now(self) -> float:
        """Seconds since 1970."""
        return self._clock.now() / 1e9

    # Envoy's messages ----------------------------------------------------------------------

    def rate_limit(self, message: bytes) -> Reply:
        """RateLimitRequest in, RateLimitResponse out, both as protobuf bytes.

        At once with a store that does not wait, else an awaitable. `GrpcError` if the
        request makes no sense: INVALID_ARGUMENT, or UNKNOWN where Envoy's service says that.
        """
        observer = self._observer
        start = 0 if observer is None else self._timer.now()
        try:
            plan = self._planner.plan(message)
            if not isinstance(plan, Plan):
                return self._write(self._answer(plan, start))
            decisions: list[Decision] = []
            heard = observer is None or self._tell_one is not None
            if plan.single and heard and not self._headers and not self._waits:
                return self._answer_one(plan, start)
            if plan.items:
                if self._waits:
                    return self._hit_later(plan, start)
                single = len(plan.items) == 1
                decisions = [plan.hit()] if single else self.gate.store.hit_each(plan.items)
        except PenstockError as error:
            raise as_status(error) from None
        return self._told(plan, decisions, start)

    def _answer_one(self, plan: Plan, start: int) -> bytes:
        decision = plan.hit()
        answer = plan.answer(decision, self._clock)
        if self._tell_one is not None:
            request, ready = plan.request, plan.readies[0]
            assert ready is not None
            seconds = (self._timer.now() - start) / 1e9
            self._tell_one(request.domain, ready.rule, request.asked[0].pairs, decision, seconds)
        return answer

    def answer(self, request: Request) -> Response | Awaitable[Response]:
        """The same for a request that was read already, from JSON or otherwise."""
        start = 0 if self._observer is None else self._timer.now()
        try:
            check(request)
            return self._answer(request, start)
        except PenstockError as error:
            raise as_status(error) from None

    async def _hit_later(self, plan: Plan, start: int) -> bytes:
        try:
            if len(plan.items) == 1:
                counters, key, cost = plan.items[0]
                decisions = [await counters.submit("hit", key, cost)]
            else:
                decisions = list(await self.gate.store.hit_each_async(plan.items))
        except PenstockError as error:
            raise as_status(error) from None
        return self._told(plan, decisions, start)

    def _told(self, plan: Plan, decisions: list[Decision], start: int) -> bytes:
        rows = plan.rows(decisions, self._clock)
        allowed = all(decisions)
        if self._observer is not None:
            self._tell(plan.request.domain, self._verdict(plan, decisions), start)
        headers = ratelimit_headers(rows) if self._headers else []
        return write_response(OK if allowed else OVER_LIMIT, rows, headers)

    @staticmethod
    def _verdict(plan: Plan, decisions: list[Decision]) -> Verdict:
        if not plan.single:
            return quick_verdict(plan.told(), decisions)
        decision, ready = decisions[0], plan.readies[0]
        assert ready is not None
        return Verdict(  # the same, sooner: nothing is to be searched for
            decision.allowed,
            decision,
            ready.rule,
            lambda: quick_verdict(plan.told(), decisions).statuses,
        )

    def _answer(self, request: Request, start: int) -> Response | Awaitable[Response]:
        flow = self._general.flow(request)
        return self._drive_later(flow, start) if self._waits else self._drive(flow, start)

    def _drive(self, flow: Flow, start: int) -> Response:
        try:
            asking = next(flow)
            while True:
                descriptors, domain, hits = asking
                asking = flow.send(self.gate.sync.check(*descriptors, domain=domain, hits=hits))
        except StopIteration as end:
            return self._finished(end.value, start)

    async def _drive_later(self, flow: Flow, start: int) -> Response:
        taken = Taken()
        try:
            asking = next(flow)
            while True:
                asking = flow.send(await self.gate.check_into(taken, *asking))
        except StopIteration as end:
            return self._finished(end.value, start)
        except BaseException as error:
            taken.give_back_async()
            if isinstance(error, PenstockError):
                raise as_status(error) from None
            raise

    def _finished(self, response: Response, start: int) -> Response:
        if self._observer is not None:
            self._tell(response.domain, response.verdict, start)
        if self._headers:
            response.headers = ratelimit_headers(response.rows)
        return response

    def _write(self, response: Response | Awaitable[Response]) -> Reply:
        return response.wire() if isinstance(response, Response) else _write_later(response)

    # Other wires ---------------------------------------------------------------------------

    def check(
        self, domain: str | None, descriptors: Sequence[Descriptor], hits: int = 1
    ) -> Verdict | Awaitable[Verdict]:
        """What `Gate.check` says; an awaitable with a store that waits."""
        if self._waits:
            return self._check_later(domain, descriptors, hits)
        start = 0 if self._observer is None else self._timer.now()
        verdict = self.gate.sync.check(*descriptors, domain=domain, hits=hits)
        if self._observer is not None:
            self._tell(only_domain(self.gate.compiled, domain), verdict, start)
        return verdict

    def one(self, domain: str | None, descriptor: Descriptor) -> One | None:
        """For a wire that is asked the same again and again: what `hit_one` takes.

        None if the question is not that simple, or the store has to be waited for.
        """
        compiled = self.gate.compiled
        if self._waits or not self.gate.switches.calm:
            return None
        if self._observer is not None and self._tell_one is None:
            return None
        name = only_domain(compiled, domain)
        lane = compiled.lanes.get(name)
        found = None if lane is None else lane.take((descriptor,))
        if found is None or len(found[0]) != 1 or found[0][0][0].limit.soft is not None:
            return None
        return One(compiled, name, found[0][0], found[1][0])

    def hit_one(self, one: One) -> Decision | None:
        """Decide; None if other rules or switches are in force by now."""
        if one.compiled is not self.gate.compiled or not self.gate.switches.calm:
            return None
        tell = self._tell_one
        if tell is None:
            return one.counters.hit(one.key, one.cost)
        start = self._timer.now()
        decision = one.counters.hit(one.key, one.cost)
        tell(one.domain, one.rule, one.pairs, decision, (self._timer.now() - start) / 1e9)
        return decision

    def check_each(
        self, questions: Sequence[Question]
    ) -> list[Verdict | PenstockError] | Awaitable[list[Verdict | PenstockError]]:
        """`check` of several, each by itself: one that fails is an error among the verdicts."""
        if self._waits:
            return self._check_each_later(questions)
        found: list[Verdict | PenstockError] = []
        for question in questions:
            try:
                verdict = self.check(*question)
            except PenstockError as error:
                found.append(error)
            else:
                assert isinstance(verdict, Verdict)
                found.append(verdict)
        return found

    async def _check_each_later(
        self, questions: Sequence[Question]
    ) -> list[Verdict | PenstockError]:
        """Together. Who leaves before all are answered has taken nothing."""
        taken = [Taken() for _ in questions]
        checks = [self._check_later(*each, own) for each, own in zip(questions, taken, strict=True)]
        found: list[Any] = []
        try:
            found = await asyncio.gather(*checks, return_exceptions=True)
            for each in found:
                if isinstance(each, BaseException) and not isinstance(each, PenstockError):
                    raise each
        except BaseException:
            found = []
            raise
        finally:
            for own, answer in zip_longest(taken, found):
                if not isinstance(answer, Verdict):
                    own.give_back_async()
        return found

    async def _check_later(
        self,
        domain: str | None,
        descriptors: Sequence[Descriptor],
        hits: int,
        taken: Taken | None = None,
    ) -> Verdict:
        start = 0 if self._observer is None else self._timer.now()
        if taken is None:
            verdict = await self.gate.check(*descriptors, domain=domain, hits=hits)
        else:
            verdict = await self.gate.check_into(taken, descriptors, domain, hits)
        if self._observer is not None:
            self._tell(only_domain(self.gate.compiled, domain), verdict, start)
        return verdict

    def _tell(self, domain: str, verdict: Verdict, start: int) -> None:
        assert self._observer is not None
        self._observer.decided(domain, verdict, (self._timer.now() - start) / 1e9)


async def _write_later(response: Awaitable[Response]) -> bytes:
    return (await response).wire()
