"""Other clients while the service is attacked: ``python tests/running/abuse.py``.

Starts the service on one core and attacks it from the other: rapid reset, PING floods, requests
that never end, oversized ones, connections that say nothing, rubbish. A well-behaved client asks
at a steady rate before, during and after. Prints its 99th percentile, and what the attacks
came to; the exit code is 1 if the service died, did not answer, or kept what it was given.

``--mutations N`` sends so many mutated HTTP requests instead.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from wires.grpc.frames import (  # found by the line above
    END_HEADERS,
    HEADERS,
    HELLO,
    PING,
    RST_STREAM,
    block,
    frame,
    head,
)

PATH = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
RULES = "domain: api\ndescriptors: [{key: user, limits: 1000000/second}]\n"
BODY = json.dumps({"domain": "api", "descriptors": [{"user": "42"}]}).encode()
REQUEST = b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
RATE = 400.0  # questions a second
IDLE = 1_000  # connections that say nothing


class Ports:
    def __init__(self, http: int, grpc: int, pid: int) -> None:
        self.http, self.grpc, self.pid = http, grpc, pid

    def memory(self) -> int:
        match = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())
        assert match is not None
        return int(match[1])


async def ask(ports: Ports, seconds: float) -> list[float]:
    """How long each answer took, from when it was due."""
    reader, writer = await asyncio.open_connection("127.0.0.1", ports.http)
    took: list[float] = []
    begin = time.perf_counter()
    for number in range(int(seconds * RATE)):
        due = begin + number / RATE
        if due > time.perf_counter():
            await asyncio.sleep(due - time.perf_counter())
        writer.write(REQUEST)
        head_ = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head_)
        assert length is not None
        assert b" 200 " in head_[:16]
        await reader.readexactly(int(length[1]))
        took.append(time.perf_counter() - due)
    writer.close()
    return took


def p99(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.99)]


# Attacks: each goes on until it is cancelled, and makes a new connection when it is cut off.


async def rapid_reset(ports: Ports) -> None:
    await _send(ports.grpc, HELLO, _resets())


def _resets() -> Callable[[int], bytes]:
    fields = block(head(PATH))

    def make(turn: int) -> bytes:
        streams = range(turn * 200 + 1, turn * 200 + 201, 2)
        return b"".join(
            frame(HEADERS, END_HEADERS, stream, fields)
            + frame(RST_STREAM, 0, stream, b"\0\0\0\x08")
            for stream in streams
        )

    return make


async def ping_flood(ports: Ports) -> None:
    await _send(ports.grpc, HELLO, lambda turn: frame(PING, 0, 0, b"12345678") * 200)


async def rubbish(ports: Ports) -> None:
    dice = random.Random(1)
    for port in (ports.http, ports.grpc):
        await _send(port, b"", lambda turn: dice.randbytes(2_000), turns=3)


async def oversized(ports: Ports) -> None:
    start = b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 900000000\r\n\r\n"
    await _send(ports.http, start, lambda turn: b"x" * 20_000)


async def endless_header(ports: Ports) -> None:
    await _send(ports.http, b"GET / HTTP/1.1\r\nHost: x\r\nA: ", lambda turn: b"x" * 2_000)


async def endless_trailer(ports: Ports) -> None:
    start = b"POST /v1/check HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: "
    await _send(ports.http, start, lambda turn: b"x" * 20_000)


async def hpack_bomb(ports: Ports) -> None:
    """A field of 4 kB that is put into the table once, and then named by one byte each time."""
    await _send(ports.grpc, HELLO, _bombs())


def _bombs() -> Callable[[int], bytes]:
    literal = b"\x40\x01x\x7f\xa1\x1e" + b"y" * 4_000  # 4,000 = 127 + 33 + 30 * 128

    def make(turn: int) -> bytes:
        fields = block(head(PATH)) + (literal if turn == 0 else b"") + b"\xbe" * 10_000
        return frame(HEADERS, END_HEADERS, 2 * turn + 1, fields)

    return make


async def _send(port: int, start: bytes, make: Callable[[int], bytes], turns: int = 1_000) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    drain = asyncio.create_task(_read(reader))
    try:
        writer.write(start)
        for turn in range(turns):
            writer.write(make(turn))
            await writer.drain()
            await asyncio.sleep(0.01)
            if drain.done():
                return
    except ConnectionError:
        return
    finally:
        drain.cancel()
        writer.close()


async def _read(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.read(65536):
            pass


async def slow(ports: Ports) -> None:
    """Connections that say nothing, or half a word."""
    held = []
    try:
        for number in range(IDLE):
            port = ports.http if number % 2 else ports.grpc
            held.append(await asyncio.open_connection("127.0.0.1", port))
            if number % 4 == 0:
                held[-1][1].write(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Le")
            await asyncio.sleep(0.002)
        await asyncio.sleep(3600)
    finally:
        for _, writer in held:
            writer.close()


ATTACKS: dict[str, Callable[[Ports], Awaitable[None]]] = {
    each.__name__: each
    for each in (
        rapid_reset,
        ping_flood,
        rubbish,
        oversized,
        endless_header,
        endless_trailer,
        hpack_bomb,
        slow,
    )
}


async def attack(name: str, ports: Ports) -> None:
    while True:
        with contextlib.suppress(ConnectionError):
            await ATTACKS[name](ports)
        await asyncio.sleep(0.05)


async def measure(ports: Ports, seconds: float) -> int:
    before = p99(await ask(ports, seconds))
    memory = ports.memory()
    print(f"nobody attacks: p99 {before * 1e3:.2f} ms, {memory:,} kB")
    worst = 0.0
    for name in ATTACKS:
        # In a process of its own: what it takes must not delay the one who measures.
        attacker = subprocess.Popen(
            [sys.executable, __file__, "--attack", name, str(ports.http), str(ports.grpc)]
        )
        try:
            await asyncio.sleep(1.0)
            during = p99(await ask(ports, seconds))
        finally:
            attacker.kill()
            attacker.wait()
        worst = max(worst, during)
        print(f"{name:15} p99 {during * 1e3:.2f} ms, {ports.memory():,} kB")
    await asyncio.sleep(2.0)
    after = p99(await ask(ports, seconds))
    print(f"afterwards: p99 {after * 1e3:.2f} ms, {ports.memory():,} kB")
    print(f"the worst is {worst / before:.1f} x")
    return 0 if ports.memory() < 2 * memory + 20_000 else 1


async def mutate(ports: Ports, count: int) -> int:
    """Mutated requests over real connections; each is answered, or its connection closed."""
    dice = random.Random(count)
    before = ports.memory()
    start = b"POST /json HTTP/1.1\r\nHost: x\r\n"
    seeds = [
        REQUEST,
        b"GET /v1/auth?domain=api HTTP/1.1\r\nHost: x\r\nX-Original-URI: /a\r\n\r\n",
        start + b'Content-Length: 14\r\n\r\n{"domain": ""}',
        start + b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nA: b\r\nC: d\r\n\r\n",
    ]
    for done in range(0, count, 50):
        for _ in range(50):
            one = bytearray(dice.choice(seeds))
            for _ in range(dice.randint(1, 4)):
                at = dice.randrange(len(one))
                one[at : at + dice.randint(0, 3)] = dice.randbytes(dice.randint(0, 3))
            reader, writer = await asyncio.open_connection("127.0.0.1", ports.http)
            writer.write(bytes(one))
            writer.write_eof()
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 20)
            writer.close()
        if done % 10_000 == 0:
            print(f"{done:,} sent, {ports.memory():,} kB", flush=True)
    assert p99(await ask(ports, 1.0)) < 1.0
    print(f"{count:,} sent, {before:,} -> {ports.memory():,} kB")
    return 0 if ports.memory() < before + 20_000 else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--mutations", type=int, default=0)
    parser.add_argument("--attack", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if chosen.attack:
        name, http, grpc = chosen.attack
        asyncio.run(attack(name, Ports(int(http), int(grpc), 0)))
        return 0
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as rules:
        rules.write(RULES)
        rules.flush()
        command = [
            sys.executable, "-m", "penstock", "serve", "--rules", rules.name, "--admin", "off",
            "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--log-level", "info",
        ]  # fmt: skip
        service = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {cores[-1]}),
        )  # fmt: skip
        os.sched_setaffinity(0, {cores[0]})
        try:
            assert service.stderr is not None
            found: dict[str, int] = {}
            for line in service.stderr:
                match = re.search(r"(HTTP|gRPC).* on 127\.0\.0\.1:(\d+)", line)
                if match is not None:
                    found[match[1]] = int(match[2])
                if "ready" in line:
                    break
            ports = Ports(found["HTTP"], found["gRPC"], service.pid)
            threading.Thread(target=service.stderr.read, daemon=True).start()
            if chosen.mutations:
                return asyncio.run(mutate(ports, chosen.mutations))
            return asyncio.run(measure(ports, chosen.seconds))
        finally:
            code = service.poll()
            service.terminate()
            service.wait(30)
            assert code is None, f"the service ended with {code}"


if __name__ == "__main__":
    sys.exit(main())
