"""The parts of the load generator that need no network."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.limits import Limit
from penstock.loadgen.counts import Counts, cell_of, top_of
from penstock.loadgen.envelope import accuracy, most_allowed
from penstock.loadgen.load import Load, skew_of
from penstock.loadgen.requests import as_json, as_message, descriptors, overall_code

# Messages ----------------------------------------------------------------------------------


def test_requests() -> None:
    pairs = descriptors(300, ["user", "remote_address", "path"])
    assert pairs == [("user", "key-300"), ("remote_address", "10.0.1.44"), ("path", "/0")]
    assert as_json("api", pairs[:1]) == b'{"domain":"api","descriptors":[{"user":"key-300"}]}'


def test_a_message_is_what_envoy_sends() -> None:
    from penstock.service.rls_request import read_request

    message = as_message("d" * 200, descriptors(7, ["user", "path"]))
    request = read_request(message)
    assert request.domain == "d" * 200
    entries = [[tuple(pair) for pair in each.pairs] for each in request.descriptors]
    assert entries == [[("user", "key-7")], [("path", "10.0.0.7")]]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"", 0), (b"\x08\x01", 1), (b"\x08\x02", 2), (b"\x12\x02ab\x08\x02", 2),
        (b"\x08\x01\x25abcd\x21abcdefgh", 1), (b"\x08\x81\x00", 1),
    ],
)  # fmt: skip
def test_codes(message: bytes, code: int) -> None:
    assert overall_code(message) == code


@pytest.mark.parametrize("message", [b"\x08", b"\x12\x05ab", b"\x0b", b"\x08" + b"\xff" * 11])
def test_what_is_no_message_is_said(message: bytes) -> None:
    with pytest.raises(ValueError, match="RateLimitResponse"):
        overall_code(message)


# Load --------------------------------------------------------------------------------------


def test_keys_are_chosen_alike_or_by_zipfs_law() -> None:
    even = Counter(Load(keys=10).choices())
    assert set(even) == set(range(10))
    assert max(even.values()) < 1.1 * min(even.values())
    skewed = Counter(Load(keys=1000, skew=1.0).choices())
    assert skewed[0] / skewed[9] == pytest.approx(10, rel=0.2)
    assert Load(keys=5, skew=1.0).choices() == Load(keys=5, skew=1.0).choices()
    assert Load(keys=1).choices() == [0]


@pytest.mark.parametrize(
    ("text", "skew"), [("uniform", 0.0), ("zipf", 1.1), ("zipf:0.8", 0.8), ("zipf:2", 2.0)]
)
def test_how_keys_are_chosen(text: str, skew: float) -> None:
    assert skew_of(text) == skew


@pytest.mark.parametrize("text", ["", "zip", "zipf:", "zipf:x", "uniform:1"])
def test_how_keys_are_not_chosen(text: str) -> None:
    with pytest.raises(ValueError, match="uniform"):
        skew_of(text)


@pytest.mark.parametrize(
    "wrong",
    [{"keys": 0}, {"connections": 0}, {"streams": 0}, {"seconds": 0}, {"rate": 0.0},
     {"rate": -1.0}, {"skew": 11.0}],
)  # fmt: skip
def test_a_load_that_makes_no_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Load(**wrong)  # type: ignore[arg-type]  # that is the point


# Figures -----------------------------------------------------------------------------------


@given(st.integers(0, 10**12))
def test_a_cell_is_no_wider_than_a_thousandth(microseconds: int) -> None:
    top = top_of(cell_of(microseconds))
    assert microseconds < top <= microseconds * 1.001 + 1


def test_percentiles_are_those_of_the_sorted_list() -> None:
    drawn = random.Random(3)
    times = [drawn.expovariate(200) for _ in range(5000)]
    counts = Counts(1)
    for seconds in times:
        counts.answered(0, seconds, True)
    times.sort()
    for per_cent in (50.0, 90.0, 99.0, 99.9):
        exact = times[int(len(times) * per_cent / 100) - 1]
        assert counts.percentile(per_cent) == pytest.approx(exact, rel=0.002, abs=2e-6)
    assert counts.percentile(100) == counts.longest == times[-1]
    assert counts.mean == pytest.approx(sum(times) / len(times))
    assert Counts(1).percentile(99) == 0


@pytest.mark.parametrize(
    ("limit", "seconds", "most"),
    [
        (Limit(100, "second"), 10.0, 1100),
        (Limit(100, "second", burst=10), 2.5, 260),
        (Limit(10, "minute", algorithm="fixed_window"), 30.0, 20),
        (Limit(10, "minute", algorithm="fixed_window"), 90.0, 30),
        (Limit(10, "minute", algorithm="sliding_log"), 30.0, 10),
        (Limit(10, "minute", algorithm="sliding_window"), 61.0, 20),
        (Limit(5, "hour"), 0.0, 5),
    ],
)
def test_at_most(limit: Limit, seconds: float, most: int) -> None:
    assert most_allowed(limit, seconds) == most


def test_accuracy() -> None:
    found = accuracy(Limit(10, "minute"), 0.0, asked=[20, 5, 30], allowed=[10, 5, 12])
    assert (found.most, found.over, found.worst_key, found.worst) == (10, 1, 2, 12)
    assert found.used == pytest.approx(27 / 25)
