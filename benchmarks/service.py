"""Service: requests a second and CPU time a request, over gRPC and HTTP, beside peers.

The server has one core, the load the other. h2load drives gRPC: a client in Python would
measure itself. Where it stops before the server does, CPU time a request is what counts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.redis_server import cores
from benchmarks.report import Table
from benchmarks.settings import Unavailable
from benchmarks.web import TICKS, children_of
from penstock.loadgen.requests import as_message

PATH = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
ONE, THREE = (("user", "42"),), (("user", "42"), ("path", "/search"), ("tenant", "acme"))


class Served:
    def __init__(self, process: subprocess.Popen[str], ports: list[int]) -> None:
        self.process = process
        self.ports = ports

    def cpu(self) -> float:
        total = 0.0
        for pid in [self.process.pid, *children_of(self.process.pid)]:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / TICKS
        return total


@contextmanager
def serving(name: str, ports: int, core: int) -> Iterator[Served]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.service_apps", name],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(ports)]
        if not all(lines):
            raise RuntimeError(f"{name} did not start")
        yield Served(process, [int(line) for line in lines])
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class Load:
    """h2load with one kind of question."""

    def __init__(self, folder: str, pairs: tuple[tuple[str, str], ...] | None) -> None:
        self._body = Path(folder) / f"body-{0 if pairs is None else len(pairs)}"
        self._log = Path(folder) / "log"
        self._http = pairs is None
        if pairs is None:
            asked = {"domain": "bench", "descriptors": [dict(ONE)]}
            self._body.write_bytes(json.dumps(asked).encode())
        else:
            message = as_message("bench", pairs)
            self._body.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)

    def run(self, port: int, seconds: float, streams: int, rps: float = 0) -> tuple[float, float]:
        """Requests a second, and the 99th percentile of how long they took, in seconds."""
        self._log.unlink(missing_ok=True)
        path = "/v1/check" if self._http else PATH
        command = ["h2load", "-D", str(max(1, round(seconds))), "-d", str(self._body)]
        command += ["-c", "16" if self._http else "4", "-m", "1" if self._http else str(streams)]
        if self._http:
            command += ["--h1", "-H", "content-type: application/json"]
        else:
            command += ["-H", "content-type: application/grpc", "-H", "te: trailers"]
        if rps:
            command += ["--rps", str(rps / 4), f"--log-file={self._log}"]
        done = subprocess.run(
            [*command, f"http://127.0.0.1:{port}{path}"], capture_output=True, text=True, check=True
        )
        found = re.search(r"finished in .*?, ([\d.]+) req/s", done.stdout)
        codes = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", done.stdout)
        if found is None or codes is None or codes[1] == "0" or (codes[3], codes[4]) != ("0", "0"):
            raise RuntimeError(f"h2load failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return float(found[1]), self._p99() if rps else 0.0

    def _p99(self) -> float:
        times = sorted(int(line.split("\t")[2]) for line in self._log.read_text().splitlines())
        return times[int(len(times) * 0.99)] / 1e6


def run(quick: bool = False) -> list[Table]:
    if shutil.which("h2load") is None:
        raise Unavailable("no h2load: install nghttp2-client (Debian)")
    rounds, seconds = (2, 1.0) if quick else (7, 2.0)
    client, server = cores()
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {client})
    try:
        with tempfile.TemporaryDirectory() as folder:
            return [_grpc(folder, server, rounds, seconds), _http(folder, server, rounds, seconds)]
    finally:
        os.sched_setaffinity(0, before)


def _grpc(folder: str, core: int, rounds: int, seconds: float) -> Table:
    table = Table(
        "Service: gRPC ShouldRateLimit, memory store, 4 connections, 100 streams each",
        {
            "server": "", "descriptors": "", "requests/s": ",.0f", "x": ".1f",
            "us of CPU": ".2f", "x less CPU": ".1f",
        },
    )  # fmt: skip
    switched = "Penstock, another rule in shadow"
    names = ["Penstock", switched, "Penstock over grpcio", "grpcio, minimal"]
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(serving(name, 2 if "Penstock" in name else 1, core))
            for name in names
        }
        for pairs in (ONE, THREE):
            load = Load(folder, pairs)
            compared = {n: (s, s.ports[0]) for n, s in servers.items()}
            if pairs is not ONE:
                del compared[switched]
            best = _measured(compared, load, rounds, seconds)
            base_rate, base_cpu = best["grpcio, minimal"]
            for name, (rate, cpu) in best.items():
                table.add(name, str(len(pairs)), rate, rate / base_rate, cpu, base_cpu / cpu)
        load, own = Load(folder, ONE), servers["Penstock"]
        peak = load.run(own.ports[0], seconds, 100)[0]
        waits = [load.run(own.ports[0], seconds, 100, peak / 2)[1] for _ in range(3)]
        table.notes.append(
            f"p99 at half of the peak rate ({peak / 2:,.0f}/s): {min(waits) * 1e3:.2f} ms;"
            f" best of {rounds} rounds of {seconds} s, in turns"
        )
    return table


def _http(folder: str, core: int, rounds: int, seconds: float) -> Table:
    table = Table(
        "Service: POST /v1/check, memory store, 16 connections",
        {
            "server": "", "requests/s": ",.0f", "x": ".1f", "us of CPU": ".2f",
            "x less CPU": ".1f",
        },
    )  # fmt: skip
    with ExitStack() as stack:
        own = stack.enter_context(serving("Penstock", 2, core))
        peer = stack.enter_context(serving("Starlette", 1, core))
        servers = {"Penstock": (own, own.ports[1]), "uvicorn + Starlette": (peer, peer.ports[0])}
        best = _measured(servers, Load(folder, None), rounds, seconds)
    base_rate, base_cpu = best["uvicorn + Starlette"]
    for name, (rate, cpu) in best.items():
        table.add(name, rate, rate / base_rate, cpu, base_cpu / cpu)
    table.notes.append("the same gate, the same JSON; uvicorn with uvloop and httptools")
    return table


def _measured(
    servers: dict[str, tuple[Served, int]], load: Load, rounds: int, seconds: float
) -> dict[str, tuple[float, float]]:
    """By name, the best rate and the least CPU time of a request, in microseconds."""
    best = dict.fromkeys(servers, (0.0, float("inf")))
    for _ in range(rounds):
        for name, (served, port) in servers.items():
            before = served.cpu()
            rate, _ = load.run(port, seconds, 100)
            cpu = (served.cpu() - before) / (rate * max(1, round(seconds))) * 1e6
            best[name] = (max(best[name][0], rate), min(best[name][1], cpu))
    return best
