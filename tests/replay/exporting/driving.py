"""Requests to a real server, with the times at which they were sent, and Penstock as the judge.

A server decides at some time between the moment before a request is sent and the moment after its
response has come. Penstock decides for both moments. If it decides alike, the server must, too. If
not, the request is not compared: it was sent too near to the moment at which a unit came back.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

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


def judge(rules: RuleSet, asked: Iterable[Asked], slack: int = SLACK) -> Result:
    """Compare what a server did with what Penstock does under these rules."""
    clock, settings, result = ReplayClock(), Settings(), Result()
    gate = None
    for number, each in enumerate(asked):
        if gate is None:
            clock.time = each.before
            gate = settings.gate(rules, clock)
            of = settings.descriptors(gate)
        descriptors = of.of(LogRequest({"method": "GET", **each.request}.get))
        answers = []
        for moment in (each.before - slack, each.after + slack):
            clock.time = moment
            looks = [type(pairs)(pairs.pairs, hits=0) for pairs in descriptors]
            looked = gate.check(*looks) if looks else None
            # A look at a closed rule is refused.
            answers.append(
                looked is None
                or (looked.allowed and (looked.decision is None or looked.decision.remaining >= 1))
            )
        admitted = each.admitted
        if answers[0] == answers[1]:
            result.compared += 1
            admitted = answers[0]
            result.admitted += admitted
            if admitted != each.admitted:
                result.differ.append((number, each))
        else:
            result.unclear += 1
        if admitted and descriptors:
            clock.time = each.after + slack if answers[0] != answers[1] else each.after
            gate.check(*descriptors)
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
    """The most admitted requests in any half-open window."""
    times = [each.after for each in asked if each.admitted]
    most = start = 0
    for at, moment in enumerate(times):
        while moment - times[start] >= window:
            start += 1
        most = max(most, at - start + 1)
    return most
