"""Synthetic traffic from one line of text.

    poisson 200/s keys 1000 zipf 1.1 for 1h, burst 50 every 10m

Parts are separated by commas. Each is one stream of requests:

- ``poisson RATE`` or ``steady RATE``: independent arrivals, or evenly spaced ones
- ``burst N every DURATION``: N requests at once, again and again

with options: ``keys N`` (clients; 1 by default for a burst, else 100), ``zipf S`` (the k-th client
sends in proportion to k**-S; without it, all send alike), ``for DURATION`` (the longest part says
how long all of it takes; 1h by default), ``path /login`` and ``method POST``, ``seed N``.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.durations import parse_duration
from penstock.errors import LimitError
from penstock.replay.reading.blocks import BLOCK, Block
from penstock.replay.reading.formats import LogError
from penstock.replay.reading.requests import Requests

SECOND = 1_000_000_000
START = 1_704_067_200 * SECOND  # a Monday, so that calendars and schedules have a date
_RATE = re.compile(r"(\d+(?:\.\d+)?)/(\w+)")
_MOST_REQUESTS = 1_000_000_000


@dataclass(slots=True)
class Stream:
    """One part of the text."""

    kind: str
    rate: float = 0.0  # a second
    burst: int = 0
    every: int = 0
    keys: int = 0
    zipf: float = 0.0
    length: int = 0
    path: str = "/"
    method: str = "GET"
    seed: int = 0

    def times(self, chance: random.Random, length: int) -> Iterator[int]:
        if self.kind == "burst":
            for start in range(0, length, self.every):
                yield from itertools.repeat(start, self.burst)
            return
        gap = SECOND / self.rate
        at = 0.0
        while True:
            at += chance.expovariate(1.0) * gap if self.kind == "poisson" else gap
            if at >= length:
                return
            yield int(at)

    def clients(self, chance: random.Random) -> Iterator[int]:
        if not self.zipf:
            while True:
                yield chance.randrange(self.keys)
        shares = list(itertools.accumulate((k + 1) ** -self.zipf for k in range(self.keys)))
        while True:
            yield bisect.bisect(shares, chance.random() * shares[-1])


def parse_traffic(text: str) -> list[Stream]:
    """The streams that a text describes; `LogError` says what it does not understand."""
    streams = [_stream(part.strip(), text) for part in text.split(",")]
    longest = max(stream.length for stream in streams) or 3600 * SECOND
    for stream in streams:
        stream.length = stream.length or longest
    expected = sum(
        stream.burst * stream.length / stream.every
        if stream.kind == "burst"
        else stream.rate * stream.length / SECOND
        for stream in streams
    )
    if expected > _MOST_REQUESTS:
        raise LogError(f"{text!r} would be {expected:.0f} requests: at most {_MOST_REQUESTS}")
    return streams


def _stream(part: str, text: str) -> Stream:
    words = iter(part.split())
    kind = next(words, "")
    if kind not in ("poisson", "steady", "burst"):
        raise LogError(
            f"{text!r:.200}: a part begins with poisson, steady or burst, not {kind!r:.40}; such"
            ' as "poisson 200/s keys 1000 zipf 1.1 for 1h, burst 50 every 10m"'
        )
    stream = Stream(kind)
    first = next(words, "")
    try:
        if kind == "burst":
            stream.burst = int(first)
            if stream.burst < 1:
                raise ValueError("a burst has at least one request")
        else:
            match = _RATE.fullmatch(first)
            if match is None:
                raise ValueError(f"a rate is written like 200/s, not {first!r}")
            stream.rate = float(match[1]) / (parse_duration(match[2], "per") / SECOND)
            if not stream.rate > 0:
                raise ValueError("a rate is above zero")
        for word in words:
            _option(stream, word, next(words, ""))
    except (ValueError, LimitError) as error:
        raise LogError(f"{part!r:.100}: {error}") from None
    if kind == "burst" and not stream.every:
        raise LogError(f"{part!r:.100}: say how often: burst {stream.burst} every 10m")
    stream.keys = stream.keys or (1 if kind == "burst" else 100)
    return stream


def _option(stream: Stream, name: str, value: str) -> None:
    if name == "keys":
        stream.keys = int(value)
        if not 1 <= stream.keys <= 10_000_000:
            raise ValueError(f"keys is a number from 1 to 10000000, not {value}")
    elif name == "zipf":
        stream.zipf = float(value)
        if not (math.isfinite(stream.zipf) and stream.zipf > 0):
            raise ValueError(f"zipf is a number above 0, not {value}")
    elif name == "for":
        stream.length = parse_duration(value, "for")
    elif name == "every":
        stream.every = parse_duration(value, "every")
    elif name == "seed":
        stream.seed = int(value)
    elif name == "path" and value.startswith("/"):
        stream.path = value
    elif name == "method" and value:
        stream.method = value
    else:
        raise ValueError(
            f"unknown option {name!r} {value!r}: use keys N, zipf S, for 1h, every 10m, path /x,"
            " method GET or seed N"
        )


class Traffic(Requests):
    """Requests of synthetic traffic: the same text gives the same requests."""

    def __init__(self, text: str) -> None:
        super().__init__(["peer", "target", "method", "user"], [])
        self._streams = parse_traffic(text)
        self.notes.append(f"synthetic traffic: {text}")

    def blocks(self) -> Iterator[Block]:
        merged = heapq.merge(
            *(self._requests(at, stream) for at, stream in enumerate(self._streams))
        )
        clients: dict[tuple[int, int], tuple[int, int]] = {}
        block = Block(len(self.words), 0)
        paths = [self.interners[1].number(stream.path.encode()) for stream in self._streams]
        methods = [self.interners[2].number(stream.method.encode()) for stream in self._streams]
        for time, at, client in merged:
            n = block.n
            # Streams with many clients share them; a burst comes from clients of its own.
            whose = at if self._streams[at].kind == "burst" else -1
            numbers = clients.get((whose, client))
            if numbers is None:
                numbers = clients[whose, client] = self._client(whose, client, len(clients) + 1)
            block.times[n] = time
            block.words[0][n], block.words[3][n] = numbers
            block.words[1][n], block.words[2][n] = paths[at], methods[at]
            block.n = n + 1
            if block.n == BLOCK:
                self.lines += BLOCK
                yield block
                block = Block(len(self.words), 0)
        self.lines += block.n
        if block.n:
            yield block

    def _client(self, whose: int, client: int, user: int) -> tuple[int, int]:
        """The numbers of a new client's address and user."""
        address = f"10.{client >> 16 & 255}.{client >> 8 & 255}.{client & 255}"
        if whose >= 0:
            address = f"172.{16 + whose}.{client >> 8 & 255}.{client & 255}"
        return (
            self.interners[0].number(address.encode()),
            self.interners[3].number(f"user-{user}".encode()),
        )

    def _requests(self, at: int, stream: Stream) -> Iterator[tuple[int, int, int]]:
        chance = random.Random(f"{stream.seed} {at}")
        clients = stream.clients(chance)
        for time in stream.times(chance, stream.length):
            yield START + time, at, next(clients)
