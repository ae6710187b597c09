"""`assert_limited`: whether a response is a proper refusal, in any framework."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import isawaitable, iscoroutine
from typing import Any

_LIMIT_FIELDS = (
    "Retry-After",
    "RateLimit-Policy",
    "RateLimit",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
)
# A member of RateLimit: its name in quotes, and its numbers.
_MEMBER = re.compile(r'("(?:[^"\\]|\\.)*");r=(\d+);t=(\d+)')
_POLICY = re.compile(r'("(?:[^"\\]|\\.)*");q=(\d+);w=(\d+)')
_BODY_SHOWN = 200


def assert_limited(response: Any, /, *args: Any, after: int | None = None, **kwargs: Any) -> Any:
    """Assert that a response is a 429 whose fields agree; returns the response.

    ``response`` is one of httpx, Starlette, Flask, Django, REST framework or requests, or a
    function that sends a request: ``assert_limited(client.get, "/search", after=5)`` calls
    ``client.get("/search")`` six times, and asserts that only the last one is refused.
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    if not callable(response) or hasattr(response, "status_code"):
        if after is not None or args or kwargs:
            raise TypeError(
                "after and arguments are for a function that sends requests, such as client.get;"
                f" this is {_kind(response)}"
            )
        _check(response, "")
        return response
    if after is None:
        after = 0
    if type(after) is not int or after < 0:
        raise ValueError(f"after is a number of requests of at least 0, not {after!r:.100}")
    for number in range(1, after + 1):
        early = _send(response, args, kwargs)
        if early.status_code == 429:
            _fail(early, f"request {number} was limited, and not only number {after + 1}")
    last = _send(response, args, kwargs)
    _check(last, f"request {after + 1}: ")
    return last


def _send(send: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    response = send(*args, **kwargs)
    if isawaitable(response):
        if iscoroutine(response):
            response.close()
        raise TypeError(
            "assert_limited cannot await: send the requests yourself, and pass it the response,"
            " as in assert_limited(await client.get('/'))"
        )
    _status_of(response)
    return response


def _check(response: Any, which: str) -> None:
    """Fail with the first thing that is wrong."""
    __tracebackhide__ = True
    status = _status_of(response)
    if status != 429:
        _fail(response, f"{which}the status is {status}, not 429")
    wait = response.headers.get("Retry-After")
    if wait is None:
        _fail(response, f"{which}there is no Retry-After")
    if not re.fullmatch(r"[1-9]\d*", wait):
        _fail(response, f"{which}Retry-After is {wait!r}, not a whole number of seconds above 0")
    problem = _disagreement(response.headers, int(wait))
    if problem is not None:
        _fail(response, f"{which}{problem}")


def _disagreement(headers: Any, wait: int) -> str | None:
    """What the other fields say that does not fit a refusal; those that are missing say nothing."""
    remaining = headers.get("X-RateLimit-Remaining")
    if remaining is not None and remaining != "0":
        return f"X-RateLimit-Remaining is {remaining!r}, but the request was refused"
    field, policies = headers.get("RateLimit"), headers.get("RateLimit-Policy")
    if field is None:
        return None
    members = _MEMBER.findall(field)
    if not any((left, int(reset)) == ("0", wait) for _, left, reset in members):
        return f"RateLimit has no policy with r=0 and t={wait}, but Retry-After is {wait}"
    if policies is not None:
        unknown = {name for name, *_ in members} - {name for name, *_ in _POLICY.findall(policies)}
        if unknown:
            return f"RateLimit names {', '.join(sorted(unknown))}, but RateLimit-Policy does not"
    return None


def _fail(response: Any, problem: str) -> None:
    """Say what is wrong, and what was seen."""
    __tracebackhide__ = True
    lines = [problem, f"status: {response.status_code}"]
    for name in _LIMIT_FIELDS:
        value = response.headers.get(name)
        if value is not None:
            lines.append(f"{name}: {value}")
    raise AssertionError("\n".join([*lines, f"body: {_body_of(response)}"]))


def _body_of(response: Any) -> str:
    try:
        body = response.get_data() if hasattr(response, "get_data") else response.content
    except Exception as error:  # a stream is not read for this
        return f"({type(error).__name__})"
    return repr(bytes(body)[:_BODY_SHOWN])


def _status_of(response: Any) -> int:
    if not hasattr(response, "status_code") or not hasattr(response, "headers"):
        raise TypeError(f"a response has status_code and headers; this is {_kind(response)}")
    status: int = response.status_code
    return status


def _kind(value: object) -> str:
    return f"{type(value).__name__}: {value!r:.100}"
