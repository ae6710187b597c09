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

from penstock import flows
from penstock.async_gate import AsyncGate
from penstock.clock import MONOTONIC, WALL, Clock
from penstock.decision import Decision
from penstock.errors import PenstockError
from penstock.rules.deciding.check import only_domain
from penstock.rules.deciding.plan import Plan
from penstock.rules.deciding.taken import Taken
from penstock.rules.deciding.verdict import Descriptor, Verdict
from penstock.service.envoy_constants import OK, OVER_LIMIT
from penstock.service.failures import as_status
from penstock.service.rls_general import Flow, General, Response, ratelimit_headers
from penstock.service.rls_quick import MessagePlans, answer_one, check, rows_of
from penstock.service.rls_request import RateLimitRequest
from penstock.service.rls_response import write_response

Reply = bytes | Awaitable[bytes]
# A domain, descriptors, and hits.
Question = tuple[str | None, Sequence[Descriptor], int]


class Observer(Protocol):
    """Hears of every decision; see `penstock.metrics`.

    Both methods are called between two requests, so they must be quick. ``seconds`` is how
    long the decision took.
    """

    def decided(self, domain: str, verdict: Verdict, seconds: float) -> None:
        """A request was decided in the general way."""

    def planned(self, plan: Plan, decisions: list[Decision], seconds: float) -> None:
        """A request was decided by a plan. Observers that inherit this get its verdict."""
        self.decided(plan.domain, plan.verdict(decisions), seconds)


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
        self._headers = headers
        self._timer = timer
        self._waits = gate.store.waits
        self._general = General(gate.sync, clock)
        self._plans = MessagePlans(gate.sync)

    def now(self) -> float:
        """Seconds since 1970."""
        return self._clock.now() / 1e9

    # Envoy's messages ----------------------------------------------------------------------

    def rate_limit(self, message: bytes) -> Reply:
        """RateLimitRequest in, RateLimitResponse out, both as protobuf bytes.

        At once with a store that does not wait, else an awaitable. `GrpcError` if the
        request makes no sense: INVALID_ARGUMENT, or UNKNOWN where Envoy's service says that.
        """
        start = 0 if self._observer is None else self._timer.now()
        try:
            plan = self._plans.plan(message)
            if not isinstance(plan, Plan):
                return self._write(self._answer(plan, start))
            if self._waits and plan.items:
                return self._hit_later(plan, start)
            decisions = plan.hit()
        except PenstockError as error:
            raise as_status(error) from None
        return self._decided(plan, decisions, start)

    def answer(self, request: RateLimitRequest) -> Response | Awaitable[Response]:
        """The same for a request that was read already, from JSON or otherwise."""
        start = 0 if self._observer is None else self._timer.now()
        try:
            check(request)
            return self._answer(request, start)
        except PenstockError as error:
            raise as_status(error) from None

    async def _hit_later(self, plan: Plan, start: int) -> bytes:
        try:
            decisions = await plan.hit_async()
        except PenstockError as error:
            raise as_status(error) from None
        return self._decided(plan, decisions, start)

    def _decided(self, plan: Plan, decisions: list[Decision], start: int) -> bytes:
        if self._observer is not None:
            self._observer.planned(plan, decisions, (self._timer.now() - start) / 1e9)
        if plan.single and not self._headers:
            return answer_one(plan, decisions[0], self._clock)
        rows = rows_of(plan, decisions, self._clock)
        headers = ratelimit_headers(rows) if self._headers else []
        return write_response(OK if all(decisions) else OVER_LIMIT, rows, headers)

    def _answer(self, request: RateLimitRequest, start: int) -> Response | Awaitable[Response]:
        flow = self._general.flow(request)
        return self._drive_later(flow, start) if self._waits else self._drive(flow, start)

    def _drive(self, flow: Flow, start: int) -> Response:
        gate = self.gate.sync
        response = flows.run(flow, lambda a: gate.check(*a[0], domain=a[1], hits=a[2]))
        return self._finished(response, start)

    async def _drive_later(self, flow: Flow, start: int) -> Response:
        taken = Taken()
        try:
            response = await flows.run_async(flow, lambda a: self.gate.check_into(taken, *a))
        except BaseException as error:
            taken.give_back_async()
            if isinstance(error, PenstockError):
                raise as_status(error) from None
            raise
        return self._finished(response, start)

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

    def plan(self, domain: str | None, descriptors: Sequence[Descriptor]) -> Plan | None:
        """For a wire that is asked the same again and again: what `hit` takes.

        None if something special applies to it, or the store has to be waited for.
        """
        return None if self._waits else self.gate.sync.planner.plan(domain, descriptors)

    def hit(self, plan: Plan) -> list[Decision]:
        """Decide by a plan, one decision for each of its items."""
        if self._observer is None:
            return plan.hit()
        start = self._timer.now()
        decisions = plan.hit()
        self._observer.planned(plan, decisions, (self._timer.now() - start) / 1e9)
        return decisions

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
