"""Three instances with two workers each, one Valkey, and an operator with the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from running.e2e.running import Penstock, ask
from stores.conftest import own_server, server_binary  # noqa: F401  # fixtures
from stores.redis_server import Server, wait_until

PATIENCE = 30.0
FIRST = """
domain: api
descriptors:
  - key: user
    limits: 2/hour
  - key: tenant
    descriptors:
      - key: path
        limits: 7/hour
"""
SECOND = FIRST.replace("2/hour", "5/hour")
BAD = FIRST.replace("2/hour", "2/fortnight").replace("7/hour", "-7/hour")


class Fleet:
    def __init__(self, valkey: Server, folder: Path) -> None:
        self.valkey = valkey
        self.folder = folder
        self.rules = folder / "api.yaml"
        self.instances: list[Penstock] = []

    def start(self, count: int = 3) -> None:
        started = [
            Penstock(
                None, "--workers", "2", "--control", self.valkey.url, "--instance", f"i{n}",
                "--control-cache", str(self.folder / f"cache-{n}.db"),
            )
            for n in range(count)
        ]  # fmt: skip
        self.instances += started
        for each in started:
            each.wait()

    def end(self) -> None:
        while self.instances:
            self.instances.pop().end()

    def penstock(self, *words: str, code: int = 0) -> str:
        """Run a command; what it prints."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        env["PENSTOCK_CONTROL"] = self.valkey.url
        run = subprocess.run(
            [sys.executable, "-m", "penstock", *words], capture_output=True, text=True, env=env,
            timeout=60,
        )  # fmt: skip
        assert run.returncode == code, f"{words}: {run.returncode}\n{run.stdout}{run.stderr}"
        return run.stdout + run.stderr

    def admin(self, at: int, *words: str, code: int = 0) -> str:
        return self.penstock("admin", *words, "--admin", self.instances[at].admin, code=code)

    def push(self, text: str, *words: str, code: int = 0) -> str:
        self.rules.write_text(text)
        return self.penstock("rules", "push", str(self.rules), *words, code=code)

    def everywhere(self, met: Callable[[Penstock], bool], what: str) -> float:
        return wait_until(lambda: all(map(met, self.instances)), what, PATIENCE)

    def numbers(self) -> list[Any]:
        return [each.told("/v1/health")["rules"]["number"] for each in self.instances]


@pytest.fixture
def fleet(own_server: Any, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    fleet = Fleet(own_server("--appendonly", "yes"), tmp_path)
    try:
        yield fleet
    finally:
        fleet.end()


class Load:
    """Requests to every instance, all the time. An answer is 200 or 429, nothing else."""

    def __init__(self, instances: list[Penstock]) -> None:
        self._stop = threading.Event()
        self.statuses: dict[int, int] = {}
        self.errors: list[str] = []
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in instances]
        for thread in self._threads:
            thread.start()

    def _run(self, instance: Penstock) -> None:
        number = 0
        while not self._stop.wait(0.005):
            number += 1
            try:
                status = instance.check({"user": f"load-{number % 50}"}, domain="api").status
            except OSError as error:
                self.errors.append(repr(error))
            else:
                self.statuses[status] = self.statuses.get(status, 0) + 1

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self.errors
        assert self.statuses.keys() <= {200, 429}, self.statuses
        assert self.statuses[200] > 10


def limit_of(instance: Penstock) -> str:
    rules = instance.told("/v1/rules")["domains"]
    return str(rules[0]["rules"][0]["limits"][0]["limit"]) if rules else ""


def allowed(instance: Penstock, user: str, requests: int) -> int:
    answers = [instance.check({"user": user}, domain="api") for _ in range(requests)]
    return sum(answer.status == 200 for answer in answers)


@pytest.mark.timeout(300)
def test_what_is_changed_at_one_instance_is_in_force_in_all(fleet: Fleet) -> None:
    assert "set 1 is pushed: 2 rules" in fleet.push(FIRST, "--why", "first rules")
    fleet.start()
    assert fleet.numbers() == [1, 1, 1]
    load = Load(fleet.instances)
    try:
        # A new set, and a bad one.
        pushed = fleet.push(SECOND, "--wait", "--who", "ana", "--why", "more for all")
        assert "set 2 is pushed" in pushed
        assert "in force in 3 instances" in pushed
        assert all(limit_of(each) == "5/hour" for each in fleet.instances)
        refused = fleet.push(BAD, code=1)
        assert "api.yaml:5" in refused
        assert "2 problems: nothing was changed" in refused
        assert "nothing was changed" in fleet.push(FIRST, "--dry-run")
        assert "-    limits: 5/hour" in fleet.penstock("rules", "diff", str(fleet.rules), code=1)
        assert fleet.numbers() == [2, 2, 2]

        # Back.
        back = fleet.penstock("rules", "rollback", "1", "--wait", "--why", "too many")
        assert "in force in 3 instances" in back
        assert all(limit_of(each) == "2/hour" for each in fleet.instances)
        history = json.loads(fleet.penstock("rules", "history", "--json"))
        assert [(row["number"], row["in_force"], row["why"]) for row in history] == [
            (3, True, "too many"), (2, False, "more for all"), (1, False, "first rules"),
        ]  # fmt: skip
        fleet.penstock("rules", "pull", str(fleet.folder / "pulled"))
        assert (fleet.folder / "pulled" / "api.yaml").read_text() == FIRST

        # An override, a switch, the kill switch.
        fleet.admin(0, "override", "set", "user=42", "6/hour", "--for", "1h", "--why", "ticket 7")
        fleet.everywhere(
            lambda each: each.told("/v1/overrides")["overrides"] != [], "the override everywhere"
        )
        assert [allowed(each, "42", 8) for each in fleet.instances] == [6, 6, 6]
        fleet.admin(1, "switch", "api/user", "off", "--for", "1h")
        fleet.everywhere(
            lambda each: each.told("/v1/switches")["modes"] == {"api/user": "off"}, "switched"
        )
        assert [allowed(each, "new", 4) for each in fleet.instances] == [4, 4, 4]
        assert "switched: off" in ask(fleet.instances[2].admin, "/rlconfig").body.decode()
        fleet.admin(2, "switch", "api/user", "on")
        fleet.everywhere(lambda each: each.told("/v1/switches")["modes"] == {}, "switched back")
        fleet.admin(2, "switch", "all", "off", "--for", "1s", "--why", "kill switch")
        fleet.everywhere(
            lambda each: each.told("/v1/switches")["mode"] == "enforce", "the kill switch expired"
        )
        rows = json.loads(fleet.admin(0, "changes", "--json"))["changes"]
        assert [(row["what"], row["after"]) for row in rows[:4]] == [
            ("switch/all", "off"), ("switch/rule/api/user", None),
            ("switch/rule/api/user", "off"), ("override/user=42", "6/hour"),
        ]  # fmt: skip
        fleet.admin(1, "undo", str(rows[3]["number"]))
        fleet.everywhere(
            lambda each: each.told("/v1/overrides")["overrides"] == [], "the override undone"
        )
    finally:
        load.end()


