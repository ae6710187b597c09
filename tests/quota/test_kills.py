"""kill -9, again and again: of processes that use a ledger, and of PostgreSQL.

Nothing that was acknowledged is lost, nothing counts twice, everything agrees, and the quota is
never exceeded. `make soak` runs 200 rounds: ``PENSTOCK_LEDGER_KILLS=200``.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from penstock.quota import Ledger
from quota.postgres_server import PostgresServer, find_binaries

QUOTA = 100_000_000
SPENDER = Path(__file__).parent / "spender.py"


class Spenders:
    """Some processes, and what each of them was told."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.random = random.Random(7)
        self.count = 0
        self.acknowledged: dict[str, dict[str, int]] = {}

    def run(self, processes: int, lines: int) -> list[tuple[str, subprocess.Popen[str]]]:
        """Start some, and return when each has been told something."""
        running = []
        for _ in range(processes):
            self.count += 1
            command = [sys.executable, str(SPENDER), self.url, str(self.count)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            running.append((str(self.count), process))
        for number, process in running:
            assert process.stdout is not None
            for _ in range(lines):
                self._note(number, process.stdout.readline())
        return running

    def kill(self, running: list[tuple[str, subprocess.Popen[str]]]) -> None:
        for _, process in running:
            process.kill()
        for number, process in running:
            assert process.stdout is not None
            for line in process.stdout:
                if line.endswith("\n"):
                    self._note(number, line)
            process.wait()
            process.stdout.close()

    def _note(self, number: str, line: str) -> None:
        verb, step = line.split()
        self.acknowledged.setdefault(number, {})[verb] = int(step)

    def check(self, ledger: Ledger) -> None:
        """What was acknowledged is there, and at most one more step of each process."""
        assert ledger.reconcile().differences == ()
        balance = ledger.balance("acme")["m"]
        assert 0 <= balance.available <= balance.remaining <= QUOTA + self.count * 10_000
        spends: Counter[str] = Counter()
        for entry in ledger.entries("acme"):
            if entry.kind == "spend" and entry.source:
                spends[entry.source] -= entry.amount
        grants = Counter(
            entry.source.split(":")[0]
            for entry in ledger.entries("acme")
            if entry.kind == "grant" and ":" in entry.source and entry.source[0].isdigit()
        )
        direct = sum(
            -entry.amount
            for entry in ledger.entries("acme")
            if entry.kind == "spend" and not entry.source
        )
        known = sum(told.get("spend", 0) for told in self.acknowledged.values())
        assert 3 * known <= direct <= 3 * (known + self.count)
        for number, told in self.acknowledged.items():
            assert told.get("grant", 0) <= grants[number] <= told.get("grant", 0) + 1
            settled, stock = told.get("settle", 0), told.get("stock", 0)
            assert 2 * settled <= spends[f"{number}/m"] <= 2 * (settled + 1)
            assert 4 * stock <= spends[f"stock-{number}"] <= 4 * (stock + 1)


def test_processes_are_killed(url: str, rounds: int) -> None:
    spenders = Spenders(url)
    with Ledger(url, plans={"p": {"m": f"{QUOTA}/year"}}) as ledger:
        ledger.open("acme", plan="p")
        for _ in range(rounds):
            running = spenders.run(2, spenders.random.randrange(1, 12))
            spenders.kill(running)
        assert len(spenders.acknowledged) == 2 * rounds
        spenders.check(ledger)


def test_postgresql_is_killed(rounds: int) -> None:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL to kill")
    server = PostgresServer(binaries)
    try:
        server.start()
        spenders = Spenders(server.url())
        with Ledger(server.url(), plans={"p": {"m": f"{QUOTA}/year"}}) as ledger:
            ledger.open("acme", plan="p")
        running = spenders.run(2, 1)
        for _ in range(rounds):
            for number, process in running:  # so that it happens in the middle of something
                assert process.stdout is not None
                for _ in range(spenders.random.randrange(1, 6)):
                    spenders._note(number, process.stdout.readline())
            server.kill()
            server.start()
        spenders.kill(running)
        with Ledger(server.url()) as ledger:
            # A verb that failed is not repeated here, so later totals include it.
            assert ledger.reconcile().differences == ()
            spent = ledger.balance("acme")["m"].spent
            known = sum(
                2 * told.get("settle", 0) + 4 * told.get("stock", 0)
                for told in spenders.acknowledged.values()
            )
            assert spent >= known
            refs = Counter(
                entry.source for entry in ledger.entries("acme") if entry.kind == "grant"
            )
            assert max(refs.values()) == 1
    finally:
        server.stop()
