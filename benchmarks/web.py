"""Web: what a limit costs a hello-world application, under a real server.

Servers run on one core, the client on the other. All are up at once and are asked in turns, so
that what disturbs, disturbs all. CPU time is the server's own, from the kernel's books: it does
not care how quick the client is.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benchmarks.redis_server import cores
from benchmarks.report import Table
from benchmarks.web_apps import FAMILIES

CONNECTIONS = 16
REQUEST = b"GET / HTTP/1.1\r\nHost: bench\r\nAccept: */*\r\n\r\n"
TICKS = os.sysconf("SC_CLK_TCK")


class Served:
    """A server that is up, and the best that was seen of it."""

    def __init__(self, port: int, pid: int) -> None:
        self.port, self.pid = port, pid
        self.rate = 0.0
        self.cpu = float("inf")

    def ask(self, seconds: float) -> None:
        before = self._cpu()
        answered, took = load(self.port, seconds)
        self.rate = max(self.rate, answered / took)
        self.cpu = min(self.cpu, (self._cpu() - before) / answered * 1e6)

    def _cpu(self) -> float:
        """Seconds of CPU of the server and its workers."""
        total = 0.0
        for pid in [self.pid, *children_of(self.pid)]:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / TICKS
        return total


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has ended since
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


@contextmanager
def serving(family: str, name: str, core: int) -> Iterator[Served]:
    command = [sys.executable, "-m", "benchmarks.web_apps", family, name]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.strip():
            raise RuntimeError(f"{family} {name} did not start")
        served = Served(int(line), process.pid)
        for _ in range(200):
            try:
                load(served.port, 0.1)
                break
            except OSError:
                time.sleep(0.05)
        yield served
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def load(port: int, seconds: float) -> tuple[int, float]:
    """Ask on connections that stay open, one request on each at a time."""
    selector = selectors.DefaultSelector()
    with ExitStack() as stack:
        stack.callback(selector.close)
        for _ in range(CONNECTIONS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(connection, selectors.EVENT_READ, [connection, b""])
            connection.sendall(REQUEST)
        answered = 0
        start = time.perf_counter()
        end = start + seconds
        while (now := time.perf_counter()) < end:
            for key, _ in selector.select(1.0):
                state = key.data
                state[1] += state[0].recv(65536)
                if not state[1].endswith(b"hello") and not state[1].endswith(b'"hello"'):
                    if not state[1] or b"HTTP/1.1 200" not in state[1][:12]:
                        raise OSError(f"no answer: {state[1][:100]!r}")
                    continue
                if not state[1].startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(f"refused: {state[1][:100]!r}")
                answered += 1
                state[1] = b""
                state[0].sendall(REQUEST)
        return max(1, answered), now - start


def run(quick: bool = False) -> list[Table]:
    rounds, seconds = (3, 0.5) if quick else (9, 0.8)
    client, server = cores()
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {client})
    try:
        return [_family(name, server, rounds, seconds) for name in FAMILIES]
    finally:
        os.sched_setaffinity(0, before)


def _family(family: str, core: int, rounds: int, seconds: float) -> Table:
    table = Table(
        f"Web: {family}, hello world, {CONNECTIONS} connections, server on one core",
        {
            "limiter": "", "requests/s": ",.0f", "of bare": ".3f",
            "us of CPU": ".1f", "added us": ".1f",
        },
    )  # fmt: skip
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(serving(family, name, core)) for name in FAMILIES[family]
        }
        for _ in range(rounds):
            for served in servers.values():
                served.ask(seconds)
    bare = servers["bare"]
    for name, served in servers.items():
        table.add(name, served.rate, served.rate / bare.rate, served.cpu, served.cpu - bare.cpu)
    table.notes.append(f"best of {rounds} rounds of {seconds} s, in turns")
    return table
