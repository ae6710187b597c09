"""POST /v1/check: may this request go ahead? One check, or many in one request.

::

    {"domain": "api", "descriptors": [{"user": "42"}], "hits": 1}
    {"checks": [{"descriptors": ...}, ...]}

A descriptor is an object of texts, in order; or a list of pairs, if a key occurs twice; or
``{"pairs": {...}, "limit": "5/minute", "hits": 0}``, to override the rules.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any

from penstock.errors import PenstockError
from penstock.rules.deciding.plan import PlanCache
from penstock.rules.deciding.verdict import Descriptor, Verdict
from penstock.service.rls_json import NO_REFUNDS
from penstock.service.service import Service
from penstock.wires.http.check_request import (
    BadCheck,
    CheckRequest,
    NoRefunds,
    TooLarge,
    read_check,
)
from penstock.wires.http.check_response import (
    PlanResponse,
    error_json,
    error_response,
    respond,
    respond_to_all,
    verdict_json,
)
from penstock.wires.http.messages import HttpRequest, HttpResponse, as_error

# In all checks of one request together: each is a decision or more.
MOST_IN_ALL = 1_000
# The event loop gets a turn after this many descriptors.
PART = 50
# Requests whose plans are kept, by their bytes: about 3 kB for one descriptor, up to 4 of them.
MOST_KEPT, LONGEST_KEPT, MOST_PLANNED = 4_096, 512, 4
# Slots for the hashes of requests that were received once; a power of two.
SEEN = 16_384


class CheckApi:
    """The handler of /v1/check. With ``refunds``, clients may give hits back."""

    def __init__(self, service: Service, *, refunds: bool = False) -> None:
        self._service = service
        self._refunds = refunds
        self._plans = PlanCache(MOST_KEPT, LONGEST_KEPT, SEEN)

    def __call__(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        service = self._service
        plan = self._plans.get(request.body, service.gate.planner)
        if plan is not None:
            try:
                decisions = service.hit(plan)
            except PenstockError as error:
                return error_response(error)
            response: PlanResponse | None = plan.attachment
            if response is not None:
                return response.respond(decisions[0], service.now())
            return respond(plan.verdict(decisions), service.now())
        try:
            content = json.loads(request.body or b"null")
        except (ValueError, RecursionError) as error:
            return as_error(400, f"the body is not JSON: {error}")
        try:
            if isinstance(content, dict) and "checks" in content:
                return self._check_many(content["checks"])
            domain, descriptors, hits = self._read(content, "")
            if hits == 1 and len(descriptors) <= MOST_PLANNED and self._plans.wants(request.body):
                self._keep_plan(request.body, domain, descriptors)
            verdict = service.check(domain, descriptors, hits)
        except PenstockError as error:
            return error_response(error)
        if isinstance(verdict, Verdict):
            return self._respond(verdict, domain)
        return self._later(verdict, domain)

    def _respond(self, verdict: Verdict, domain: str | None) -> HttpResponse:
        service = self._service
        warning = service.domain_warning(domain)
        return respond(verdict, service.now(), service.lease(verdict), warning)

    async def _later(self, waiting: Awaitable[Verdict], domain: str | None) -> HttpResponse:
        try:
            return self._respond(await waiting, domain)
        except PenstockError as error:
            return error_response(error)

    def _read(self, content: Any, where: str) -> CheckRequest:
        domain, descriptors, hits = read_check(content, where)
        if not self._refunds and (hits < 0 or any((d.hits or 0) < 0 for d in descriptors)):
            raise NoRefunds(f"{where}hits below 0 {NO_REFUNDS}")
        return domain, descriptors, hits

    def _keep_plan(
        self, body: bytes, domain: str | None, descriptors: Sequence[Descriptor]
    ) -> None:
        """Keep the plan of a request that is repeated, so that it need not be read again."""
        plan = self._service.plan(domain, descriptors)
        if plan is not None:
            if plan.single and plan.items[0][0].limit.soft is None:
                plan.attachment = PlanResponse(plan)
            self._plans.put(body, plan)

    def _check_many(self, checks: Any) -> HttpResponse | Awaitable[HttpResponse]:
        if not isinstance(checks, list) or not checks:
            raise BadCheck(f"checks is a list of 1 to {MOST_IN_ALL} questions")
        if len(checks) > MOST_IN_ALL:
            raise TooLarge(f"checks has {len(checks)} questions, and {MOST_IN_ALL} is the most")
        count = sum([_count(each) for each in checks])
        if count > MOST_IN_ALL:
            raise TooLarge(
                f"all checks together have {count} descriptors, and {MOST_IN_ALL} is the most"
            )
        # All are read before the first is decided: if one is invalid, nothing is counted.
        requests = [self._read(each, f"checks[{at}]: ") for at, each in enumerate(checks)]
        if self._service.gate.store.waits or count > PART:
            return self._check_in_parts(requests)
        return respond_to_all(self._encoded(requests, self._service.check_each(requests)))

    async def _check_in_parts(self, requests: list[CheckRequest]) -> HttpResponse:
        """Give the event loop a turn after each part. A store that waits does so by itself."""
        if self._service.gate.store.waits:
            verdicts: Any = self._service.check_each(requests)
            return respond_to_all(self._encoded(requests, await verdicts))
        results: list[str] = []
        for part in _parts(requests):
            results += self._encoded(part, self._service.check_each(part))
            await asyncio.sleep(0)
        return respond_to_all(results)

    def _encoded(self, requests: list[CheckRequest], verdicts: Any) -> list[str]:
        service, now = self._service, self._service.now()
        return [
            verdict_json(each, now, service.lease(each), service.domain_warning(domain))
            if isinstance(each, Verdict)
            else error_json(each)
            for (domain, _, _), each in zip(requests, verdicts, strict=True)
        ]


def _count(check: Any) -> int:
    """The number of descriptors; 0 for an invalid check, which is reported when it is read."""
    listed = check.get("descriptors") if isinstance(check, dict) else None
    return len(listed) if isinstance(listed, list) else 0


def _parts(requests: Sequence[CheckRequest]) -> Iterator[list[CheckRequest]]:
    part: list[CheckRequest] = []
    count = 0
    for each in requests:
        part.append(each)
        count += len(each[1])
        if count >= PART:
            yield part
            part, count = [], 0
    if part:
        yield part
