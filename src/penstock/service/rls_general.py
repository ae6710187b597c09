"""The general way: a request of Envoy's, put to the gate, and what its verdict comes to.

One check is nearly always all. Hits that are given back have no decision: what is left is
looked at afterwards.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from penstock.clock import Clock
from penstock.gate import Gate
from penstock.limit import Limit
from penstock.numbers import whole_seconds, window_left
from penstock.rules.deciding import verdict as reasons
from penstock.rules.deciding.verdict import Descriptor, Status, Verdict
from penstock.rules.model import Rule
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

# Descriptors, domain, and the hits of those that state none.
Asking = tuple[Sequence[Descriptor], str, int]
Flow = Generator[Asking, Verdict, "Response"]


@dataclass(slots=True)
class Response:
    """A RateLimitResponse, and what it says of."""

    domain: str
    verdict: Verdict
    rows: list[Row]
    headers: list[tuple[str, str]] = field(default_factory=list)

    @property
    def overall(self) -> int:
        return OK if self.verdict.allowed else OVER_LIMIT

    def wire(self) -> bytes:
        return write_response(self.overall, self.rows, self.headers)


class General:
    """Turns requests into checks, and verdicts into answers."""

    def __init__(self, gate: Gate, clock: Clock) -> None:
        self._gate = gate
        self._clock = clock

    def flow(self, request: RateLimitRequest) -> Flow:
        """A request, to be driven: yields what to check, is sent the verdict."""
        known = request.domain in self._gate.matchers
        wanted = [
            self._descriptor(descriptor, request.hits, known) for descriptor in request.descriptors
        ]
        verdict = yield wanted, request.domain, request.hits
        backs = [s.reason == reasons.REFUND for s in verdict.statuses]
        if any(backs):
            looks = [replace(one, hits=0) for one, back in zip(wanted, backs, strict=True) if back]
            verdict = with_looks(verdict, (yield looks, request.domain, 1))
        rows = [
            self._row(status, descriptor)
            for status, descriptor in zip(verdict.statuses, request.descriptors, strict=True)
        ]
        return Response(request.domain, verdict, rows)

    def _descriptor(
        self, descriptor: RequestedDescriptor, hits_of_all: int, known: bool
    ) -> Descriptor:
        hits = descriptor.hits
        if descriptor.negative:
            hits = -(max(1, hits_of_all) if hits is None else hits)
        if descriptor.amount is None:
            return Descriptor(descriptor.pairs, None, hits)
        limit: Limit | None = own_limit(descriptor.amount, descriptor.unit)
        if not known:
            limit = None
        if limit is not None and descriptor.amount == 0:
            return Descriptor(descriptor.pairs, None, hits, closed_period_ns=limit.period_ns)
        return Descriptor(descriptor.pairs, limit, hits, envoy=True)

    def _row(self, status: Status, descriptor: RequestedDescriptor) -> Row:
        code = OK if status.allowed else OVER_LIMIT
        decision = status.decision
        if decision is not None:
            rule_id = "" if status.rule is None else status.rule.id
            limit = limit_told(decision.limit, status.limit_name, rule_id)
            return row_of(decision, limit, code, self._clock)
        if status.reason in (reasons.UNLIMITED, reasons.ALLOWED):
            return new_row(code, None, U32, -1)
        if status.reason == reasons.CLOSED:
            limit = (
                no_units(descriptor.unit, "")
                if descriptor.amount == 0
                else closed_limit(status.rule)
            )
            reset = whole_seconds(window_left(limit.window, self._clock.now()))
            return new_row(code, limit, 0, reset)
        return new_row(code, None, 0, -1)


def with_looks(verdict: Verdict, looked: Verdict) -> Verdict:
    """The verdict on hits that were given back, with what is left now."""
    fresh = iter(looked.statuses)
    statuses = []
    for status in verdict.statuses:
        if status.reason == reasons.REFUND:
            seen = next(fresh)
            status = replace(status, decision=seen.decision, limit_name=seen.limit_name)
        statuses.append(status)
    return Verdict(verdict.allowed, verdict.decision, verdict.rule, tuple(statuses))


@lru_cache(4096)
def own_limit(amount: int, unit: int) -> Limit:
    """The limit that a request brought."""
    if unit == 0 or unit not in UNITS:
        names = ", ".join(name for number, name in UNITS.items() if number)
        raise GrpcError(INVALID_ARGUMENT, f"the unit of a limit is one of {names}, not {unit}")
    return Limit(max(1, amount), UNITS[unit].lower(), algorithm="fixed_window")


@lru_cache(1024)
def no_units(unit: int, name: str) -> CurrentLimit:
    """A limit of nothing at all. Its windows are those of any other limit of the unit."""
    return CurrentLimit(0, unit, name, PERIODS[unit])


def closed_limit(rule: Rule | None) -> CurrentLimit:
    assert rule is not None, "nothing but a rule and the request itself can close a descriptor"
    return no_units(UNIT_OF_PERIOD[rule.closed_period_ns], rule.name or "")


@lru_cache(8192)
def limit_told(limit: Limit, name: str | None, rule_id: str) -> CurrentLimit:
    """The limit as an answer names it: with the name that somebody gave it, if any."""
    is_given = name is not None and name != str(limit) and not name.startswith(f"{rule_id} ")
    return current_limit(limit, name if is_given else None)


def ratelimit_headers(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Of the limit with the least left; one that is over goes before, for its longest wait."""
    counted = [(row, row.limit) for row in rows if row.limit is not None]
    if not counted:
        return []
    row, limit = min(
        counted,
        key=lambda each: (
            (0, -each[0].reset) if each[0].code == OVER_LIMIT else (1, each[0].remaining)
        ),
    )
    return [
        ("RateLimit-Limit", str(limit.amount)),
        ("RateLimit-Remaining", str(row.remaining)),
        ("RateLimit-Reset", str(max(0, row.reset))),
    ]
