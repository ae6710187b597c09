"""HTTP responses: the status, the headers (``Retry-After`` too) and the body of a 429. Pure.

Every limit that decided is a policy with a name, in the fields of the IETF draft::

    RateLimit-Policy: "default";q=100;w=60      100 in 60 seconds
    RateLimit: "default";r=42;t=35              42 are left; more in 35 seconds

and in the older fields, for the strictest limit alone::

    X-RateLimit-Limit: 100
    X-RateLimit-Remaining: 42
    X-RateLimit-Reset: 1767225635               seconds since 1970

``q`` and ``X-RateLimit-Limit`` are what may be taken at once, and ``w`` is the time in which
that refills: for a bucket of ``10/second burst 30`` they are 30 and 3. `penstock.numbers` says
what the numbers mean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from penstock import numbers
from penstock.decision import Decision
from penstock.limits import Limit
from penstock.numbers import reset_of, whole_seconds

Header = tuple[str, str]
# A limit's name, and what it decided.
NamedDecision = tuple[str, Decision]

IETF, LEGACY, BOTH, NONE = "ietf", "legacy", "both", "none"
FIELDS = (BOTH, IETF, LEGACY, NONE)
NAMES = (
    "RateLimit-Policy",
    "RateLimit",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
)
# Of more policies than this only the strictest are sent: some proxies refuse long headers.
MOST_POLICIES = 8

# On the response of a fallback.
FALLBACK = ("X-RateLimit-Fallback", "true")
JSON = "application/json"
PROBLEM = "application/problem+json"
# Types of problem details (RFC 9457).
_TYPES = "https://iana.org/assignments/http-problem-types#"
QUOTA_EXCEEDED = _TYPES + "quota-exceeded"
REDUCED_CAPACITY = _TYPES + "temporary-reduced-capacity"
ABNORMAL_USAGE = _TYPES + "abnormal-usage-detected"
_NOT_IN_STRINGS = re.compile(r'[^\x20-\x7e]|["\\]')


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response."""

    status: int
    headers: list[Header]
    body: bytes = b""


def check_fields(fields: object) -> str:
    if fields not in FIELDS:
        styles = ", ".join(map(repr, FIELDS))
        raise ValueError(f"fields is one of {styles}, not {fields!r:.100}")
    return str(fields)


# Headers -----------------------------------------------------------------------------------


def fields(decisions: Sequence[NamedDecision], now: float, style: str = BOTH) -> list[Header]:
    """The headers of these limits, on every response. ``now`` is seconds since 1970."""
    if not decisions or style == NONE:
        return []
    if len(decisions) > 1:
        decisions = strictest_first(decisions)
    headers: list[Header] = []
    if style != LEGACY:
        headers.append(("RateLimit-Policy", ", ".join([policy(n, d.limit) for n, d in decisions])))
        headers.append(("RateLimit", ", ".join([standing(n, d, now) for n, d in decisions])))
    if style != IETF:
        decision = decisions[0][1]
        headers.append(("X-RateLimit-Limit", quota(decision.limit)[0]))
        headers.append(("X-RateLimit-Remaining", str(decision.shown_remaining())))
        headers.append(("X-RateLimit-Reset", str(ceil(now) + reset_of(decision, now))))
    return headers


@lru_cache(4096)
def policy(name: str, limit: Limit) -> str:
    """One member of ``RateLimit-Policy``."""
    amount, window = quota(limit)
    return f"{quoted(name)};q={amount};w={window}"


def standing(name: str, decision: Decision, now: float) -> str:
    """One member of ``RateLimit``."""
    return f"{quoted(name)};r={decision.shown_remaining()};t={reset_of(decision, now)}"


def retry_after(decisions: Sequence[NamedDecision]) -> int | None:
    """Whole seconds until all would pass; None if no waiting helps."""
    waits = [decision._retry for _, decision in decisions if not decision.allowed]
    return None if not waits or min(waits) < 0 else max(1, whole_seconds(max(waits)))


