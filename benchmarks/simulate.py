"""Replaying logs: lines a second on one core, beside GoAccess and beside `re` and Gate.check.

A day of synthetic traffic: people in sessions with pages and assets, some scrapers. Penstock and
the loop run in this process, GoAccess in its own; all are measured by CPU time.
"""

from __future__ import annotations

import random
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from benchmarks.report import Table
from penstock import Gate, MemoryStore
from penstock.replay import read_log, recommend, simulate
from penstock.testing import FakeClock

START = 1_763_251_200  # 2025-11-16 00:00 UTC
DAY = 86_400
RULES = {
    "domain": "web",
    "descriptors": [
        {"key": "remote_address", "limits": "300/minute burst 100"},
        {
            "key": "path",
            "value": "/login",
            "descriptors": [{"key": "remote_address", "limits": "5/minute"}],
        },
        {"key": "method", "value": "GET", "limits": "1000/second fixed_window"},
    ],
}
_LINE = re.compile(
    rb'(\S+) \S+ (\S+) \[([^\]]+)\] "(\S+) ([^?" ]*)[^"]*" (\d{3}) (\S+) "[^"]*" "([^"]*)"'
)


def run(quick: bool = False) -> list[Table]:
    lines = 200_000 if quick else 2_000_000
    rounds = 2 if quick else 3
    table = Table(
        f"Replaying a log of {lines:,} lines, one core",
        {"what": "", "M lines/s": ".2f", "x of GoAccess": ".0f"},
    )
    with tempfile.TemporaryDirectory() as folder:
        combined, json_lines = Path(folder, "access.log"), Path(folder, "access.json")
        write_logs(lines, combined, json_lines)
        rows: list[tuple[str, float | None]] = [
            ("simulate, combined, three rules", best(rounds, lambda: simulate(RULES, combined))),
            ("simulate, JSON lines", best(rounds, lambda: simulate(RULES, json_lines))),
            ("recommend, combined", best(rounds, lambda: recommend(combined))),
            ("scanning alone, combined", best(rounds, lambda: scan(combined))),
            ("the same by two threads", best(rounds, lambda: scan(combined, 2), busiest_thread)),
        ]
        part = Path(folder, "part.log")
        some = lines // 20
        with combined.open("rb") as whole:
            part.write_bytes(b"".join(next(whole) for _ in range(some)))
        rows.append(("re and Gate.check, a twentieth of it", 20 * best(1, lambda: by_hand(part))))
        goaccess = by_goaccess(part if quick else combined)
        if goaccess is not None and quick:
            goaccess *= 20
        rows.append(("GoAccess, whole run", goaccess))
    for name, seconds in rows:
        rate = None if seconds is None else lines / seconds / 1e6
        ratio = None if seconds is None or goaccess is None else goaccess / seconds
        table.add(name, rate, ratio)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if goaccess is None:
        table.notes.append(
            "GoAccess is not installed, or failed (Debian: apt-get install goaccess)"
        )
    table.notes.append(
        f"CPU time, best of {rounds}; of two threads, that of the busier one; peak memory of this"
        f" process {peak:.0f} MB. GoAccess fills many more panels than a replay needs"
    )
    return [table]


def whole_process(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def busiest_thread(work: Callable[[], object]) -> float:
    """Of this thread and two that share the rest evenly: what would pass on free processors."""
    mine, everybody = time.thread_time(), time.process_time()
    work()
    mine, everybody = time.thread_time() - mine, time.process_time() - everybody
    return max(mine, (everybody - mine) / 2)


def best(
    rounds: int,
    work: Callable[[], object],
    measure: Callable[[Callable[[], object]], float] = whole_process,
) -> float:
    return min(measure(work) for _ in range(rounds))


def scan(log: Path, threads: int = 1) -> int:
    requests = read_log(log, threads=threads)
    requests.want(["peer", "target", "method", "header:user-agent"], ["status"])
    return sum(block.n for block in requests.blocks())


def by_hand(log: Path) -> int:
    """What one would write without a replay."""
    clock = FakeClock(START * 10**9)
    gate = Gate.from_rules(RULES, MemoryStore(clock=clock), clock=clock)
    refused = 0
    times: dict[bytes, int] = {}
    with log.open("rb") as lines:
        for line in lines:
            match = _LINE.match(line)
            if match is None:
                continue
            address, _, stamp, method, path, *_ = match.groups()
            if stamp not in times:
                when = datetime.strptime(stamp.decode(), "%d/%b/%Y:%H:%M:%S %z")
                times[stamp] = int(when.timestamp()) * 10**9
            clock.set(times[stamp])
            client = address.decode()
            refused += not gate.check(
                {"remote_address": client},
                {"path": path.decode(), "remote_address": client},
                {"method": method.decode()},
            )
    return refused


def by_goaccess(log: Path) -> float | None:
    binary = shutil.which("goaccess")
    if binary is None:
        return None
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        command = [binary, str(log), "--log-format=COMBINED", "--no-progress"]
        report = Path(folder, "report.json")
        subprocess.run([*command, "-o", str(report)], capture_output=True, timeout=600, check=False)
        if not report.exists() or not report.stat().st_size:
            return None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write_logs(lines: int, combined: Path, json_lines: Path) -> None:
    chance = random.Random(7)
    clients = max(1000, lines // 30)
    paths = ["/", "/login", "/api/v1/items", "/search", "/cart"]
    paths += [f"/item/{n}" for n in range(3000)] + [f"/static/app.{n:04x}.js" for n in range(200)]
    weights = [1 / (n + 1) ** 1.05 for n in range(len(paths))]
    agents = [
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko)"
        f" Chrome/{version}.0.0.0 Safari/537.36"
        for version in range(100, 140)
    ]
    chosen = chance.choices(paths, weights, k=lines)
    second, stamp, iso = -1, "", ""
    with combined.open("w") as text, json_lines.open("w") as records:
        for at in range(lines):
            when = START + at * DAY / lines
            if int(when) != second:
                second = int(when)
                moment = time.gmtime(second)
                stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", moment)
                iso = time.strftime("%Y-%m-%dT%H:%M:%S", moment)
            who = int(clients * chance.random() ** 1.8)
            address = (
                f"{10 + who % 200}.{who * 7919 % 256}.{who * 104729 % 256}.{who % 254 + 1}"
                if who % 9
                else f"2001:db8:{who % 65536:x}:{who >> 3:x}::{who % 997:x}"
            )
            agent, path = agents[who % 40], chosen[at]
            status, size = (200, 200, 200, 304, 404)[at % 5], 200 + at * 7919 % 60_000
            text.write(
                f'{address} - - [{stamp}] "GET {path} HTTP/1.1" {status} {size}'
                f' "https://example.com/" "{agent}"\n'
            )
            records.write(
                f'{{"time":"{iso}.{int(when % 1 * 1000):03d}Z","remote_addr":"{address}",'
                f'"method":"GET","path":"{path}","status":{status},"bytes":{size},'
                f'"duration_ms":{at % 200},"referer":"https://example.com/","user_agent":"{agent}"}}\n'
            )
