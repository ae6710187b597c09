"""Throws broken HTTP at both readers, the service's and the proxy's: they must bear it, and agree.

    python tests/wires/http/fuzz.py --count 100000     or --minutes 10
    python tests/wires/http/fuzz.py --only 4711        once more what was found before

An input is a few requests on one connection (bodies of both kinds, chunk extensions, trailers,
upgrades, expectations) in which bytes or lines were dropped, doubled, moved or made very long; it
arrives in pieces of any size. Whatever it is, nothing may be raised, what is held is bounded,
and the requests are the same however they arrive, and whoever reads them: a request that one
sees and the other does not is a request that was smuggled.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # as pytest does; this is run alone, too

from penstock.proxy.limits import ProxyLimits
from penstock.proxy.reader import RequestReader as ProxyReader
from penstock.wires.http.framing import AROUND_A_CHUNK, MOST_BLANK, BadMessage
from penstock.wires.http.limits import HttpLimits
from penstock.wires.http.messages import HttpRequest
from penstock.wires.http.reader import RequestReader

# So that inputs come to the bounds, and beyond.
NARROW = HttpLimits(url=200, headers=500, header_count=10, body=3_000)
POST = b"POST /a?b HTTP/1.1\r\nHost: x\r\n"
UPGRADE = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
INNER = b"GET /inner HTTP/1.1\r\nHost: x\r\n\r\n"
SEEDS = [
    b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n\r\n",
    b"GET /old HTTP/1.0\r\n\r\n",
    b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    POST + b"Content-Length: 3\r\n\r\nabc",
    POST + b"Content-Length: %d\r\n\r\n" % len(INNER) + INNER,
    POST + CHUNKED + b"\r\n3\r\nabc\r\n0\r\n\r\n",
    POST + CHUNKED + b"\r\n3;a=b\r\nabc\r\nA;c=\"d e\"\r\n0123456789\r\n0\r\nT: u\r\nV: w\r\n\r\n",
    POST + CHUNKED + b"\r\n%x\r\n%b\r\n0\r\nHost: y\r\nExpect: z\r\n\r\n" % (len(INNER), INNER),
    POST + CHUNKED + b"\r\n0\r\n" + b"T: u\r\n" * 9 + b"\r\n",
    POST + UPGRADE + b"\r\n",
    POST + UPGRADE + b"Content-Length: %d\r\n\r\n" % len(INNER) + INNER,
    POST + UPGRADE + CHUNKED + b"\r\n%x\r\n%b\r\n0\r\nT: u\r\n\r\n" % (len(INNER), INNER),
    POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
    b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]  # fmt: skip
WORDS = [
    b"\r\n", b"\n", b"\r", b" ", b"\t", b"\0", b":", b";", b"0\r\n", b"0\r\n\r\n", b"-1", b"0x",
    b"Host: y\r\n", b"Content-Length: 3\r\n", CHUNKED, UPGRADE, INNER, b"T: u\r\n", b"HTTP/0.9",
    b"Transfer-Encoding:\r\n chunked\r\n", b"99999999999999999999", b"Connection: close\r\n",
]  # fmt: skip
# Bytes that are taken before a request is whole, or refused, beside those of its body: empty lines,
# a head, trailers. What comes at once may be so much more.
LARGEST_PIECE = 400
MOST_AROUND = MOST_BLANK + NARROW.url + 2 * NARROW.headers + 3 * LARGEST_PIECE
Seen = list[tuple[str, str, bytes]]


class Found(Exception):
    """Something that a reader does not bear, or that the two see differently."""


def make(number: int) -> tuple[bytes, random.Random]:
    """Input ``number``, always the same, and dice for how it arrives."""
    dice = random.Random(number)
    data = bytearray(b"".join(dice.choices(SEEDS, k=dice.randint(1, 4))))
    for _ in range(dice.choice([0, 1, 1, 2, 4])):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(6):
            case 0:
                data[at:at] = dice.choice(WORDS)
            case 1:
                del data[at : at + dice.randint(1, 8)]
            case 2 if at < len(data):
                data[at] = dice.randrange(256)
            case 3:
                data[at:at] = data[dice.randrange(len(data) + 1) :][: dice.randint(1, 60)]
            case 4:  # a line that hardly ends, or many of them
                data[at:at] = dice.choice([b"a", b"a: b\r\n", b";a", b"\r\n"]) * 8_000
            case _:
                del data[at:]
        if not data:
            data += SEEDS[0]
    return bytes(data), dice


class ByService:
    """What the service's reader sees."""

    def __init__(self) -> None:
        self.seen: Seen = []
        self.status = 0
        self.too_much = False
        self.around = 0
        self._came = 0
        self._reader = RequestReader(self, NARROW)

    def begun(self) -> None: ...
    def expected(self) -> None: ...

    def whole(self, request: HttpRequest) -> None:
        self._came = 0
        self.seen.append((request.method, f"{request.path}?{request.query}", request.body))
        if not request.keep_alive:
            self.status = self.status or 200

    def put(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
        except BadMessage as error:
            self.status = self.status or error.status
            self.too_much = error.status in (413, 431) or "empty lines" in str(error)
        if self._reader.reading is None and self.seen:
            self._came = 0
            return
        self._came += len(data)
        pieces = self._reader._pieces
        around = self._came - len(self._reader._body) - AROUND_A_CHUNK * pieces
        self.around = max(self.around, around)


class Exchange:
    """Stands where the proxy's would."""

    def __init__(self, owner: ByProxy, request: Any, keeps: bool) -> None:
        self.owner, self.request, self.keeps = owner, request, keeps
        self.received = 0
        self._body = b""

    def body(self, piece: bytes) -> None:
        self.received += len(piece)
        self._body += piece

    def body_end(self) -> None:
        if not self.owner.status:
            path, _, query = self.request.target.decode("latin-1").partition("?")
            self.owner.seen.append((self.request.method, f"{path}?{query}", self._body))
        if not self.keeps:
            self.owner.status = self.owner.status or 200
            self.owner.reader.close()


class ByProxy:
    """What the proxy's reader sees."""

    peer = "127.0.0.1"
    scheme = "http"
    stops = False

    def __init__(self) -> None:
        self.seen: Seen = []
        self.status = 0
        limits = ProxyLimits(client=NARROW, upgrades=frozenset())
        self.reader = ProxyReader(self, limits)  # type: ignore[arg-type]  # as far as it looks

    def begun(self, request: Any, keeps: bool) -> Any:
        return Exchange(self, request, keeps)

    def refused(self, error: BadMessage) -> None:
        self.status = self.status or error.status
        self.reader.close()

    def put(self, data: bytes) -> None:
        self.reader.put(data)


def read(kind: Any, data: bytes, sizes: Callable[[], int]) -> Any:
    """All of it, in pieces, until it is refused."""
    reader = kind()
    at = 0
    while at < len(data) and not reader.status:
        size = sizes()
        reader.put(data[at : at + size])
        at += size
    return reader


def throw(number: int) -> None:
    data, dice = make(number)
    whole = read(ByService, data, lambda: len(data))
    pieces = read(ByService, data, lambda: dice.choice([1, 2, 7, 50, LARGEST_PIECE]))
    proxy = read(ByProxy, data, lambda: dice.choice([1, 7, 50, 4_000]))
    if pieces.around > MOST_AROUND:
        raise Found(f"{pieces.around} bytes were taken, and nothing came of them")
    # How much is too much may depend on how it comes; what a request is may not.
    count = min(len(whole.seen), len(pieces.seen))
    if whole.seen[:count] != pieces.seen[:count]:
        raise Found("what comes in pieces is read differently")
    if len(whole.seen) != len(pieces.seen) and not pieces.too_much:
        raise Found(f"{whole.seen} at once, {pieces.seen} in pieces")
    # The proxy refuses more, and has no bound for bodies: but never sees another request.
    common = min(len(pieces.seen), len(proxy.seen))
    if pieces.seen[:common] != proxy.seen[:common]:
        raise Found(f"{pieces.seen} in the service, {proxy.seen} in the proxy")
    if len(proxy.seen) > len(pieces.seen) and not pieces.too_much:
        raise Found(f"the proxy sees more: {proxy.seen[common:]}, and not {pieces.status}")


async def run(
    count: int | None, until: float, start: int = 0, tell: Callable[[int], None] | None = None
) -> int:
    """Inputs from ``start`` on; how many it were. `Found` names the input."""
    number = start
    while (count is None or number < start + count) and time.monotonic() < until:
        before = time.process_time()
        try:
            throw(number)
        except Exception as error:
            raise Found(f"input {number}: {error!r}") from error
        if time.process_time() - before > 2.0:
            raise Found(f"input {number} took {time.process_time() - before:.1f} s")
        number += 1
        if tell is not None and number % 10_000 == 0:
            tell(number)
    return number - start


def main() -> None:
    parser = argparse.ArgumentParser(description="Throws broken HTTP at both readers.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--count", type=int)
    parser.add_argument("--start", type=int, default=0, help="the number of the first input")
    parser.add_argument("--only", type=int, help="the number of one input")
    args = parser.parse_args()
    start, count = (args.start, args.count) if args.only is None else (args.only, 1)
    until = time.monotonic() + (args.minutes * 60 if args.count is None else 1e9)
    done = asyncio.run(run(count, until, start, lambda n: print(n, flush=True)))
    print(f"{done} inputs, nothing found")


if __name__ == "__main__":
    main()
