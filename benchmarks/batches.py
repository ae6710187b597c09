"""What the script costs the server by the size of a batch: raw calls, no client in the way."""

from __future__ import annotations

import os
import socket
import time
from types import SimpleNamespace

from benchmarks import redis_server
from benchmarks.report import Table

LIMITS = ("1000000/hour", "1000000/hour fixed_window", "1000000/hour sliding_window")
SIZES = (1, 32, 64)
KEYS = 5_000


def run(quick: bool = False) -> list[Table]:
    table = Table(
        "Redis: decisions a second per server core, by decisions a call",
        {"": "", **{f"{size} a call": ",.0f" for size in SIZES}},
    )
    ours, its = redis_server.cores()
    before = os.sched_getaffinity(0)
    with redis_server.running(its) as server:
        os.sched_setaffinity(0, {ours})
        try:
            for text in LIMITS:
                table.add(text, *[_best(server, text, size, 3 if quick else 12) for size in SIZES])
            table.notes.append(f"{server.name()}; CPU, user and system, of its process; two calls"
                               f" under way; {KEYS:,} keys; best of several rounds")  # fmt: skip
        finally:
            os.sched_setaffinity(0, before)
    return [table]


def _best(server: redis_server.Server, text: str, size: int, rounds: int) -> float:
    import hiredis

    from penstock import Limit
    from penstock.stores.redis import script, wire

    ours, policy = script.Script(), script.policy(Limit.parse(text), time.time_ns())
    keys = [f"penstock:{text}:user:{number}".encode() for number in range(KEYS)]
    calls = []
    for first in range(0, 12_800 if size > 1 else 3_000, size):
        operations = [
            SimpleNamespace(
                key=keys[(first + at) % KEYS], policy=policy, verb="hit", cost=1, size=1
            )
            for at in range(size)
        ]
        calls.append(hiredis.pack_command(("EVALSHA", ours.sha, *wire.encode(operations, 0))))
    best = 0.0
    with socket.create_connection(("127.0.0.1", server.port)) as link:
        _ask(link, hiredis.pack_command(("SCRIPT", "LOAD", ours.text)), 1)
        for _ in range(rounds):
            start = server.cpu_seconds()
            for at in range(0, len(calls), 2):
                two = calls[at : at + 2]
                _ask(link, b"".join(two), len(two))
            best = max(best, len(calls) * size / (server.cpu_seconds() - start))
    return best


def _ask(link: socket.socket, data: bytes, answers: int) -> None:
    import hiredis

    reader = hiredis.Reader()
    link.sendall(data)
    while answers:
        reader.feed(link.recv(1 << 16))
        while (answer := reader.gets()) is not False:
            assert not isinstance(answer, Exception), answer
            answers -= 1
