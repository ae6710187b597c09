"""A case of what Envoy's rate limit service answers, and words to write cases with.

A case has rules and steps: let time pass, ask, and expect an answer (as a dict with the names
of the .proto file, without default values) or an error (its gRPC status). `run` plays it.
The clock starts 9 seconds into a minute, an hour and a day.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.async_gate import AsyncGate
from penstock.stores.memory import MemoryStore
from penstock.testing import FakeClock

Message = dict[str, Any]
Ask = Callable[[Message], "Message | int"]

# 2023-12-27 00:00:09 UTC: 9 seconds into a day, which is the seventh of a week from the epoch's
# Thursday, and the ninth of a month of 30 and of a year of 365 days.
START = 1_703_635_209
MOST = 4_294_967_295


@dataclass(frozen=True)
class Step:
    request: Message
    expected: Message | int
    wait: float = 0.0


@dataclass(frozen=True)
class Case:
    """``headers``: with RateLimit-* in the answers. ``mode``: the switch for all rules."""

    name: str
    rules: str
    steps: list[Step] = field(default_factory=list)
    headers: bool = False
    mode: str = "enforce"


def make_gate(case: Case) -> tuple[AsyncGate, FakeClock]:
    clock = FakeClock(START * 1_000_000_000)
    gate = AsyncGate.from_rules(case.rules, MemoryStore(clock=clock), clock=clock)
    if case.mode != "enforce":
        gate.switches.mode(case.mode)
    assert isinstance(gate, AsyncGate)
    return gate, clock


def run(case: Case, clock: FakeClock, ask: Ask) -> None:
    for number, step in enumerate(case.steps):
        clock.advance(step.wait)
        answer = ask(step.request)
        assert answer == step.expected, f"step {number}: {step.request}"


# Words for the table -----------------------------------------------------------------------


def descriptor(*pairs: str, **more: Any) -> Message:
    """``descriptor("user=42", hits=3)``"""
    entries = []
    for pair in pairs:
        key, _, value = pair.partition("=")
        entries.append({"key": key, "value": value})
    message: Message = {"entries": entries}
    if "hits" in more:
        message["hits_addend"] = more.pop("hits")
    if more.pop("negative", False):
        message["is_negative_hits"] = True
    if "limit" in more:
        amount, unit = more.pop("limit")
        message["limit"] = {"requests_per_unit": amount, "unit": unit}
    assert not more
    return message


def ask(*descriptors: Message | str, domain: str = "api", hits: int | None = None) -> Message:
    message: Message = {
        "domain": domain,
        "descriptors": [descriptor(d) if isinstance(d, str) else d for d in descriptors],
    }
    if hits is not None:
        message["hits_addend"] = hits
    return message


def status(code: str, remaining: int, amount: int, unit: str, reset: int, name: str) -> Message:
    limit: Message = {"requests_per_unit": amount, "unit": unit, "name": name}
    message: Message = {"code": code, "current_limit": {k: v for k, v in limit.items() if v}}
    if remaining:
        message["limit_remaining"] = remaining
    message["duration_until_reset"] = f"{reset}s"
    return message


def ok(
    remaining: int, amount: int = 3, unit: str = "MINUTE", reset: int = 51, name: str = ""
) -> Message:
    return status("OK", remaining, amount, unit, reset, name)


def over(amount: int = 3, unit: str = "MINUTE", reset: int = 51, name: str = "") -> Message:
    return status("OVER_LIMIT", 0, amount, unit, reset, name)


FREE: Message = {"code": "OK"}
UNLIMITED: Message = {"code": "OK", "limit_remaining": MOST}
DENIED: Message = {"code": "OVER_LIMIT"}


def answer(*statuses: Message, overall: str | None = None, headers: Any = None) -> Message:
    refused = any(each["code"] == "OVER_LIMIT" for each in statuses)
    message: Message = {
        "overall_code": overall or ("OVER_LIMIT" if refused else "OK"),
        "statuses": list(statuses),
    }
    if headers is not None:
        names = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
        message["response_headers_to_add"] = [
            {"key": name, "value": str(value)} for name, value in zip(names, headers, strict=True)
        ]
    return message


def steps(*given: Any) -> list[Step]:
    """Pairs of request and expectation; a number before a pair is a wait in seconds."""
    out = []
    wait = 0.0
    waiting: list[Any] = []
    for each in given:
        if isinstance(each, float):
            wait = each
            continue
        waiting.append(each)
        if len(waiting) == 2:
            out.append(Step(waiting[0], waiting[1], wait))
            wait, waiting = 0.0, []
    assert not waiting
    return out


USER = """
domain: api
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 3}}
"""