@pytest.mark.timeout(300)
def test_the_store_is_away_and_comes_back(fleet: Fleet) -> None:
    fleet.push(FIRST)
    fleet.start(2)
    fleet.admin(0, "override", "set", "user=42", "x3")
    fleet.everywhere(lambda each: each.told("/v1/overrides")["overrides"] != [], "the override")
    load = Load(fleet.instances)
    try:
        fleet.valkey.kill()
        refused = fleet.admin(0, "override", "set", "user=43", "x3", code=1)
        assert "nothing was changed, as the control store is away" in refused
        fleet.everywhere(
            lambda each: each.told("/v1/health")["rules"]["control"] == "memory", "cut off"
        )
        health = fleet.instances[1].told("/v1/health")["rules"]
        assert health["age"] > 0
        assert health["number"] == 1
        assert [allowed(each, "42", 7) for each in fleet.instances] == [6, 6]
    finally:
        load.end()
    # A restart meanwhile: from its own disk.
    fleet.instances.pop(0).end()
    fleet.instances.insert(0, Penstock(
        None, "--control", fleet.valkey.url, "--control-cache", str(fleet.folder / "cache-0.db"),
        "--instance", "i0",
    ).wait())  # fmt: skip
    restarted = fleet.instances[0].told("/v1/health")["rules"]
    assert (restarted["number"], restarted["control"]) == (1, "disk")
    assert allowed(fleet.instances[0], "42", 7) == 6
    fleet.valkey.restart()
    fleet.everywhere(
        lambda each: each.told("/v1/health")["rules"]["control"] == "store", "back again"
    )
    assert "in force in 2 instances" in fleet.push(SECOND, "--wait")
    assert "in force" in fleet.admin(0, "override", "set", "user=43", "x3")
    fleet.everywhere(
        lambda each: len(each.told("/v1/overrides")["overrides"]) == 2, "the second override"
    )


@pytest.mark.timeout(300)
def test_at_3_am(fleet: Fleet) -> None:
    """docs/howto/at-3-am.md, step by step."""
    fleet.push(FIRST)
    fleet.start(1)
    assert allowed(fleet.instances[0], "42", 3) == 2
    who = fleet.admin(0, "who", "user=42")
    assert "api/user" in who
    assert "2/hour" in who
    assert "refused" in who
    assert "needs path" in fleet.admin(0, "who", "tenant=acme")
    fleet.admin(0, "override", "set", "user=42", "10/hour", "--for", "1h", "--why", "ticket 311")
    assert allowed(fleet.instances[0], "42", 1) == 1
    assert "(override)" in fleet.admin(0, "who", "user=42")
    assert "10/hour" in fleet.admin(0, "override", "list")
    fleet.admin(0, "switch", "api/user", "shadow", "--for", "1h")
    assert "shadow" in fleet.admin(0, "limits")
    changes = fleet.admin(0, "changes")
    assert "ticket 311" in changes
    number = json.loads(fleet.admin(0, "changes", "--json"))["changes"][0]["number"]
    fleet.admin(0, "undo", str(number))
    assert "shadow" not in fleet.admin(0, "limits")
    assert "changed again" in fleet.admin(0, "undo", str(number), code=1)
    assert "did you mean 'user'" in fleet.admin(0, "override", "set", "usr=42", "x2", code=1)
    assert "did you mean 'api/user'" in fleet.admin(0, "switch", "api/usr", "off", code=1)
    assert "a mode is on, shadow or off" in fleet.admin(0, "switch", "api/user", "of", code=2)
    assert "store" in fleet.admin(0, "health")


@pytest.mark.realtime
@pytest.mark.timeout(300)
def test_within_a_second(fleet: Fleet) -> None:
    fleet.push(FIRST)
    fleet.start()
    best = PATIENCE
    for n in range(5):
        first = fleet.instances[0]
        start = time.perf_counter()
        first.told("/v1/overrides", "PUT", key="user", value=f"{n}", factor=2)
        fleet.everywhere(
            lambda each, n=n: len(each.told("/v1/overrides")["overrides"]) == n + 1, "everywhere"
        )
        best = min(best, time.perf_counter() - start)
    assert best < 1.0
