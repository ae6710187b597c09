"""POST /v1/check: may this go ahead? One question, or many in one request.

::

    {"domain": "api", "descriptors": [{"user": "42"}], "hits": 1}
    {"checks": [{"descriptors": ...}, ...]}

A descriptor is an object of texts, in order; or a list of pairs, where a key comes twice; or
``{"pairs": {...}, "limit": "5/minute", "hits": 0}``, to say otherwise than the rules.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable
from typing import Any

from penstock.durations import SECOND
from penstock.errors import PenstockError
from penstock.integrations.http import fields, retry_after
from penstock.rules.verdict import Descriptor, Status, Verdict, check_hits
from penstock.server.service import Service
from penstock.server.wires.http.messages import HttpAnswer, HttpRequest, as_error, as_json

# In one request: each is a decision or more.
MOST_CHECKS = 1_000
MOST_DESCRIPTORS = 100


class BadCheck(PenstockError):
    """A question that cannot be read; says where."""


class CheckApi:
    """The handler."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def __call__(self, request: HttpRequest) -> HttpAnswer | Awaitable[HttpAnswer]:
        try:
            asked = json.loads(request.body or b"null")
        except (ValueError, RecursionError) as error:
            return as_error(400, f"the body is not JSON: {error}")
        try:
            if isinstance(asked, dict) and "checks" in asked:
                return self._many(asked)
            domain, descriptors, hits = question(asked, "")
            found = self._service.check(domain, descriptors, hits)
        except PenstockError as error:
            return as_error(400, str(error))
        return self._one(found) if isinstance(found, Verdict) else self._later(found)

    def _one(self, verdict: Verdict) -> HttpAnswer:
        told = told_of(verdict)
        headers = [*fields(told, self._service.now())] if told else []
        if not verdict.allowed:
            after = retry_after(told)
            if after is not None:
                headers.append(("Retry-After", str(after)))
        return as_json(answer_to(verdict), 200 if verdict.allowed else 429, headers)

    async def _later(self, waiting: Awaitable[Verdict]) -> HttpAnswer:
        try:
            return self._one(await waiting)
        except PenstockError as error:
            return as_error(400, str(error))

    def _many(self, asked: dict[str, Any]) -> HttpAnswer | Awaitable[HttpAnswer]:
        checks = asked["checks"]
        if not isinstance(checks, list) or not 1 <= len(checks) <= MOST_CHECKS:
            raise BadCheck(f"checks is a list of 1 to {MOST_CHECKS} questions")
        # All are read before the first is asked: a wrong one counts nothing.
        questions = [question(each, f"checks[{at}]: ") for at, each in enumerate(checks)]
        found = [self._service.check(*each) for each in questions]
        if all(isinstance(each, Verdict) for each in found):
            return as_json({"results": [answer_to(each) for each in found]})  # type: ignore[arg-type]  # all are
        return self._many_later(found)

    async def _many_later(self, found: list[Verdict | Awaitable[Verdict]]) -> HttpAnswer:
        results = []
        for each in found:
            results.append(answer_to(each if isinstance(each, Verdict) else await each))
        return as_json({"results": results})


def question(asked: Any, where: str) -> tuple[str | None, list[Descriptor], int]:
    """The domain, the descriptors and the hits of one question."""
    if not isinstance(asked, dict):
        raise BadCheck(f"{where}a check is an object with descriptors")
    unknown = asked.keys() - {"domain", "descriptors", "hits"}
    if unknown:
        raise BadCheck(f"{where}unknown: {', '.join(sorted(unknown))}")
    domain = asked.get("domain")
    if domain is not None and (not isinstance(domain, str) or not domain):
        raise BadCheck(f"{where}domain is a non-empty text")
    listed = asked.get("descriptors")
    if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_DESCRIPTORS:
        raise BadCheck(f"{where}descriptors is a list of 1 to {MOST_DESCRIPTORS} descriptors")
    descriptors = []
    for at, each in enumerate(listed):
        try:
            descriptors.append(descriptor_of(each))
        except PenstockError as error:
            raise BadCheck(f"{where}descriptors[{at}]: {error}") from None
    try:
        return domain, descriptors, check_hits(asked.get("hits", 1))
    except PenstockError as error:
        raise BadCheck(f"{where}{error}") from None


def descriptor_of(asked: Any) -> Descriptor:
    if isinstance(asked, dict) and isinstance(asked.get("pairs"), (dict, list)):
        unknown = asked.keys() - {"pairs", "limit", "hits"}
        if unknown:
            raise BadCheck(f"unknown: {', '.join(sorted(unknown))}")
        limit = asked.get("limit")
        if limit is not None and not isinstance(limit, str):
            raise BadCheck("limit is a text such as '100/minute'")
        return Descriptor.of(_pairs(asked["pairs"]), limit, asked.get("hits"))
    return Descriptor.of(_pairs(asked))


def _pairs(asked: Any) -> Any:
    if isinstance(asked, list):
        return [tuple(pair) if isinstance(pair, list) else pair for pair in asked]
    if not isinstance(asked, dict):
        raise BadCheck("a descriptor is an object of texts, or a list of pairs")
    return asked


def told_of(verdict: Verdict) -> list[tuple[str, Any]]:
    """The limits that headers tell of."""
    return [
        (status.limit_name or "default", status.decision)
        for status in verdict.statuses
        if status.decision is not None and not status.shadow
    ]


def answer_to(verdict: Verdict) -> dict[str, Any]:
    return {
        "allowed": verdict.allowed,
        "retry_after": verdict.retry_after,
        "statuses": [status_of(status) for status in verdict.statuses],
    }


def status_of(status: Status) -> dict[str, Any]:
    told: dict[str, Any] = {
        "descriptor": [list(pair) for pair in status.pairs],
        "allowed": status.allowed,
        "reason": status.reason,
    }
    if status.rule is not None:
        told["rule"] = status.rule.id
    if status.shadow:
        told["shadow"] = True
    decision = status.decision
    if decision is not None:
        limit = decision.limit
        told["limit"] = {
            "name": status.limit_name,
            "text": str(limit),
            "amount": limit.amount,
            "period": limit.period_ns / SECOND,
            "burst": limit.burst,
        }
        told["remaining"] = decision.remaining
        told["retry_after"] = decision.retry_after
        told["reset_after"] = decision.reset_after
        if decision.degraded:
            told["degraded"] = True
    return told
