"""`penstock rules push --wait`: until all instances have the rules, or it is clear who has not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml")

from penstock.cli import main
from penstock.control import rule_sets
from penstock.control.steps import run as run_flow
from penstock.durations import SECOND
from penstock.kv import KeyValue
from penstock.running.reports import INSTANCES, Reports, wait_for_set
from penstock.testing import FakeClock

Report = Mapping[str, Any]


def at(number: int | None, rejected: str | None = None, of: int | None = None) -> Report:
    return {
        "number": number,
        "digest": f"digest {number}",
        "rejected": rejected,
        "rejected_digest": None if of is None else f"digest {of}",
    }


def wait(clock: FakeClock, *reports: Reports, number: int = 3) -> Any:
    """Each look sees the next of ``reports``; the last one stays. Set 4 follows set 3."""
    looks = iter(reports[:-1])
    digests = {f"digest {number}", "digest 4"}
    read = partial(next, looks, reports[-1])
    return wait_for_set(read, number, lambda: digests, 30 * SECOND, clock)


def test_it_waits_for_the_last_instance() -> None:
    clock = FakeClock()
    start = clock.now()
    progress = wait(
        clock, {"a": at(2), "b": at(None)}, {"a": at(3), "b": at(2)}, {"a": at(3), "b": at(4)}
    )
    assert progress.complete
    assert progress.in_force == 2
    assert clock.now() - start < SECOND


def test_an_old_rejection_does_not_end_the_wait() -> None:
    old = {"a": at(1, "set 2 of the store: no", 2)}
    assert wait(FakeClock(), old, old, {"a": at(3)}).complete


def test_a_rejection_of_this_set_or_a_later_one_ends_it_once_all_have_answered() -> None:
    clock = FakeClock()
    start = clock.now()
    no = at(2, "set 3 of the store: no", 3)
    progress = wait(clock, {"a": no, "b": at(2)}, {"a": no, "b": at(3)})
    assert not progress.complete
    assert (progress.in_force, progress.rejected) == (1, {"a": "set 3 of the store: no"})
    assert clock.now() - start < SECOND
    assert wait(clock, {"a": at(2, "bad", 4)}).rejected == {"a": "bad"}


def test_after_the_timeout_it_names_who_has_not() -> None:
    clock = FakeClock()
    start = clock.now()
    progress = wait(clock, {"a": at(3), "b": at(2), "c": at(None), "d": {"number": 1}})
    assert not progress.complete
    assert progress.waiting == {
        "b": "still at set 2", "c": "still at its files", "d": "still at set 1",
    }  # fmt: skip
    assert clock.now() - start == 30 * SECOND


def test_a_set_of_a_store_that_was_lost_does_not_count() -> None:
    """The store was emptied, and set 1 pushed anew. The instances still have set 7 of before."""
    clock = FakeClock()
    progress = wait(clock, {"a": at(7)}, {"a": at(7), "b": at(1)}, number=1)
    assert not progress.complete
    assert progress.waiting == {"a": "still at set 7, of before the store was lost"}
    rejected = at(7, "set 7 of the store: no", 7)
    assert not wait(clock, {"a": rejected}, number=1).rejected
    assert wait(clock, {"a": at(7)}, {"a": at(1)}, number=1).complete


def test_the_same_files_as_before_count_only_as_the_new_set() -> None:
    same = {**at(1), "digest": "digest 3"}
    assert wait(FakeClock(), {"a": same}).waiting == {"a": "still at set 1"}


def test_without_instances_it_is_not_in_force() -> None:
    clock = FakeClock()
    start = clock.now()
    assert not wait(clock, {}).complete
    assert clock.now() - start == 30 * SECOND
    assert wait(clock, {}, {}, {"a": at(3)}).complete, "one that has just started"


# The command -------------------------------------------------------------------------------


@pytest.fixture
def push(tmp_path: Path) -> Any:
    rules = tmp_path / "api.yaml"
    rules.write_text("domain: api\ndescriptors: [{key: user, limits: 2/hour}]\n")
    control = f"file:{tmp_path / 'control.db'}"
    reports = f"file:{tmp_path / 'control.db'}{INSTANCES}"

    def run(*words: str, **instances: Report) -> int:
        with KeyValue(reports) as kv, KeyValue(control) as pushed:
            current = run_flow(pushed, rule_sets.current())
            for name, report in instances.items():
                if current is not None and report["number"] == current.number:
                    report = {**report, "digest": current.digest}
                kv.put(name, json.dumps(report))
        return main(["rules", "push", str(rules), "--to", control, *words])

    return run


def test_push_without_instances_fails(push: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert push("--wait", "--timeout", "10ms") == 1
    out = capsys.readouterr().out
    assert "set 1 is pushed" in out
    assert "no instance has reported: is penstock serve running with this --control?" in out


def test_push_of_what_is_there_waits_as_well(push: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert push() == 0
    assert push("--wait", "--timeout", "10ms", a=at(None), b=at(1)) == 1
    assert "a: still at its files" in capsys.readouterr().out
    assert push("--wait", a=at(1)) == 0
    assert "in force in 2 instances" in capsys.readouterr().out


def test_an_old_rejection_is_not_reported(push: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert push("--wait", "--timeout", "10ms", a=at(None, "an old problem", 0)) == 1
    out = capsys.readouterr().out
    assert "a: still at its files" in out
    assert "an old problem" not in out


def test_a_bad_timeout_pushes_nothing(push: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert push("--wait", "--timeout", "soon") == 2
    assert "timeout" in capsys.readouterr().err
    assert push("--dry-run") == 0
    assert "api.yaml added; nothing was changed" in capsys.readouterr().out
