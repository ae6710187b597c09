"""The service under load for a long time: ``python tests/running/soak.py --minutes 30``.

Memory and open files must be flat after the first tenth, no request may fail, and what
is allowed must stay within the limit's envelope: burst plus rate times time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RULES = """
domain: soak
descriptors:
  - key: user
    limits: 100000/second
  - key: tenant
    limits: 50/second
"""
# What a heap may grow by while it settles.
MOST_GROWTH = 1.05
CONNECTIONS = 8


class Caller:
    """One connection that asks as fast as it is answered, with pauses."""

    def __init__(self, port: int, number: int) -> None:
        self._port, self._number = port, number
        self.asked = self.allowed = self.refused = 0
        self.wrong: list[str] = []

    async def run(self, until: float) -> None:
        while time.monotonic() < until:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                for _ in range(2000):  # and then a new connection
                    if time.monotonic() >= until:
                        break
                    await self._ask(reader, writer)
                    if self.asked % 20 == 0:
                        await asyncio.sleep(0.01)
            finally:
                writer.close()
                await writer.wait_closed()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        if self.asked % 2:
            pair = {"tenant": "acme"}
        else:
            pair = {"user": f"{self._number}-{self.asked % 50_000}"}
        body = json.dumps({"domain": "soak", "descriptors": [pair]}).encode()
        head = b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        await reader.readexactly(int(length[1]))
        status = int(head.split(b" ", 2)[1])
        if status not in (200, 429):
            self.wrong.append(f"{pair}: {status}")
        if "tenant" in pair:
            self.allowed += status == 200
            self.refused += status == 429
        elif status != 200:
            self.wrong.append(f"{pair} was refused")


def taken(pids: list[int]) -> tuple[int, int]:
    """Kilobytes of memory and open files of all processes together."""
    memory = files = 0
    for pid in pids:
        status = Path(f"/proc/{pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+)", status)
        memory += int(match[1]) if match else 0
        files += len(os.listdir(f"/proc/{pid}/fd"))
    return memory, files


def processes(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


async def soak(minutes: float, workers: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder, "rules.yaml")
        rules.write_text(RULES)
        command = [
            sys.executable, "-m", "penstock", "serve", "--rules", str(rules), "--workers",
            str(workers), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--admin", "off",
        ]  # fmt: skip
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            return await watch(process, minutes)
        finally:
            process.terminate()
            process.wait(30)


async def watch(process: subprocess.Popen[str], minutes: float) -> int:
    assert process.stderr is not None
    port = 0
    for line in process.stderr:
        match = re.search(r"HTTP on 127\.0\.0\.1:(\d+)", line)
        port = int(match[1]) if match else port
        if "ready" in line:
            break
    pids = processes(process.pid)
    callers = [Caller(port, number) for number in range(CONNECTIONS)]
    begin = time.monotonic()
    end = begin + minutes * 60
    running = asyncio.gather(*[caller.run(end) for caller in callers])
    seen: list[tuple[int, int]] = []
    while not running.done():
        await asyncio.sleep(min(10.0, minutes * 6))
        if time.monotonic() < end - 1:  # while all are connected
            seen.append(taken(pids))
            asked = sum(caller.asked for caller in callers)
            print(f"{time.monotonic() - begin:6.0f} s {asked:10,} asked"
                  f" {seen[-1][0]:9,} kB {seen[-1][1]:4} files", flush=True)  # fmt: skip
    await running
    return judge(callers, seen, time.monotonic() - begin)


def judge(callers: list[Caller], seen: list[tuple[int, int]], seconds: float) -> int:
    wrong = [each for caller in callers for each in caller.wrong]
    allowed = sum(caller.allowed for caller in callers)
    most = 50 + 50 * seconds
    settled = seen[len(seen) // 10 : len(seen) // 10 + 3]
    before = max(memory for memory, _ in settled)
    growth = seen[-1][0] / before
    files = {count for _, count in seen[len(seen) // 10 :]}
    asked = sum(caller.asked for caller in callers)
    print(f"{asked:,} asked in {seconds:.0f} s, {len(wrong)} wrong {wrong[:3]}")
    print(f"memory {before:,} -> {seen[-1][0]:,} kB ({growth:.3f} x), open files {sorted(files)}")
    print(f"one limit of 50/second: {allowed:,} allowed of at most {most:,.0f}"
          f" ({allowed / most:.4f})")  # fmt: skip
    flat = growth <= MOST_GROWTH and max(files) - min(files) <= 2 * CONNECTIONS
    return 0 if flat and not wrong and 0.97 * most <= allowed <= most else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args()
    sys.exit(asyncio.run(soak(chosen.minutes, chosen.workers)))
