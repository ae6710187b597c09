"""Writes the response to a check: a verdict as JSON, and the header fields of its limits.

The JSON is written by hand, in `_encode` only: docs/design/http-wire.md has the figures. A status
is fixed text around the numbers of a decision. `PlanResponse` keeps that text for a request that
is repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache

from penstock.decision import Decision
from penstock.durations import SECOND
from penstock.errors import PenstockError
from penstock.integrations.deciding.responses import NamedDecision, fields, retry_after
from penstock.limits import Limit
from penstock.numbers import reset_of
from penstock.rules.deciding.plan import Plan
from penstock.rules.deciding.verdict import LIMIT, Verdict, text_of
from penstock.service.failures import for_client, is_ours
from penstock.wires.http.messages import HttpResponse, as_error

# A status: the text before "allowed", "allowed", the text after it, and the decision.
_Status = tuple[str, bool, str, Decision | None]
_DEGRADED = ',"degraded":true'
_quoted = json.encoder.encode_basestring_ascii


def respond(
    verdict: Verdict, now: float, lease: str | None = None, warning: str | None = None
) -> HttpResponse:
    body = verdict_json(verdict, now, lease, warning)
    return _response(verdict.allowed, body, verdict.named_decisions(), now)


def respond_to_all(results: Iterable[str]) -> HttpResponse:
    """The response to many checks in one request."""
    return HttpResponse(200, f'{{"results":[{",".join(results)}]}}'.encode())


class PlanResponse:
    """The response to a request with one descriptor and one limit that does not change."""

    __slots__ = ("_after", "_before", "_name")

    def __init__(self, plan: Plan) -> None:
        (pairs,), (rule,) = plan.descriptors, plan.rules
        assert rule is not None
        (counted,) = rule.counted
        self._name = counted.name or "default"
        self._before = _before(pairs)
        self._after = _after(LIMIT, rule.rule.id, False, counted.name, counted.limit)

    def respond(self, decision: Decision, now: float) -> HttpResponse:
        allowed = decision.allowed
        status = (self._before, allowed, self._after, decision)
        body = _encode(allowed, decision.retry_after, (status,), now)
        return _response(allowed, body, ((self._name, decision),), now)


def _response(
    allowed: bool, body: str, decisions: Sequence[NamedDecision], now: float
) -> HttpResponse:
    headers = fields(decisions, now)
    if allowed:
        return HttpResponse(200, body.encode(), headers)
    wait = retry_after(decisions)
    if wait is not None:
        headers.append(("Retry-After", str(wait)))
    return HttpResponse(429, body.encode(), headers)


def error_response(error: PenstockError) -> HttpResponse:
    return as_error(503 if is_ours(error) else getattr(error, "status", 400), for_client(error))


def error_json(error: PenstockError) -> str:
    """One of many checks that failed. A client that only reads ``allowed`` sees a refusal."""
    message = _quoted(for_client(error))
    return f'{{"allowed":false,"retry_after":null,"statuses":[],"error":{message}}}'


def verdict_json(
    verdict: Verdict, now: float, lease: str | None = None, warning: str | None = None
) -> str:
    statuses: list[_Status] = []
    for status in verdict.statuses:
        rule, decision = status.rule, status.decision
        after = _after(
            status.reason,
            None if rule is None else rule.id,
            status.shadow,
            status.limit_name,
            None if decision is None else decision.limit,
            status.is_about_slots,
        )
        statuses.append((_before(status.pairs), status.allowed, after, decision))
    encoded = _encode(verdict.allowed, verdict.retry_after, statuses, now)
    if lease is not None:
        encoded = f'{encoded[:-1]},"lease":{_quoted(lease)}}}'
    return encoded if warning is None else f'{encoded[:-1]},"warning":{_quoted(warning)}}}'


def _encode(allowed: bool, wait: float | None, statuses: Sequence[_Status], now: float) -> str:
    overall = _number(wait)
    encoded = []
    for before, passed, after, decision in statuses:
        if decision is None:
            encoded.append(f"{before}{'true' if passed else 'false'}{after}}}")
            continue
        own_wait = decision.retry_after
        encoded.append(
            f"{before}{'true' if passed else 'false'}{after}"
            f',"remaining":{decision.shown_remaining()}'
            f',"retry_after":{overall if own_wait == wait else _number(own_wait)}'
            f',"reset":{reset_of(decision, now)}{_DEGRADED if decision.degraded else ""}}}'
        )
    return (
        f'{{"allowed":{"true" if allowed else "false"},"retry_after":{overall}'
        f',"statuses":[{",".join(encoded)}]}}'
    )


def _before(pairs: Iterable[tuple[str, str]]) -> str:
    descriptor = ",".join([f"[{_quoted(key)},{_quoted(value)}]" for key, value in pairs])
    return f'{{"descriptor":[{descriptor}],"allowed":'


@lru_cache(4096)
def _after(
    reason: str,
    rule: str | None,
    shadow: bool,
    limit_name: str | None,
    limit: Limit | None,
    of_slots: bool = False,
) -> str:
    content: dict[str, object] = {"reason": reason}
    if rule is not None:
        content["rule"] = rule
    if shadow:
        content["shadow"] = True
    if limit is not None:
        content["limit"] = {
            "name": limit_name,
            "text": text_of(limit, of_slots),
            "amount": limit.amount,
            "period": limit.period_ns / SECOND,
            "burst": limit.burst,
        }
    return f",{json.dumps(content, separators=(',', ':'))[1:-1]}"


def _number(value: float | None) -> str:
    if value is None:
        return "null"
    return repr(value) if value else "0.0"  # most are 0, and repr is slow
