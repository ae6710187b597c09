"""POST /v1/release: a request that /v1/check allowed has ended, and its slots are free.

::

    {"lease": "zV4x..."}        what /v1/check answered as lease
    {"released": true}          the answer; false if it was released before, or has expired
"""

from __future__ import annotations

import json
from collections.abc import Awaitable

from penstock.errors import PenstockError
from penstock.service.service import Service
from penstock.wires.http.check_response import error_response
from penstock.wires.http.messages import HttpRequest, HttpResponse, as_error, as_json


class ReleaseApi:
    """The handler."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def __call__(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        try:
            content = json.loads(request.body or b"null")
        except (ValueError, RecursionError) as error:
            return as_error(400, f"the body is not JSON: {error}")
        lease = content.get("lease") if isinstance(content, dict) else None
        if not isinstance(lease, str) or len(content) != 1:
            return as_error(400, 'the body is {"lease": "..."}, with a lease from /v1/check')
        try:
            released = self._service.release(lease)
        except PenstockError as error:
            return error_response(error)
        return _respond(released) if isinstance(released, bool) else _later(released)


def _respond(released: bool) -> HttpResponse:
    return as_json({"released": released})


async def _later(waiting: Awaitable[bool]) -> HttpResponse:
    try:
        return _respond(await waiting)
    except PenstockError as error:
        return error_response(error)
