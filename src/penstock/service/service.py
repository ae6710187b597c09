"""Service: the rate limit service without sockets. Messages in, messages out.

Plain requests are decided by a plan that is found by their bytes, and the response is written
directly from the decision (`rls_quick.py`). All others are decided by the gate
(`rls_general.py`). Both give the same bytes.

It answers like Envoy's service, with one difference: a refused request of one hit consumes
nothing, whereas Envoy's service counts it. Debits are booked as in Envoy's service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import zip_longest
from typing import Any, Protocol

from penstock import flows
from penstock.async_gate import AsyncGate
from penstock.clock import MONOTONIC, WALL, Clock
from penstock.decision import Decision
from penstock.errors import PenstockError
from penstock.rules.deciding.check import only_domain
from penstock.rules.deciding.plan import Plan
from penstock.rules.deciding.store_calls import Taken
from penstock.rules.deciding.verdict import UNMATCHED, Descriptor, Status, Verdict
from penstock.service.dynamic_metadata import KeptMetadata
from penstock.service.envoy_constants import OK, OVER_LIMIT
from penstock.service.failures import as_status
from penstock.service.leases import LeaseIds
from penstock.service.rls_general import Flow, General, Response, ratelimit_headers
from penstock.service.rls_quick import MessagePlans, answer_one, check, rows_of
from penstock.service.rls_request import RateLimitRequest
from penstock.service.rls_response import write_response
from penstock.service.unknown_domains import UnknownDomains

Reply = bytes | Awaitable[bytes]
# A domain, descriptors, and hits.
Question = tuple[str | None, Sequence[Descriptor], int]


class Observer(Protocol):
    """Is called for every decision; see `penstock.metrics`.

    Both methods must be quick: requests wait for them. ``seconds`` is how long the decision took.
    """

    def decided(self, domain: str, verdict: Verdict, seconds: float) -> None:
        """A request was decided by the gate."""

    def planned(self, plan: Plan, decisions: list[Decision], seconds: float) -> None:
        """A request was decided by a plan. By default, `decided` gets its verdict."""
        self.decided(plan.domain, plan.verdict(decisions), seconds)


class Service:
    """Decides for all wires.

    ``headers`` adds RateLimit-Limit, -Remaining and -Reset to responses for Envoy, and
    ``dynamic_metadata`` what was asked and the metadata of rules. ``clock`` is the time of day,
    ``timer`` measures how long decisions take. ``lease_secret`` signs the ids of leases: services
    with the same secret and the same store release each other's.
    """

    def __init__(
        self,
        gate: AsyncGate,
        *,
        clock: Clock = WALL,
        observer: Observer | None = None,
        headers: bool = False,
        dynamic_metadata: bool = False,
        timer: Clock = MONOTONIC,
        lease_secret: bytes | None = None,
    ) -> None:
        if not isinstance(gate, AsyncGate):
            raise TypeError(f"a service is made of an AsyncGate, not of {gate!r:.100}")
        self.gate = gate
        self._clock = clock
        self._observer = observer
        self._headers = headers
        self._timer = timer
        self._waits = gate.store.waits
        self._general = General(gate, clock, dynamic_metadata)
        self._metadata = KeptMetadata()
        # For wires: `rate_limit`, as quick as without metadata if there is none.
        self.message_handler: Callable[[bytes], Reply] = (
            self.rate_limit_with_metadata if dynamic_metadata else self.rate_limit
        )
        self._plans = MessagePlans(gate)
        self._lease_ids = LeaseIds(lease_secret)
        # What to tell callers whose domain no rule has.
        self.domain_warning = UnknownDomains(gate).warning

    def observe(self, observer: Observer | None) -> None:
        """Tell another observer of decisions from now on."""
        self._observer = observer

    def now(self) -> float:
        """Seconds since 1970."""
        return self._clock.now() / 1e9

    # Envoy's messages ----------------------------------------------------------------------

    def rate_limit(self, message: bytes) -> Reply:
        """RateLimitRequest in, RateLimitResponse out, both as protobuf bytes.

        An awaitable if the store has to be waited for. An invalid request raises `GrpcError`:
        INVALID_ARGUMENT, or UNKNOWN where Envoy's service does.
        """
        start = 0 if self._observer is None else self._timer.now()
        try:
            plan = self._plans.plan(message)
            if not isinstance(plan, Plan):
                response = self._answer(plan, start)
                return response.wire() if isinstance(response, Response) else _written(response)
            if self._waits and plan.items:
                return self._hit_async(plan, start)
            decisions = plan.hit()
        except PenstockError as error:
            raise as_status(error) from None
        return self._decided(plan, decisions, start)

    def rate_limit_with_metadata(self, message: bytes) -> Reply:
        """The same, with dynamic metadata in the response."""
        start = 0 if self._observer is None else self._timer.now()
        try:
            plan = self._plans.plan(message)
            if not isinstance(plan, Plan):
                response = self._answer(plan, start)
                return response.wire() if isinstance(response, Response) else _written(response)
            if self._waits and plan.items:
                return self._hit_with_metadata(message, plan, start)
            decisions = plan.hit()
        except PenstockError as error:
            raise as_status(error) from None
        return self._decided(plan, decisions, start) + self._metadata.of(message, plan, decisions)

    async def _hit_with_metadata(self, message: bytes, plan: Plan, start: int) -> bytes:
        try:
            decisions = await plan.hit_async()
        except PenstockError as error:
            raise as_status(error) from None
        return self._decided(plan, decisions, start) + self._metadata.of(message, plan, decisions)

    def answer(self, request: RateLimitRequest) -> Response | Awaitable[Response]:
        """The same for a request that has been read already, from JSON for example."""
        start = 0 if self._observer is None else self._timer.now()
        try:
            check(request)
            return self._answer(request, start)
        except PenstockError as error:
            raise as_status(error) from None

    async def _hit_async(self, plan: Plan, start: int) -> bytes:
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
        return self._drive_async(flow, start) if self._waits else self._drive(flow, start)

    def _drive(self, flow: Flow, start: int) -> Response:
        check = self.gate.check_now
        response = flows.run(flow, lambda args: check(*args[0], domain=args[1], hits=args[2]))
        return self._finished(response, start)

    async def _drive_async(self, flow: Flow, start: int) -> Response:
        taken = Taken()
        try:
            response = await flows.run_async(flow, lambda args: self.gate.check_into(taken, *args))
        except BaseException as error:
            taken.give_back_async()
            if isinstance(error, PenstockError):
                raise as_status(error) from None
            raise
        return self._finished(response, start)

    def _finished(self, response: Response, start: int) -> Response:
        self.domain_warning(response.domain)
        if self._observer is not None:
            self._observe(response.domain, response.verdict, start)
        if self._headers:
            response.headers = ratelimit_headers(response.rows)
        return response

    # Other wires ---------------------------------------------------------------------------

    def check(
        self, domain: str | None, descriptors: Sequence[Descriptor], hits: int = 1
    ) -> Verdict | Awaitable[Verdict]:
        """See `Gate.check`; an awaitable if the store has to be waited for."""
        if self._waits:
            return self._check_async(domain, descriptors, hits)
        start = 0 if self._observer is None else self._timer.now()
        verdict = self.gate.check_now(*descriptors, domain=domain, hits=hits)
        if self._observer is not None:
            self._observe(only_domain(self.gate.compiled, domain), verdict, start)
        return verdict

    def count_unmatched(self, domain: str | None) -> None:
        """Tell the observer of a request that no rule can match."""
        if self._observer is not None:
            verdict = Verdict(True, None, None, (Status((), True, UNMATCHED),))
            self._observer.decided(only_domain(self.gate.compiled, domain), verdict, 0.0)

    def lease(self, verdict: Verdict) -> str | None:
        """The id with which a client releases the slots of its request; None if it has none."""
        return self._lease_ids.write(verdict.slots) if verdict.slots else None

    def release(self, lease: str) -> bool | Awaitable[bool]:
        """Free the slots of a lease; False if they were free already.

        `UnknownLease` if it is none of ours; an awaitable if the store has to be waited for.
        """
        gate, now = self.gate, self.gate.clock.now()
        slots, key = self._lease_ids.read(lease, lambda limit: gate.pool.counters(limit, now))
        if all(slot.until <= now for slot in slots):
            return False
        if self._waits:
            return gate.release_slots(slots, once=key)
        return gate.release_slots_now(slots, once=key)

    def plan(self, domain: str | None, descriptors: Sequence[Descriptor]) -> Plan | None:
        """A plan for `hit`, for wires that get the same request again and again.

        None if the request is not plain, or the store has to be waited for.
        """
        return None if self._waits else self.gate.planner.plan(domain, descriptors)

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
        """`check` for several requests, each on its own. A failed one gives an error instead."""
        if self._waits:
            return self._check_each_async(questions)
        answers: list[Verdict | PenstockError] = []
        for question in questions:
            try:
                verdict = self.check(*question)
            except PenstockError as error:
                answers.append(error)
            else:
                assert isinstance(verdict, Verdict)
                answers.append(verdict)
        return answers

    async def _check_each_async(
        self, questions: Sequence[Question]
    ) -> list[Verdict | PenstockError]:
        """All concurrently. If this is cancelled, nothing is taken."""
        taken = [Taken() for _ in questions]
        checks = [
            self._check_async(*question, record)
            for question, record in zip(questions, taken, strict=True)
        ]
        answers: list[Any] = []
        try:
            answers = await asyncio.gather(*checks, return_exceptions=True)
            for answer in answers:
                if isinstance(answer, BaseException) and not isinstance(answer, PenstockError):
                    raise answer
        except BaseException:
            answers = []
            raise
        finally:
            for record, answer in zip_longest(taken, answers):
                if not isinstance(answer, Verdict):
                    record.give_back_async()
        return answers

    async def _check_async(
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
            self._observe(only_domain(self.gate.compiled, domain), verdict, start)
        return verdict

    def _observe(self, domain: str, verdict: Verdict, start: int) -> None:
        assert self._observer is not None
        self._observer.decided(domain, verdict, (self._timer.now() - start) / 1e9)


async def _written(response: Awaitable[Response]) -> bytes:
    return (await response).wire()
