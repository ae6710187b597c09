"""Reloads that something happens to: files that change meanwhile, workers that stop or die.

A worker that is stopped (SIGSTOP) cannot prepare new rules, so a reload waits for it, and a test
can act in the middle of one.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from running.e2e.running import PATIENCE, Penstock, ask, new_folder
from stores.redis_server import wait_until

RULES = """\
domain: api
descriptors:
  - key: user
    limits: {limit}
"""


class Service(Penstock):
    """Two workers, and their file of rules."""

    def __init__(self) -> None:
        self.file = new_folder() / "rules.yaml"
        self.write("1000/hour")
        super().__init__(self.file, "--workers", "2", "--log-level", "debug")

    def write(self, limit: str) -> None:
        """At once, as configuration management does it."""
        new = self.file.with_suffix(".new")
        new.write_text(RULES.format(limit=limit))
        os.replace(new, self.file)

    def limits(self, count: int = 12) -> set[str]:
        """By which the workers decide: the kernel spreads the connections over them."""
        bodies = [json.loads(self.check({"user": "1"}).body) for _ in range(count)]
        return {body["statuses"][0]["limit"]["text"] for body in bodies}

    def begin_reload(self, limit: str) -> None:
        """Until it waits for a worker that is stopped."""
        lines = len(self.lines)
        self.write(limit)
        self.said("new rules were read and are being prepared", lines)


@pytest.fixture
def service() -> Iterator[Service]:
    started = Service()
    try:
        started.wait()
        yield started
    finally:
        for pid in started.workers:
            os.kill(pid, signal.SIGCONT)
        started.end()


def test_a_file_that_breaks_during_a_reload_leaves_all_workers_with_the_same_rules(
    service: Service,
) -> None:
    stopped = service.workers[0]
    os.kill(stopped, signal.SIGSTOP)
    service.begin_reload("2000/hour")
    service.file.write_text("domain: api\ndescriptors: 5\n")
    os.kill(stopped, signal.SIGCONT)
    service.said(r"rules reloaded: none added, 1 changed \(api/user\), none removed")
    # What it holds now is seen, too.
    service.said(r"rules were not reloaded.*rules\.yaml:2")
    assert service.limits() == {"2000/hour"}


def test_a_file_that_changes_again_during_a_reload_is_loaded_after_it(service: Service) -> None:
    stopped = service.workers[0]
    os.kill(stopped, signal.SIGSTOP)
    service.begin_reload("2000/hour")
    service.write("3000/hour")
    lines = len(service.lines)
    os.kill(stopped, signal.SIGCONT)
    service.said("rules reloaded", lines)
    wait_until(lambda: service.limits() == {"3000/hour"}, "the last rules", PATIENCE)
    assert sum("rules reloaded" in line for line in service.lines) == 2


def test_a_worker_that_is_killed_while_it_prepares(service: Service) -> None:
    victim, other = service.workers
    os.kill(victim, signal.SIGSTOP)
    service.begin_reload("2000/hour")
    assert not any("rules reloaded" in line for line in service.lines)
    os.kill(victim, signal.SIGKILL)
    service.said("rules reloaded")
    service.said(r"worker \d ended \(signal 9\) and is started again")
    wait_until(
        lambda: len(service.workers) == 2 and ask(service.admin, "/v1/health").status == 200,
        "a new worker",
        PATIENCE,
    )
    assert other in service.workers
    assert victim not in service.workers
    # Also if it was started before the others had swapped.
    wait_until(lambda: service.limits() == {"2000/hour"}, "the rules in force", PATIENCE)


def test_rules_that_a_store_cannot_hold_are_vetoed(service: Service) -> None:
    service.write("1000/hour sliding_log")
    service.said(r"workers 0, 1 cannot use the new rules: rule api/user: .* needs 16064 bytes")
    answer = ask(service.admin, "/v1/rules/reload", "POST")
    assert answer.status == 422
    problem = json.loads(answer.body)
    assert "workers 0, 1 cannot use the new rules: rule api/user: " in json.dumps(problem)
    assert service.limits() == {"1000/hour"}
    assert service.values("penstock_rules_ok") == [0]
    service.write("4000/hour")
    service.said("rules reloaded: none added, 1 changed")
    assert service.limits() == {"4000/hour"}
    assert service.values("penstock_rules_ok") == [1]
