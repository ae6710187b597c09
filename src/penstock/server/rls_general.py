"""The general way: a request of Envoy's, put to the gate, and what its verdict comes to.

One check is nearly always all. More are needed for what the gate does not say in one:

- a limit of 0 in the request (``limit: {requests_per_unit: 0}``) refuses it, so that nothing
  else may be consumed: first all descriptors are only looked at
- hits that are given back have no decision: what is left is looked at afterwards
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from penstock.clock import Clock
from penstock.gate import Gate
from penstock.limit import Limit
from penstock.rules import verdict as reasons
from penstock.rules.model import ENFORCE
from penstock.rules.verdict import Descriptor, Status, Verdict
from penstock.server.grpc_status import INVALID_ARGUMENT, RESOURCE_EXHAUSTED, GrpcError
from penstock.server.rls import Asked, Request
from penstock.server.rls_answer import (
    CurrentLimit,
    Row,
    current_limit,
    new_row,
    row_of,
    write_response,
)
from penstock.server.rls_words import OK, OVER_LIMIT, U32, UNITS

# Different limits that requests may bring in all: each has counters of its own, for good.
MOST_OVERRIDES = 4_096

Asking = tuple[Sequence[Descriptor], str]
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
        self._overrides: dict[tuple[int, int], Limit] = {}

    def flow(self, request: Request) -> Flow:
        """A request, to be driven: yields what to check, is sent the verdict."""
        known = request.domain in self._gate.matchers
        wanted = [self._descriptor(asked, request.hits, known) for asked in request.asked]
        refusing = [
            at
            for at, (asked, descriptor) in enumerate(zip(request.asked, wanted, strict=True))
            if asked.amount == 0 and known and (descriptor.hits is None or descriptor.hits > 0)
        ]
        verdict: Verdict | None = None
        if refusing:
            verdict = yield [replace(one, hits=0) for one in wanted], request.domain
            verdict = self._refused(verdict, refusing)
            for at in refusing:  # if they do not refuse it after all, there is nothing to take
                wanted[at] = replace(wanted[at], hits=0)
        if verdict is None:
            verdict = yield wanted, request.domain
            backs = [s.reason == reasons.REFUND for s in verdict.statuses]
            if any(backs):
                looks = [
                    replace(one, hits=0) for one, back in zip(wanted, backs, strict=True) if back
                ]
                verdict = with_looks(verdict, (yield looks, request.domain))
        rows = [
            self._row(status, asked)
            for status, asked in zip(verdict.statuses, request.asked, strict=True)
        ]
        return Response(request.domain, verdict, rows)

    def _descriptor(self, asked: Asked, hits: int, known: bool) -> Descriptor:
        limit = None
        if asked.amount is not None:
            limit = self._override(asked.amount, asked.unit, known)
        own = max(1, hits) if asked.hits is None else asked.hits
        if asked.negative:
            own = 0 if asked.amount == 0 else -own
        return Descriptor(asked.pairs, limit, own)

    def _override(self, amount: int, unit: int, known: bool) -> Limit | None:
        """The limit that a request brought. Of 0 units, one that is never asked for any."""
        if unit == 0 or unit not in UNITS:
            names = ", ".join(name for number, name in UNITS.items() if number)
            raise GrpcError(INVALID_ARGUMENT, f"the unit of a limit is one of {names}, not {unit}")
        if not known:
            return None
        made = self._overrides.get((amount, unit))
        if made is None:
            if len(self._overrides) >= MOST_OVERRIDES:
                raise GrpcError(
                    RESOURCE_EXHAUSTED,
                    f"requests have brought {MOST_OVERRIDES} different limits: no more are counted",
                )
            made = Limit(max(1, amount), UNITS[unit].lower(), algorithm="fixed_window")
            self._overrides[amount, unit] = made
        return made

    def _refused(self, looked: Verdict, refusing: Sequence[int]) -> Verdict | None:
        """The verdict if a limit of 0 does refuse; None where a list or a switch prevents it."""
        statuses = list(looked.statuses)
        refused = False
        for at in refusing:
            status = statuses[at]
            if status.reason == reasons.LIMIT:
                refused = refused or not status.shadow
                statuses[at] = replace(
                    status,
                    allowed=status.shadow,
                    reason=reasons.CLOSED,
                    limit_name=None,
                )
        if not refused:
            return None
        enforced = self._gate.switches.state().mode == ENFORCE
        rule = next(status.rule for status in statuses if not status.allowed)
        return Verdict(not enforced, None, rule, tuple(statuses))

    def _row(self, status: Status, asked: Asked) -> Row:
        code = OK if status.allowed else OVER_LIMIT
        decision = status.decision
        if asked.amount == 0 and decision is not None:
            return row_of(decision.refused(0), no_units(asked.unit), code, self._clock)
        if decision is not None:
            rule_id = "" if status.rule is None else status.rule.id
            limit = limit_told(decision.limit, status.limit_name, rule_id)
            return row_of(decision, limit, code, self._clock)
        if status.reason in (reasons.UNLIMITED, reasons.ALLOWED):
            return new_row(code, None, U32, -1)
        if status.reason == reasons.CLOSED:
            name = "" if status.rule is None else status.rule.name or ""
            return new_row(code, CurrentLimit(0, 0, name), 0, -1)
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


@lru_cache(16)
def no_units(unit: int) -> CurrentLimit:
    """A limit of nothing at all."""
    limit = Limit(1, UNITS[unit].lower(), algorithm="fixed_window")
    return CurrentLimit(0, unit, "", limit.period_ns)


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