def strictest_first(decisions: Sequence[NamedDecision]) -> list[NamedDecision]:
    """Those that refused, by the longest wait; then the others, by the least remaining."""
    forever = 2**63
    ranked = sorted(
        decisions,
        key=lambda each: (
            each[1].allowed,
            each[1].remaining
            if each[1].allowed
            else -(each[1]._retry if each[1]._retry >= 0 else forever),
        ),
    )
    seen: dict[str, NamedDecision] = {}
    for name, decision in ranked:
        seen.setdefault(name, (name, decision))
    return list(seen.values())[:MOST_POLICIES]


@lru_cache(4096)
def quoted(name: str) -> str:
    """As a string of RFC 9651, which has printable ASCII only."""
    return f'"{_NOT_IN_STRINGS.sub(_escape, name)}"'


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    if char in '"\\':
        return "\\" + char
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


@lru_cache(4096)
def quota(limit: Limit) -> tuple[str, int]:
    """How much may be taken at once, as text, and the whole seconds in which it refills."""
    amount, window = numbers.quota(limit)
    return str(amount), max(1, whole_seconds(window))


# Refusals ----------------------------------------------------------------------------------


def refusal(
    decisions: Sequence[NamedDecision],
    now: float,
    style: str = BOTH,
    accept: str = "",
    denied: bool = False,
) -> Answer:
    """The response to a refused request: 429, or 403 for a deny list."""
    if denied:
        return _answer(403, [], "Forbidden", None, accept, {"type": ABNORMAL_USAGE})
    after = retry_after(decisions)
    refused = [(name, decision) for name, decision in decisions if not decision.allowed]
    degraded = any(decision.degraded for _, decision in refused)
    problem = {
        "type": REDUCED_CAPACITY if degraded else QUOTA_EXCEEDED,
        "violated-policies": [name for name, _ in strictest_first(refused)],
    }
    headers = fields(decisions, now, style)
    return _answer(429, headers, "Rate limit exceeded", after, accept, problem)


def unavailable(status: int, error: str, after: int | None = None, accept: str = "") -> Answer:
    """For a service that cannot respond: no slot in time, an open circuit."""
    return _answer(status, [], error, after, accept, {"type": REDUCED_CAPACITY})


def bad_request(error: str, accept: str = "") -> Answer:
    """For a request whose path is ambiguous."""
    return _answer(400, [], error, None, accept, {"type": "about:blank"})


def deferred(
    location: str, decisions: Sequence[NamedDecision], now: float, style: str = BOTH
) -> Answer:
    """For a request that is kept for later: 202, and where to ask for the result."""
    body = {"status": "deferred", "location": location, "retry_after": retry_after(decisions)}
    headers = [("Location", location), ("Content-Type", JSON), *fields(decisions, now, style)]
    return Answer(202, headers, json.dumps(body).encode())


def _answer(
    status: int,
    headers: Iterable[Header],
    error: str,
    after: int | None,
    accept: str,
    problem: Mapping[str, object],
) -> Answer:
    waits = [] if after is None else [("Retry-After", str(after))]
    if wants_problem(accept):
        kind = PROBLEM
        content = {"type": problem["type"], "title": error, "status": status, **problem}
    else:
        kind, content = JSON, {"error": error}
    if status not in (400, 403):
        content["retry_after"] = after
    # A refusal must not be reused for the next request, or for another client.
    all_headers = [("Content-Type", kind), ("Cache-Control", "no-store"), *waits, *headers]
    return Answer(status, all_headers, json.dumps(content).encode())


@lru_cache(256)
def wants_problem(accept: str) -> bool:
    """Whether problem details (RFC 9457) are accepted by name, and plain JSON is not preferred."""
    weights = {PROBLEM: 0.0, JSON: 0.0}
    for part in accept.lower().split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        if kind in weights:
            weights[kind] = _weight(parameters)
    return weights[PROBLEM] > 0 and weights[PROBLEM] >= weights[JSON]


def _weight(parameters: Iterable[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0
