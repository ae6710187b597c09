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

from penstock.quota import Ledger
from quota.postgres_server import server_to_kill

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
        """What was acknowledged is there, once, and at most one more step of each process."""
        assert ledger.reconcile().differences == ()
        balance = ledger.balance("acme")["m"]
        spent: Counter[str] = Counter()
        granted: Counter[str] = Counter()
        held = 0  # by callers that are gone, and by stocks
        for entry in ledger.entries("acme"):
            assert entry.kind != "uncovered"
            held += entry.held
            if entry.kind == "spend":
                spent[entry.source] -= entry.amount
            elif entry.kind == "grant":
                granted[entry.source] += entry.amount
        assert held == balance.held
        assert balance.spent == spent.total()
        assert balance.available == granted.total() - balance.spent - held >= 0
        assert granted.total() == QUOTA + len(granted) - 1  # each ref once: 1
        # By process. Holds have random ids: they are what is left of the sum.
        refs = Counter(name.split(":")[0] for name in spent if ":" in name)
        assert all(spent[name] == 3 for name in spent if ":" in name)
        grants = Counter(name.split(":")[0] for name in granted if name[0].isdigit())
        holds = spent.total()
        for number, told in self.acknowledged.items():
            for counted, verb in (
                (refs[number], "spend"),
                (grants[number], "grant"),
                (spent[f"{number}/m"] / 2, "settle"),
                (spent[f"stock-{number}"] / 4, "stock"),
            ):
                assert told.get(verb, 0) <= counted <= told.get(verb, 0) + 1, (number, verb)
            holds -= 3 * refs[number] + spent[f"{number}/m"] + spent[f"stock-{number}"]
        known = sum(told.get("hold", 0) for told in self.acknowledged.values())
        assert 2 * known <= holds <= 2 * (known + self.count)


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
    server = server_to_kill()
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
            assert len(spenders.acknowledged) == 2
            spenders.check(ledger)
    finally:
        server.stop()
