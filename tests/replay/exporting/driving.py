"""Requests to a real server, with the times at which they were sent, and Penstock as the judge.

A server decides at some time between the moment before a request is sent and the moment after its
response has come. Penstock decides twice: strictly, as if every request had been counted as late as
can be and this one came as early, and leniently, the other way round. What both admit, the server
must admit, and what both refuse, it must refuse. Other requests are not compared: they came too
near to the moment at which a unit came back.
"""

from __future__ import annotations

import contextlib
import http.client
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from penstock import Descriptor, Gate
from penstock.replay.deciding.log_request import LogRequest
from penstock.replay.deciding.settings import ReplayClock, Settings
from penstock.rules.model import RuleSet

MILLISECOND = 1_000_000
# Servers look at the clock once for several events, and count in milliseconds.
SLACK = 3 * MILLISECOND


@dataclass(frozen=True)
class Asked:
    """A request, when it was sent and answered, and whether it was admitted."""

    request: dict[str, str]
    before: int
    after: int
    admitted: bool


@dataclass
class Result:
    compared: int = 0
    admitted: int = 0
    unclear: int = 0
    differ: list[tuple[int, Asked]] = field(default_factory=list)


class Judge:
    """Penstock's own gate, on a clock that is set for each question."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules
        self._clock, self._settings = ReplayClock(), Settings()
        self._gate: Gate | None = None

    def descriptors(self, request: dict[str, str], now: int) -> list[Descriptor]:
        if self._gate is None:
            self._clock.time = now
            self._gate = self._settings.gate(self._rules, self._clock)
            self._of = self._settings.descriptors(self._gate)
        return self._of.of(LogRequest({"method": "GET", **request}.get))

    def admits(self, descriptors: list[Descriptor], now: int) -> bool:
        """Whether it would, at this time; nothing is counted."""
        if not descriptors:
            return True
        assert self._gate is not None
        self._clock.time = now
        look = self._gate.check(*(Descriptor(each.pairs, hits=0) for each in descriptors))
        # A look at a closed rule is refused.
        return look.allowed and (look.decision is None or look.decision.remaining >= 1)

    def count(self, descriptors: list[Descriptor], now: int) -> None:
        """Count it at this time, or as soon after it as there is room."""
        assert self._gate is not None
        for _ in range(10):
            self._clock.time = now
            verdict = self._gate.check(*descriptors)
            if verdict.allowed:
                return
            assert verdict.retry_after is not None
            now += math.ceil(verdict.retry_after * 1e9)
        raise AssertionError("there is no room")


def judge(rules: RuleSet, asked: Iterable[Asked], slack: int = SLACK) -> Result:
    """Compare what a server did with what Penstock does under these rules."""
    strict, lenient, result = Judge(rules), Judge(rules), Result()
    for number, each in enumerate(asked):
        earliest, latest = each.before - slack, each.after + slack
        descriptors = strict.descriptors(each.request, earliest)
        lenient.descriptors(each.request, earliest)
        admitted = each.admitted
        if strict.admits(descriptors, earliest):
            expected: bool | None = True
        else:
            expected = None if lenient.admits(descriptors, latest) else False
        if expected is None:
            result.unclear += 1
        else:
            result.compared += 1
            result.admitted += expected
            admitted = expected
            if expected != each.admitted:
                result.differ.append((number, each))
        if admitted and descriptors:
            strict.count(descriptors, latest)
            lenient.count(descriptors, earliest)
    return result


def gaps(seed: int, unit: float) -> Iterator[float]:
    """Seconds to wait before each request: bursts, pauses, and a pace near the limit."""
    chance = random.Random(seed)
    while True:
        kind = chance.random()
        if kind < 0.15:
            yield chance.uniform(2, 8) * unit
        for _ in range(chance.randrange(3, 20)):
            yield 0.0 if kind < 0.4 else chance.uniform(0.2, 1.6) * unit


def drive(
    send: Callable[[dict[str, str]], bool],
    requests: Iterable[dict[str, str]],
    unit: float,
    seed: int = 7,
) -> list[Asked]:
    """Send requests at an uneven pace; ``unit`` is about the time in which one may come."""
    asked = []
    for request, gap in zip(requests, gaps(seed, unit), strict=False):
        time.sleep(gap)
        before = time.time_ns()
        admitted = send(request)
        asked.append(Asked(request, before, time.time_ns(), admitted))
    return asked


class Clients:
    """Sends requests from the address that each names as its ``peer``, on kept connections."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._connections: dict[str, http.client.HTTPConnection] = {}
        self.statuses: dict[int, int] = {}
        self.answer: http.client.HTTPResponse

    def __call__(self, request: dict[str, str]) -> bool:
        status = self.status(request)
        assert status in (200, 405, 429), status  # nginx knows no PUT for files
        return status != 429

    def status(self, request: dict[str, str]) -> int:
        peer = request["peer"]
        connection = self._connections.get(peer)
        if connection is None:
            host = "::1" if ":" in peer else "127.0.0.1"
            connection = self._connections[peer] = http.client.HTTPConnection(
                host, self.port, timeout=60, source_address=(peer, 0)
            )
        headers = {
            name.removeprefix("header:"): value
            for name, value in request.items()
            if name.startswith("header:")
        }
        for again in (True, False):
            try:
                method, target = request.get("method", "GET"), request.get("target", "/")
                connection.putrequest(method, target, skip_host="host" in headers)
                for name, value in headers.items():
                    connection.putheader(name, value)
                connection.endheaders()
                answer = connection.getresponse()
                break
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                connection.close()  # the server keeps connections for some requests only
                if not again:
                    raise
        answer.read()
        self.answer = answer
        self.statuses[answer.status] = self.statuses.get(answer.status, 0) + 1
        return answer.status

    def close(self) -> None:
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                connection.close()


def most_in_window(asked: Iterable[Asked], window: int) -> int:
    """The most admitted requests that certainly came within less than a window."""
    admitted = [each for each in asked if each.admitted]
    most = start = 0
    for at, each in enumerate(admitted):
        while each.after - admitted[start].before >= window:
            start += 1
        most = max(most, at - start + 1)
    return most
