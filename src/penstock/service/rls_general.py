"""Decides on requests from Envoy by the gate, and turns verdicts into responses.

Nearly always one check is enough. If hits were given back there is no decision, so a second check
looks at what is left.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from penstock.base_gate import BaseGate
from penstock.clock import Clock
from penstock.limits import Limit
from penstock.numbers import whole_seconds, window_left
from penstock.rules.deciding import verdict as reasons
from penstock.rules.deciding.verdict import Descriptor, Status, Verdict
from penstock.service.dynamic_metadata import Fields, metadata_of, write_metadata
from penstock.service.envoy_constants import OK, OVER_LIMIT, PERIODS, U32, UNIT_OF_PERIOD, UNITS
from penstock.service.grpc_status import INVALID_ARGUMENT, GrpcError
from penstock.service.rls_request import RateLimitRequest, RequestedDescriptor
from penstock.service.rls_response import (
    CurrentLimit,
    Row,
    current_limit,
    new_row,
    row_of,
    write_response,
)

# The arguments of a check: descriptors, domain, and the hits of descriptors that state none.
CheckArguments = tuple[Sequence[Descriptor], str, int]
Flow = Generator[CheckArguments, Verdict, "Response"]


@dataclass(slots=True)
class Response:
    """A RateLimitResponse, and the verdict that it is about."""

    domain: str
    verdict: Verdict
    rows: list[Row]
    headers: list[tuple[str, str]] = field(default_factory=list)
    metadata: Fields | None = None

    @property
    def overall(self) -> int:
        return OK if self.verdict.allowed else OVER_LIMIT

    def wire(self) -> bytes:
        response = write_response(self.overall, self.rows, self.headers)
        return response if self.metadata is None else response + write_metadata(self.metadata)


class General:
    """Turns requests into checks, and verdicts into answers."""

    def __init__(self, gate: BaseGate, clock: Clock, dynamic_metadata: bool = False) -> None:
        self._gate = gate
        self._clock = clock
        self._dynamic_metadata = dynamic_metadata

    def flow(self, request: RateLimitRequest) -> Flow:
        """Decide on a request: yields the arguments of checks, is sent their verdicts."""
        has_domain = request.domain in self._gate.matchers
        descriptors = [
            self._descriptor(descriptor, request.hits, has_domain)
            for descriptor in request.descriptors
        ]
        verdict = yield descriptors, request.domain, request.hits
        looks = [
            replace(descriptor, hits=0)
            for descriptor, status in zip(descriptors, verdict.statuses, strict=True)
            if status.reason == reasons.REFUND
        ]
        if looks:
            verdict = with_looks(verdict, (yield looks, request.domain, 1))
        rows = [
            self._row(status, descriptor)
            for status, descriptor in zip(verdict.statuses, request.descriptors, strict=True)
        ]
        response = Response(request.domain, verdict, rows)
        if self._dynamic_metadata:
            response.metadata = metadata_of(request, verdict)
        return response

    def _descriptor(
        self, descriptor: RequestedDescriptor, request_hits: int, has_domain: bool
    ) -> Descriptor:
        hits = descriptor.hits
        if descriptor.negative:
            hits = -(max(1, request_hits) if hits is None else hits)
        if descriptor.amount is None:
            return Descriptor(descriptor.pairs, None, hits)
        limit: Limit | None = brought_limit(descriptor.amount, descriptor.unit)
        if not has_domain:
            limit = None
        if limit is not None and descriptor.amount == 0:
            return Descriptor(descriptor.pairs, None, hits, closed_period_ns=limit.period_ns)
        return Descriptor(descriptor.pairs, limit, hits, envoy=True)

    def _row(self, status: Status, descriptor: RequestedDescriptor) -> Row:
        code = OK if status.allowed else OVER_LIMIT
        decision = status.decision
        if decision is not None:
            rule_id = "" if status.rule is None else status.rule.id
            limit = reported_limit(decision.limit, status.limit_name, rule_id)
            return row_of(decision, limit, code, self._clock)
        if status.reason in (reasons.UNLIMITED, reasons.ALLOWED):
            return new_row(code, None, U32, -1)
        if status.reason == reasons.CLOSED:
            if descriptor.amount == 0:
                limit = closed_limit(descriptor.unit, "")
            else:
                assert status.rule is not None, "a request or a rule closes a descriptor"
                unit = UNIT_OF_PERIOD[status.rule.closed_period_ns]
                limit = closed_limit(unit, status.rule.name or "")
            reset = whole_seconds(window_left(limit.window, self._clock.now()))
            return new_row(code, limit, 0, reset)
        return new_row(code, None, 0, -1)


def with_looks(verdict: Verdict, look: Verdict) -> Verdict:
    """A verdict on hits that were given back, with what is left now."""
    looks = iter(look.statuses)
    statuses = []
    for status in verdict.statuses:
        if status.reason == reasons.REFUND:
            now = next(looks)
            status = replace(status, decision=now.decision, limit_name=now.limit_name)
        statuses.append(status)
    return Verdict(verdict.allowed, verdict.decision, verdict.rule, tuple(statuses))


@lru_cache(4096)
def brought_limit(amount: int, unit: int) -> Limit:
    """The limit that a request brought."""
    if unit == 0 or unit not in UNITS:
        names = ", ".join(name for number, name in UNITS.items() if number)
        raise GrpcError(INVALID_ARGUMENT, f"the unit of a limit is one of {names}, not {unit}")
    return Limit(max(1, amount), UNITS[unit].lower(), algorithm="fixed_window")


@lru_cache(1024)
def closed_limit(unit: int, name: str) -> CurrentLimit:
    """A limit of zero requests. Its windows are those of any other limit of the unit."""
    return CurrentLimit(0, unit, name, PERIODS[unit])


@lru_cache(8192)
def reported_limit(limit: Limit, name: str | None, rule_id: str) -> CurrentLimit:
    """The limit as responses report it, with its name unless that was generated."""
    is_chosen = name is not None and name != str(limit) and not name.startswith(f"{rule_id} ")
    return current_limit(limit, name if is_chosen else None)


def ratelimit_headers(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """For the limit with the longest wait if any is over, else for the one with the least left."""
    counted = [(row, row.limit) for row in rows if row.limit is not None]
    if not counted:
        return []
    row, limit = min(counted, key=lambda pair: _strictness(pair[0]))
    return [
        ("RateLimit-Limit", str(limit.amount)),
        ("RateLimit-Remaining", str(row.remaining)),
        ("RateLimit-Reset", str(max(0, row.reset))),
    ]


def _strictness(row: Row) -> tuple[int, int]:
    return (0, -row.reset) if row.code == OVER_LIMIT else (1, row.remaining)
