"""POST /v1/check: may this go ahead? One question, or many in one request.

::

    {"domain": "api", "descriptors": [{"user": "42"}], "hits": 1}
    {"checks": [{"descriptors": ...}, ...]}

A descriptor is an object of texts, in order; or a list of pairs, where a key comes twice; or
``{"pairs": {...}, "limit": "5/minute", "hits": 0}``, to say otherwise than the rules.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from penstock.decision import Decision
from penstock.durations import SECOND
from penstock.errors import PenstockError
from penstock.integrations.deciding.http import fields, retry_after
from penstock.limit import Limit
from penstock.numbers import reset_of
from penstock.rules.deciding.plan import Plan, PlanCache
from penstock.rules.deciding.verdict import LIMIT, Descriptor, Status, Verdict
from penstock.service.failures import for_client, is_ours
from penstock.service.rls_json import NO_REFUNDS
from penstock.service.service import Service
from penstock.wires.http.messages import HttpRequest, HttpResponse, as_error
from penstock.wires.http.questions import (
    BadCheck,
    NoRefunds,
    Question,
    TooLarge,
    question,
)

# In all checks of one request together: each is a decision or more.
MOST_IN_ALL = 1_000
# So many descriptors are decided on before others have their turn.
PART = 50
# Questions whose plans are kept by their bytes: some 3 kB each.
MOST_KEPT, LONGEST_KEPT = 4_096, 512
# Places for the hashes of those that came once; a power of two.
SEEN = 16_384
_text = json.encoder.encode_basestring_ascii


class CheckApi:
    """The handler. With ``refunds``, whoever asks may give hits back."""

    def __init__(self, service: Service, *, refunds: bool = False) -> None:
        self._service = service
        self._refunds = refunds
        self._plans = PlanCache(MOST_KEPT, LONGEST_KEPT, SEEN)

    def __call__(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        plan = self._plans.get(request.body, self._service.gate.sync.planner)
        if plan is not None:
            try:
                (decision,) = self._service.hit(plan)
            except PenstockError as error:
                return error_of(error)
            answer: SingleAnswer = plan.attachment
            return answer.of(decision, self._service.now())
        try:
            asked = json.loads(request.body or b"null")
        except (ValueError, RecursionError) as error:
            return as_error(400, f"the body is not JSON: {error}")
        try:
            if isinstance(asked, dict) and "checks" in asked:
                return self._many(asked)
            domain, descriptors, hits = self._question(asked, "")
            if len(descriptors) == 1 == hits and self._plans.wants(request.body):
                self._keep(request.body, domain, descriptors[0])
            found = self._service.check(domain, descriptors, hits)
        except PenstockError as error:
            return error_of(error)
        return self._one(found) if isinstance(found, Verdict) else self._later(found)

    def _question(self, asked: Any, where: str) -> Question:
        found = question(asked, where)
        _, descriptors, hits = found
        if not self._refunds and (hits < 0 or any((d.hits or 0) < 0 for d in descriptors)):
            raise NoRefunds(f"{where}hits below 0 {NO_REFUNDS}")
        return found

    def _keep(self, body: bytes, domain: str | None, descriptor: Descriptor) -> None:
        """A client that asks the same again need not have its question read again."""
        plan = self._service.plan(domain, (descriptor,))
        if plan is not None and plan.single and plan.items[0][0].limit.soft is None:
            plan.attachment = SingleAnswer(plan)
            self._plans.put(body, plan)

    def _one(self, verdict: Verdict) -> HttpResponse:
        told = verdict.told()
        now = self._service.now()
        headers = fields(told, now)
        if not verdict.allowed:
            after = retry_after(told)
            if after is not None:
                headers.append(("Retry-After", str(after)))
        status = 200 if verdict.allowed else 429
        return HttpResponse(status, written(verdict, now).encode(), headers)

    async def _later(self, waiting: Awaitable[Verdict]) -> HttpResponse:
        try:
            return self._one(await waiting)
        except PenstockError as error:
            return error_of(error)

    def _many(self, asked: dict[str, Any]) -> HttpResponse | Awaitable[HttpResponse]:
        checks = asked["checks"]
        if not isinstance(checks, list) or not checks:
            raise BadCheck(f"checks is a list of 1 to {MOST_IN_ALL} questions")
        if len(checks) > MOST_IN_ALL:
            raise TooLarge(f"checks has {len(checks)} questions, and {MOST_IN_ALL} is the most")
        count = sum([_size(each) for each in checks])
        if count > MOST_IN_ALL:
            raise TooLarge(
                f"all checks together have {count} descriptors, and {MOST_IN_ALL} is the most"
            )
        # All are read before the first is asked: a wrong one counts nothing.
        questions = [self._question(each, f"checks[{at}]: ") for at, each in enumerate(checks)]
        if self._service.gate.store.waits or count > PART:
            return self._in_parts(questions)
        return _results(self._written(self._service.check_each(questions)))

    async def _in_parts(self, questions: list[Question]) -> HttpResponse:
        """A part at a time, so that others have their turn in between.

        A store that waits is asked all at once: others have their turn while it does.
        """
        if self._service.gate.store.waits:
            found: Any = self._service.check_each(questions)
            return _results(self._written(await found))
        results: list[str] = []
        for part in _parts(questions):
            results += self._written(self._service.check_each(part))
            await asyncio.sleep(0)
        return _results(results)

    def _written(self, found: Any) -> list[str]:
        now = self._service.now()
        return [
            written(each, now) if isinstance(each, Verdict) else _failed(each) for each in found
        ]


def _size(asked: Any) -> int:
    """Descriptors of one check; what is none is told when it is read."""
    listed = asked.get("descriptors") if isinstance(asked, dict) else None
    return len(listed) if isinstance(listed, list) else 0


def _parts(questions: Sequence[Question]) -> Iterator[list[Question]]:
    part: list[Question] = []
    count = 0
    for each in questions:
        part.append(each)
        count += len(each[1])
        if count >= PART:
            yield part
            part, count = [], 0
    if part:
        yield part


class SingleAnswer:
    """All of the answer to one descriptor with one limit that does not change."""

    __slots__ = ("_name", "_rest", "_start")

    def __init__(self, plan: Plan) -> None:
        (descriptor,), (rule,) = plan.descriptors, plan.rules
        assert rule is not None
        (counted,) = rule.counted
        pairs = ",".join([f"[{_text(key)},{_text(value)}]" for key, value in descriptor])
        limit = _limit(counted.name, counted.limit)
        self._name = counted.name or "default"
        self._start = f'"statuses":[{{"descriptor":[{pairs}],"allowed":'
        self._rest = f',"reason":"{LIMIT}","rule":{_text(rule.rule.id)}{limit}'

    def of(self, decision: Decision, now: float) -> HttpResponse:
        """The same as `written` makes of a verdict."""
        allowed = "true" if decision.allowed else "false"
        after = _number(decision.retry_after)
        degraded = ',"degraded":true' if decision.degraded else ""
        body = (
            f'{{"allowed":{allowed},"retry_after":{after},{self._start}{allowed}{self._rest}'
            f',"remaining":{decision.shown_remaining()},"retry_after":{after}'
            f',"reset":{reset_of(decision, now)}{degraded}}}]}}'
        )
        told = ((self._name, decision),)
        headers = fields(told, now)
        if decision.allowed:
            return HttpResponse(200, body.encode(), headers)
        wait = retry_after(told)
        if wait is not None:
            headers.append(("Retry-After", str(wait)))
        return HttpResponse(429, body.encode(), headers)


def _results(written_ones: list[str]) -> HttpResponse:
    return HttpResponse(200, f'{{"results":[{",".join(written_ones)}]}}'.encode())


def _failed(error: PenstockError) -> str:
    """One of several that could not be decided. Who looks only at ``allowed`` does not pass."""
    told = _text(for_client(error))
    return f'{{"allowed":false,"retry_after":null,"statuses":[],"error":{told}}}'


def error_of(error: PenstockError) -> HttpResponse:
    """The answer to a question that was not decided."""
    return as_error(503 if is_ours(error) else getattr(error, "status", 400), for_client(error))


def written(verdict: Verdict, now: float) -> str:
    """The answer as JSON. By hand: it is most of what a check takes, and an encoder is slow."""
    statuses = ",".join([_status(status, now) for status in verdict.statuses])
    after = _number(verdict.retry_after)
    allowed = "true" if verdict.allowed else "false"
    return f'{{"allowed":{allowed},"retry_after":{after},"statuses":[{statuses}]}}'


def _status(status: Status, now: float) -> str:
    pairs = ",".join([f"[{_text(key)},{_text(value)}]" for key, value in status.pairs])
    allowed = "true" if status.allowed else "false"
    told = f'{{"descriptor":[{pairs}],"allowed":{allowed},"reason":{_text(status.reason)}'
    if status.rule is not None:
        told += f',"rule":{_text(status.rule.id)}'
    if status.shadow:
        told += ',"shadow":true'
    decision = status.decision
    if decision is not None:
        told += (
            f"{_limit(status.limit_name, decision.limit)}"
            f',"remaining":{decision.shown_remaining()}'
            f',"retry_after":{_number(decision.retry_after)},"reset":{reset_of(decision, now)}'
        )
        if decision.degraded:
            told += ',"degraded":true'
    return told + "}"


@lru_cache(4096)
def _limit(name: str | None, limit: Limit) -> str:
    told = {
        "name": name,
        "text": str(limit),
        "amount": limit.amount,
        "period": limit.period_ns / SECOND,
        "burst": limit.burst,
    }
    return f',"limit":{json.dumps(told)}'


def _number(value: float | None) -> str:
    return "null" if value is None else repr(value)
