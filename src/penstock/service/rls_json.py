"""Envoy's rate limit messages as JSON, for clients without gRPC.

::

    {"domain": "api", "descriptors": [{"entries": [{"key": "user", "value": "42"}]}]}
    {"overallCode": "OK", "statuses": [{"code": "OK", "limitRemaining": 9, ...}]}

It is the JSON of protobuf (proto3), read as strictly as Envoy's service does: names are in
lowerCamelCase or as in the .proto file, and may not repeat; numbers may be strings; null means
that a field is absent; unknown names are errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeVar

from penstock.service.dynamic_metadata import as_json
from penstock.service.envoy_constants import (
    CODES,
    MOST_DESCRIPTORS,
    MOST_ENTRIES,
    OVER_LIMIT,
    U32,
    U64,
    UNITS,
)
from penstock.service.grpc_status import INVALID_ARGUMENT, PERMISSION_DENIED, GrpcError
from penstock.service.rls_general import Response
from penstock.service.rls_request import RateLimitRequest, RequestedDescriptor
from penstock.service.rls_response import Row
from penstock.service.service import Service

T = TypeVar("T")
# Otherwise anyone who can reach the port could give hits back.
NO_REFUNDS = (
    "gives back what was used, which is not allowed here: start the service with --http-refunds,"
    " or use POST /v1/counters/refund of the admin API"
)
StatusAndBody = tuple[int, bytes]
_UNIT_NUMBERS = {name: number for number, name in UNITS.items()}
# Enough for the largest number that any field holds, with some zeros after the point.
_LONGEST_NUMBER = 40
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class _Object(list[tuple[str, Any]]):
    """A JSON object as received: its names in order, with duplicates."""


def respond(
    service: Service, body: bytes, *, refunds: bool = False
) -> StatusAndBody | Awaitable[StatusAndBody]:
    """The status and the body for a request to ``/json``.

    200, 429 if over the limit, 400, or 403 for hits that are given back without ``refunds``.
    """
    try:
        request = read_request(body)
        if not refunds and any(descriptor.negative for descriptor in request.descriptors):
            return 403, _error_body(GrpcError(PERMISSION_DENIED, f"isNegativeHits {NO_REFUNDS}"))
        response = service.answer(request)
    except GrpcError as error:
        return 400, _error_body(error)
    return _respond(response) if isinstance(response, Response) else _respond_async(response)


async def _respond_async(response: Awaitable[Response]) -> StatusAndBody:
    try:
        return _respond(await response)
    except GrpcError as error:
        return 400, _error_body(error)


def _respond(response: Response) -> StatusAndBody:
    return 429 if response.overall == OVER_LIMIT else 200, write_response(response)


def _error_body(error: GrpcError) -> bytes:
    return json.dumps({"code": error.code, "message": error.message}).encode()


# Requests ----------------------------------------------------------------------------------


def read_request(body: bytes) -> RateLimitRequest:
    """From JSON; `GrpcError` says what is wrong, and where."""
    try:
        message = json.loads(
            body.decode("utf-8"), object_pairs_hook=_Object, parse_float=_number, parse_int=_number
        )
    except RecursionError:
        raise _wrong("", "is nested too deeply") from None
    except ValueError as error:
        raise _wrong("", f"is not JSON: {error}") from None
    request = RateLimitRequest()
    entries = 0
    for name, value, where in _fields(message, "", ("domain", "descriptors", "hitsAddend")):
        if name == "domain":
            request.domain = _text(value, where)
        elif name == "hitsAddend":
            request.hits = _whole(value, U32, where)
        else:
            request.descriptors = _list(value, where, _descriptor)
            entries = sum([len(descriptor.pairs) for descriptor in request.descriptors])
    if len(request.descriptors) > MOST_DESCRIPTORS or entries > MOST_ENTRIES:
        raise _wrong("descriptors", f"has more than {MOST_DESCRIPTORS}, or too many entries")
    return request


def _descriptor(value: Any, where: str) -> RequestedDescriptor:
    descriptor = RequestedDescriptor()
    names = ("entries", "limit", "hitsAddend", "isNegativeHits")
    for name, inner, at in _fields(value, where, names):
        if name == "entries":
            descriptor.pairs = tuple(_list(inner, at, _entry))
        elif name == "limit":
            descriptor.amount = 0
            for part, number, place in _fields(inner, at, ("requestsPerUnit", "unit")):
                if part == "unit":
                    descriptor.unit = _unit(number, place)
                else:
                    descriptor.amount = _whole(number, U32, place)
        elif name == "hitsAddend":
            descriptor.hits = _whole(inner, U64, at)
        elif inner is True or inner is False:
            descriptor.negative = inner
        else:
            raise _wrong(at, "is true or false")
    return descriptor


def _entry(value: Any, where: str) -> tuple[str, str]:
    texts = {name: _text(text, at) for name, text, at in _fields(value, where, ("key", "value"))}
    return texts.get("key", ""), texts.get("value", "")


def _fields(value: Any, where: str, known: tuple[str, ...]) -> list[tuple[str, Any, str]]:
    """The name, value and path of each field of an object, without those that are null."""
    if not isinstance(value, _Object):
        raise _wrong(where, "is an object")
    fields = []
    seen = set()
    for spelling, inner in value:
        name = _spellings(known).get(spelling)
        at = f"{where}.{spelling:.50}" if where else f"{spelling:.50}"
        if name is None:
            raise _wrong(at, f"is no field here: there are {', '.join(known)}")
        if name in seen:
            raise _wrong(at, "is there twice")
        seen.add(name)
        if inner is not None:
            fields.append((name, inner, at))
    return fields


def _list(value: Any, where: str, read: Callable[[Any, str], T]) -> list[T]:
    if not isinstance(value, list) or isinstance(value, _Object):
        raise _wrong(where, "is a list")
    return [read(item, f"{where}[{index}]") for index, item in enumerate(value)]


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(where, "is a text")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise _wrong(where, "has half of a surrogate pair") from None
    return value


def _whole(value: Any, most: int, where: str) -> int:
    """A number, or a string with one."""
    if isinstance(value, str):
        value = _number(value)
    if not isinstance(value, Decimal) or not 0 <= value <= most or value != int(value):
        raise _wrong(where, f"is a whole number from 0 to {most}")
    return int(value)


def _unit(value: Any, where: str) -> int:
    if isinstance(value, Decimal):
        return _whole(value, 2**31 - 1, where)
    number = _UNIT_NUMBERS.get(value) if isinstance(value, str) else None
    if number is None:
        raise _wrong(where, f"is one of {', '.join(_UNIT_NUMBERS)}")
    return number


def _number(text: str) -> Decimal:
    """A number that no field can hold becomes -1, which is out of range, too."""
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return Decimal(-1)
    try:
        return Decimal(text)
    except ArithmeticError:  # the exponent is out of bounds
        return Decimal(-1)


@lru_cache(16)
def _spellings(known: tuple[str, ...]) -> dict[str, str]:
    """Names by each of their spellings: in lowerCamelCase, and as in the .proto file."""
    snake = {re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", name): name for name in known}
    return {**snake, **{name: name for name in known}}


def _wrong(where: str, what: str) -> GrpcError:
    return GrpcError(INVALID_ARGUMENT, f"{where or 'the body'} {what}")


# Answers -----------------------------------------------------------------------------------


def write_response(response: Response) -> bytes:
    message: dict[str, Any] = {
        "overallCode": CODES[response.overall],
        "statuses": [_status(row) for row in response.rows],
    }
    if response.headers:
        message["responseHeadersToAdd"] = [
            {"key": name, "value": value} for name, value in response.headers
        ]
    if response.metadata is not None:
        message["dynamicMetadata"] = as_json(response.metadata)
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _status(row: Row) -> dict[str, Any]:
    status: dict[str, Any] = {"code": CODES[row.code]}
    if row.limit is not None:
        limit = {
            "name": row.limit.name,
            "requestsPerUnit": row.limit.amount,
            "unit": UNITS[row.limit.unit] if row.limit.unit else "",
        }
        status["currentLimit"] = {name: value for name, value in limit.items() if value}
    if row.remaining:
        status["limitRemaining"] = row.remaining
    if row.reset >= 0:
        status["durationUntilReset"] = f"{row.reset}s"
    return status
