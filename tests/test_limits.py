"""Limit: a value that is checked when it is made."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from penstock import Limit, LimitError, PenstockError
from penstock.limit_options import Soft
from penstock.limits import as_limit


def test_amount_and_period_are_all_that_is_needed() -> None:
    limit = Limit(100, "minute")
    assert (limit.amount, limit.period_ns, limit.burst) == (100, 60 * 10**9, 100)
    assert (limit.algorithm, limit.debt, limit.cells, limit.count_rejected) == (
        "token_bucket", 0, 0, False,
    )  # fmt: skip
    assert (limit.align, limit.tz, limit.rounding, limit.soft) == (None, None, None, None)
    assert (limit.lockout_ns, limit.warm_up_ns) == (0, 0)


@pytest.mark.parametrize("per", ["minute", "1m", "60s", 60, 60.0, timedelta(minutes=1)])
def test_a_period_is_a_name_seconds_or_a_timedelta(per: Any) -> None:
    assert Limit(5, per) == Limit(5, "minute")
    assert hash(Limit(5, per)) == hash(Limit(5, "minute"))


def test_options_are_kept() -> None:
    bucket = Limit(5, "1m", burst=8, debt=3, lockout="15m", warm_up=30)
    assert (bucket.burst, bucket.debt) == (8, 3)
    assert (bucket.lockout_ns, bucket.warm_up_ns) == (900 * 10**9, 30 * 10**9)
    assert Limit(5, "1m", algorithm="sliding_window").cells == 10
    assert Limit(5, "1m", algorithm="sliding_window", cells=3).cells == 3
    assert Limit(5, "1m", algorithm="sliding_window").rounding == "down"
    assert Limit(5, "1m", algorithm="sliding_window", rounding="up").rounding == "up"
    assert Limit(5, "1m", algorithm="sliding_log", count_rejected=True).count_rejected


def test_a_fixed_window_is_aligned_to_the_epoch_unless_it_has_a_zone() -> None:
    def aligned(**options: Any) -> tuple[str | None, str | None]:
        limit = Limit(5, "day", algorithm="fixed_window", **options)
        return limit.align, limit.tz

    assert aligned() == ("epoch", None)
    assert aligned(align="first_hit") == ("first_hit", None)
    assert aligned(align="calendar") == ("calendar", "UTC")
    assert aligned(tz="Asia/Taipei") == ("calendar", "Asia/Taipei")


@pytest.mark.parametrize(
    ("soft", "overrun", "grace"),
    [
        ((20, "10m"), 20, 600),
        ((20, timedelta(minutes=10)), 20, 600),
        ("20 for 10m", 20, 600),
        ("20% for 10m", 10, 600),
        ("1% for 10m", 1, 600),  # never less than one unit
        (Soft(20, 600 * 10**9), 20, 600),
    ],
)
def test_soft_is_an_overrun_and_a_grace_time(soft: Any, overrun: int, grace: int) -> None:
    assert Limit(50, "minute", soft=soft).soft == Soft(overrun, grace * 10**9)


@pytest.mark.parametrize("grace", [1, 10**17 + 1, 123_456_789_123_456_789])
def test_the_soft_of_another_limit_is_taken_as_it_is(grace: int) -> None:
    assert Limit(50, "minute", soft=Soft(3, grace)).soft == Soft(3, grace)


def test_limit_errors_are_value_errors() -> None:
    assert issubclass(LimitError, ValueError)
    assert issubclass(LimitError, PenstockError)


def test_an_unknown_option_is_an_error_of_the_call() -> None:
    with pytest.raises(TypeError, match="brust"):
        Limit(5, "minute", brust=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "limit",
    [
        Limit(6, "minute"),
        Limit(5, "second"),
        Limit(5, "minute", burst=6),
        Limit(5, "minute", debt=1),
        Limit(5, "minute", lockout="1m"),
        Limit(5, "minute", warm_up="1m"),
        Limit(5, "minute", soft=(1, "1m")),
        Limit(5, "minute", algorithm="leaky_bucket"),
    ],
)
def test_limits_of_another_meaning_differ(limit: Limit) -> None:
    assert limit != Limit(5, "minute")
    assert limit != str(limit)


def test_limits_of_one_meaning_are_one_key_of_a_dict() -> None:
    same = [Limit(5, "minute"), Limit(5, 60, burst=5), Limit.parse("5 per 60s")]
    assert len(set(same)) == 1


def test_a_limit_is_frozen() -> None:
    limit = Limit(5, "minute")
    with pytest.raises(dataclasses.FrozenInstanceError):
        limit.amount = 6  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del limit.amount  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        limit.anything = 6  # type: ignore[attr-defined]


def test_repr_can_be_pasted() -> None:
    limit = Limit(5, "minute", burst=8)
    assert repr(limit) == "Limit.parse('5/minute burst 8')"
    assert eval(repr(limit)) == limit


def test_copies_are_equal() -> None:
    limit = Limit(5, "minute", soft="2 for 1m")
    for twin in (copy.copy(limit), copy.deepcopy(limit), pickle.loads(pickle.dumps(limit))):
        assert twin == limit
        assert hash(twin) == hash(limit)


def test_a_limit_from_another_process_is_the_same_key_of_a_dict() -> None:
    """Hashes of strings differ between processes; a limit's must not be carried over."""
    code = (
        "import pickle, sys; from penstock import Limit;"
        "sys.stdout.buffer.write(pickle.dumps(Limit(5, 'minute')))"
    )
    for seed in ("1", "2"):
        sent = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        assert pickle.loads(sent) == Limit(5, "minute")
        assert pickle.loads(sent) in {Limit(5, "minute")}


def test_as_limit_takes_a_limit_or_its_text() -> None:
    limit = Limit(5, "minute")
    assert as_limit(limit) is limit
    assert as_limit("5/minute") == limit
    with pytest.raises(
        LimitError, match=r"^a limit is a Limit or a string such as '100/minute', not float$"
    ):
        as_limit(5.0)  # type: ignore[arg-type]


def test_the_interval_is_rounded_up() -> None:
    assert Limit(3, "second").interval_ns == 333_333_334
    assert Limit(4, "second").interval_ns == 250_000_000
