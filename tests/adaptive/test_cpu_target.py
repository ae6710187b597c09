"""CPUTarget by tables, and the readers of the processor."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from adaptive.traffic import Teller
from penstock.adaptive import CPUTarget, ProcessCPU, SystemCPU
from penstock.adaptive.cpu import STAT, default_reader, usable_cores
from penstock.clock import SECOND
from penstock.testing import FakeClock

TABLE = [
    ([0.7, 0.7], [100, 100]),
    ([0.71, 0.69], [100, 100]),  # close enough
    ([1.0, 1.0], [90, 81]),  # a step at most
    ([0.1, 0.1], [110, 121]),
    ([0.74], [94]),  # less than a step
    ([0.7, 1.0], [100, 90]),  # load 0.85
    ([5.0, -3.0], [90, 99]),  # what a reader says beyond its bounds; load 1, then 0.5
]


@pytest.mark.parametrize(("readings", "limits"), TABLE)
def test_table(readings: list[float], limits: list[int]) -> None:
    left = [0.5, *readings]
    teller = Teller(CPUTarget(0.7, reader=lambda: left.pop(0), initial=100))
    assert [teller.window(0.01) for _ in readings] == limits


def test_a_drop_is_one_step_down() -> None:
    assert Teller(CPUTarget(0.7, reader=lambda: 0.7, initial=100)).drop() == 90


def test_a_reader_that_breaks_leaves_the_limit_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    calls = 0

    def broken() -> float:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError("no such file")
        return 0.5

    teller = Teller(CPUTarget(0.7, reader=broken, initial=100))
    with caplog.at_level(logging.ERROR, "penstock.adaptive"):
        assert teller.window(0.01) == 100
    assert "the CPU could not be read; the limit stays 100" in caplog.text


def test_a_reader_that_never_works_is_an_error_at_once() -> None:
    with pytest.raises(OSError, match="does not begin with"):
        CPUTarget(reader=SystemCPU(Path(os.devnull)))


# Readers ---------------------------------------------------------------------------------


def test_the_machine_is_read_from_its_ticks(tmp_path: Path) -> None:
    #      user nice system idle iowait irq softirq steal guest guest_nice
    file = tmp_path / "stat"
    file.write_text("cpu  100 0 50 800 50 0 0 0 7 0\ncpu0 1 1 1 1\n")
    cpu = SystemCPU(file)
    file.write_text("cpu  130 5 60 850 55 1 2 2 99 0\ncpu0 1 1 1 1\n")
    assert cpu() == pytest.approx(50 / 105)  # 30 + 5 + 10 + 1 + 2 + 2 busy, 55 not
    assert cpu() == 0.0, "no tick has passed"
    file.write_text("cpu  0 0 0 0 0 0 0 0 0 0\n")
    assert cpu() == 0.0, "the counters started over"


def test_a_process_is_read_as_a_part_of_its_cores() -> None:
    clock, used = FakeClock(0), 0
    cpu = ProcessCPU(2, clock=clock, used_ns=lambda: used)
    clock.advance(10)
    used = 5 * SECOND
    assert cpu() == 0.25
    assert cpu() == 0.0
    clock.advance(1)
    used += 5 * SECOND
    assert cpu() == 1.0
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="cores is a number above 0"):
            ProcessCPU(wrong)


def test_cores_by_quota_or_by_scheduler(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    scheduled = usable_cores(tmp_path / "none")
    assert scheduled >= 1
    quota.write_text("150000 100000\n")
    assert usable_cores(quota) == 1.5
    for unlimited in ("max 100000\n", "", "0 0"):
        quota.write_text(unlimited)
        assert usable_cores(quota) == scheduled


@pytest.mark.skipif(not STAT.exists(), reason="no /proc/stat here")
def test_the_real_ones_answer_with_a_part() -> None:
    for cpu in (SystemCPU(), ProcessCPU(), default_reader()):
        sum(range(100_000))
        assert 0.0 <= cpu() <= 1.0
    busy = ProcessCPU(1)
    while (part := busy()) == 0.0:
        sum(range(100_000))
    assert part <= 1.0
    assert CPUTarget().limit == 20
