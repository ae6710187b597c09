"""HistoryKeeper: what all workers counted, second by second, over restarts."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from penstock.admin.commands import Answer, Command, done, failed
from penstock.running.history_keeper import SAVE_EVERY, HistoryKeeper
from penstock.testing import FakeClock


class Counting:
    """Two workers, and what each has counted."""

    def __init__(self) -> None:
        self.workers: dict[str, dict[str, list[int]] | None] = {"0:1": {}, "1:2": {}}

    def count(self, worker: str, rule: str, allowed: int = 0, refused: int = 0) -> None:
        counts = self.workers[worker]
        assert counts is not None
        row = counts.get(rule, [0] * 5)
        counts[rule] = [row[0] + allowed, 0, row[2] + refused, 0, 0]

    async def apply(self, command: Command) -> list[Answer]:
        return [
            failed(503, "it is being started", away=True)
            if counts is None
            else done([worker, {rule: list(row) for rule, row in counts.items()}])
            for worker, counts in self.workers.items()
        ]


def last(keeper: HistoryKeeper, rule: str, series: str = "allowed", span: int = 3) -> list[Any]:
    return keeper.history.seconds.read(rule, span).counts[series]


async def test_workers_are_summed() -> None:
    clock, workers = FakeClock(), Counting()
    keeper = HistoryKeeper(workers.apply, clock=clock)
    for second in range(3):
        workers.count("0:1", "api/user", allowed=2)
        workers.count("1:2", "api/user", allowed=second)
        await keeper.tick()
        clock.advance(1)
    assert last(keeper, "api/user") == [2, 3, 4]


async def test_a_worker_that_is_replaced_counts_from_zero() -> None:
    clock, workers = FakeClock(), Counting()
    keeper = HistoryKeeper(workers.apply, clock=clock)
    workers.count("0:1", "a", allowed=5)
    await keeper.tick()
    clock.advance(1)
    workers.workers["0:1"] = None
    await keeper.tick()
    clock.advance(1)
    del workers.workers["0:1"]
    workers.workers["0:9"] = {}
    workers.count("0:9", "a", allowed=7)
    await keeper.tick()
    assert last(keeper, "a") == [5, 0, 7]


async def test_history_survives_a_restart(tmp_path: Path) -> None:
    clock, workers, file = FakeClock(), Counting(), tmp_path / "history"
    keeper = HistoryKeeper(workers.apply, str(file), clock=clock)
    workers.count("0:1", "a", allowed=5)
    await keeper.tick()
    assert file.exists(), "the first tick writes it"
    clock.advance(1)
    workers.count("0:1", "a", refused=1)
    await keeper.tick()
    clock.advance(SAVE_EVERY)
    await keeper.tick()
    again = HistoryKeeper(Counting().apply, str(file), clock=clock)
    assert again.history.seconds.sums("a", 900)[0] == [5, 0, 1, 0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["history"]


@pytest.mark.parametrize("content", [b"", b"rubbish", b"penstock-history 1\nx"])
async def test_a_damaged_file_is_said_and_not_used(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "history"
    file.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        keeper = HistoryKeeper(Counting().apply, str(file), clock=FakeClock())
    assert "is not used" in caplog.text
    await keeper.tick()
    HistoryKeeper(Counting().apply, str(file))  # it was replaced


async def test_a_folder_that_is_missing_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    keeper = HistoryKeeper(Counting().apply, str(tmp_path / "no" / "history"), clock=clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await keeper.tick()
            clock.advance(SAVE_EVERY)
    assert caplog.text.count("cannot be written") == 1
