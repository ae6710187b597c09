"""The state machine of the circuit breaker: tables, and a naive model beside it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.circuit import CELLS, CLOSED, HALF_OPEN, OPEN, CallCircuit, Circuit, Permit, Recent
from penstock.clock import SECOND


def new_circuit(
    failures: int = 3,
    ratio: float = 0.5,
    window: int = 10,
    pause: int = 1,
    longest: int = 8,
    probes: int = 1,
    luck: float = 1.0,
) -> CallCircuit:
    return CallCircuit(
        failures, ratio, window * SECOND, pause * SECOND, longest * SECOND, probes, lambda: luck
    )


# When it opens: o worked, x failed, each a second after the one before --------------------

OPENING = [
    ("xxx", 3, 0.5, OPEN),
    ("xx", 3, 0.5, CLOSED),
    ("xxoxx", 3, 0.5, OPEN),
    ("ooooxxx", 3, 0.5, CLOSED),  # three of seven
    ("oooxxx", 3, 0.5, OPEN),  # half of six
    ("ooooooxxx", 3, 0.0, OPEN),  # by count alone
    ("oxxx", 3, 1.0, CLOSED),  # only if nothing worked
    ("xxx", 3, 1.0, OPEN),
    ("x", 1, 0.5, OPEN),
    ("o", 1, 0.5, CLOSED),
    ("x.........xx", 3, 0.5, CLOSED),  # the first is out of the window
    ("x.......xx", 3, 0.5, OPEN),
    ("oooooo.........xxx", 3, 0.5, OPEN),  # what worked is forgotten, too
]


@pytest.mark.parametrize(("calls", "failures", "ratio", "state"), OPENING)
def test_opens_when_enough_failed_and_they_were_enough_of_all(
    calls: str, failures: int, ratio: float, state: str
) -> None:
    circuit = new_circuit(failures, ratio)
    for second, call in enumerate(calls):
        if call == "o":
            circuit.succeeded(circuit.allows(second * SECOND), second * SECOND)
        elif call == "x":
            circuit.failed(circuit.allows(second * SECOND), second * SECOND, "it said no")
    assert circuit.state == state
    assert circuit.reason == ("it said no" if state == OPEN else "")


def opened(probes: int = 1, luck: float = 1.0) -> CallCircuit:
    circuit = new_circuit(failures=1, probes=probes, luck=luck)
    circuit.failed(circuit.allows(0), 0, "down")
    assert circuit.state == OPEN
    return circuit


def test_an_open_circuit_lets_nobody_through_until_its_pause_is_over() -> None:
    circuit = opened()
    assert circuit.allows(SECOND - 1) is None
    assert circuit.retry_after(SECOND - 1) == 1
    assert circuit.allows(SECOND) is not None
    assert circuit.state == HALF_OPEN


def test_pauses_double_to_the_longest_and_start_anew_after_closing() -> None:
    circuit, now, pauses = opened(), 0, []
    for _ in range(6):
        wait = circuit.retry_after(now)
        pauses.append(wait // SECOND)
        now += wait
        circuit.failed(circuit.allows(now), now, "still")
    assert pauses == [1, 2, 4, 8, 8, 8]
    now += circuit.retry_after(now)
    circuit.succeeded(circuit.allows(now), now)
    assert circuit.state == CLOSED
    circuit.failed(circuit.allows(now), now, "again")
    assert circuit.retry_after(now) == SECOND


def test_a_pause_is_shortened_by_chance_by_up_to_a_half() -> None:
    assert opened(luck=0.0).retry_after(0) == SECOND // 2
    assert opened(luck=0.5).retry_after(0) == 3 * SECOND // 4


@pytest.mark.parametrize("probes", [1, 2, 5])
def test_only_so_many_probes_pass_and_all_must_work(probes: int) -> None:
    circuit, now = opened(probes), SECOND
    permits = [circuit.allows(now) for _ in range(probes + 3)]
    assert [permit is not None for permit in permits] == [True] * probes + [False] * 3
    for permit in permits[: probes - 1]:
        circuit.succeeded(permit, now)
        assert circuit.state == HALF_OPEN
        assert circuit.allows(now) is None, "a probe that worked is not a free place"
    circuit.succeeded(permits[probes - 1], now)
    assert circuit.state == CLOSED


def test_one_failed_probe_opens_it_again_whatever_the_others_say() -> None:
    circuit = opened(probes=3)
    first, second, third = (circuit.allows(SECOND) for _ in range(3))
    circuit.succeeded(first, SECOND)
    circuit.failed(second, SECOND, "no")
    assert circuit.state == OPEN
    circuit.succeeded(third, SECOND)
    assert (circuit.state, circuit.retry_after(SECOND)) == (OPEN, 2 * SECOND)


def test_a_probe_that_was_given_up_is_free_for_another() -> None:
    circuit = opened()
    permit = circuit.allows(SECOND)
    assert circuit.allows(SECOND) is None
    circuit.gave_up(permit)
    assert circuit.state == HALF_OPEN
    assert circuit.retry_after(SECOND) == 0
    assert circuit.allows(SECOND) is not None
    assert circuit.allows(SECOND) is None


def test_a_probe_that_hangs_is_given_up_after_the_longest_pause() -> None:
    circuit = opened()
    hangs = circuit.allows(SECOND)
    assert circuit.retry_after(SECOND) == SECOND, "a guess: the first pause"
    assert circuit.allows(9 * SECOND - 1) is None
    assert circuit.state == HALF_OPEN
    assert circuit.allows(9 * SECOND) is None
    assert (circuit.state, circuit.reason) == (OPEN, "a probe did not end in time")
    circuit.succeeded(hangs, 10 * SECOND)
    assert circuit.state == OPEN, "it comes too late"
    assert circuit.allows(11 * SECOND) is not None


def test_a_probe_that_was_given_up_is_not_missed_later() -> None:
    circuit = opened()
    circuit.gave_up(circuit.allows(SECOND))
    assert circuit.allows(100 * SECOND) is not None
    assert circuit.state == HALF_OPEN


def test_who_began_before_it_opened_is_not_believed_later() -> None:
    circuit = new_circuit(failures=1)
    old, oldest = circuit.allows(0), circuit.allows(0)
    circuit.failed(circuit.allows(0), 0, "down")
    probe = circuit.allows(SECOND)
    circuit.succeeded(old, SECOND)
    assert circuit.state == HALF_OPEN
    circuit.gave_up(oldest)
    assert circuit.allows(SECOND) is None, "an old call must not free the probe's place"
    circuit.failed(old, SECOND, "old news")
    assert circuit.state == HALF_OPEN
    circuit.succeeded(probe, SECOND)
    circuit.failed(old, SECOND, "old news")
    assert circuit.state == CLOSED


def test_a_clock_that_steps_back_does_not_keep_it_open() -> None:
    circuit = new_circuit(failures=1)
    circuit.failed(circuit.allows(10**6 * SECOND), 10**6 * SECOND, "down")
    assert circuit.allows(0) is None
    assert circuit.retry_after(0) == SECOND
    assert circuit.allows(SECOND) is not None
    recent = Recent(10 * SECOND)
    recent.add(100 * SECOND, failed=True)
    recent.add(0, failed=False)
    assert recent.totals(0) == (1, 0)


def test_the_count_needs_no_more_memory_with_more_traffic() -> None:
    recent = Recent(10 * SECOND)
    for number in range(10_000):
        recent.add(number * SECOND // 100, failed=number % 2 == 0)
    assert len(recent._cells) <= CELLS
    assert recent.totals(10_000 * SECOND // 100) == (900, 450)


def test_the_part_that_the_redis_store_shares() -> None:
    shared = Circuit(0.05, 0.3, lambda: 1.0)
    assert shared.trip(2.5, "slow")
    assert not shared.trip(3.5, "still"), "it was open already"
    assert (shared.state, shared.opened_at, shared.reason) == (OPEN, 2.5, "still")
    assert [shared.pause() for _ in range(4)] == [0.05, 0.1, 0.2, 0.3]


# A naive model ------------------------------------------------------------------------------


@dataclass
class Model:
    """Keeps everything that ever happened, and looks through all of it each time."""

    failures: int
    ratio: float
    window: int
    pause: int
    longest: int
    probes: int
    state: str = CLOSED
    opened: int = 0
    wait: int = 0
    times_open: int = 0
    history: list[tuple[int, bool]] = field(default_factory=list)
    # Of calls under way: in which state's turn each began, and when.
    calls: dict[int, tuple[int, int]] = field(default_factory=dict)
    latest: int = 0
    turn: int = 0
    passed: int = 0

    def under_way(self) -> list[int]:
        return [began for turn, began in self.calls.values() if turn == self.turn]

    def begin(self, number: int, now: int) -> bool:
        if self.state == OPEN and now - self.opened >= self.wait:
            self.go(HALF_OPEN)
        probes = self.under_way()
        if self.state == HALF_OPEN and probes and now - self.latest >= self.longest:
            self.open(now)
        if self.state == OPEN:
            return False
        if self.state == HALF_OPEN and len(self.under_way()) + self.passed >= self.probes:
            return False
        self.calls[number] = (self.turn, now)
        self.latest = now
        return True

    def end(self, number: int, how: str, now: int) -> None:
        turn, _ = self.calls.pop(number)
        if turn != self.turn or how == "gave up":
            return
        if self.state == HALF_OPEN and how == "failed":
            self.open(now)
        elif self.state == HALF_OPEN:
            self.passed += 1
            if self.passed == self.probes:
                self.close()
        else:
            self.history.append((now, how == "failed"))
            tenth = self.window // 10
            recent = [bad for at, bad in self.history if now // tenth - at // tenth < 10]
            if how == "failed" and sum(recent) >= max(self.failures, self.ratio * len(recent)):
                self.open(now)

    def open(self, now: int) -> None:
        if self.state != OPEN:
            self.opened = now
            self.wait = min(self.pause * 2**self.times_open, self.longest)
            self.times_open += 1
            self.go(OPEN)

    def close(self) -> None:
        self.history.clear()
        self.times_open = 0
        if self.state != CLOSED:
            self.go(CLOSED)

    def go(self, state: str) -> None:
        self.state, self.turn, self.passed = state, self.turn + 1, 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.just(0)),
        st.tuples(st.sampled_from(["worked", "failed", "failed", "gave up"]), st.integers(0, 9)),
        st.tuples(st.just("pass"), st.sampled_from([1, 7, 10, 25, 40, 80, 200])),
        st.tuples(st.sampled_from(["trip", "close"]), st.just(0)),
    ),
    max_size=80,
)


@given(
    failures=st.integers(1, 4),
    ratio=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    probes=st.integers(1, 3),
    longest=st.sampled_from([2, 5, 8]),
    probing=st.booleans(),
    steps=STEPS,
)
def test_it_does_what_the_naive_model_does(
    failures: int,
    ratio: float,
    probes: int,
    longest: int,
    probing: bool,
    steps: list[tuple[str, int]],
) -> None:
    circuit = new_circuit(failures, ratio, 10, 2, longest, probes)
    model = Model(failures, ratio, 10 * SECOND, 2 * SECOND, longest * SECOND, probes)
    now, permits = 0, dict[int, Permit]()
    # Half of the runs begin where it is about to probe: chance alone seldom gets there.
    start = [("trip", 0), ("pass", 20)] if probing else []
    for number, (what, value) in enumerate(start + steps):
        if what == "pass":
            now += value * SECOND // 10
        elif what == "trip":
            circuit.open(now, "by hand")
            model.open(now)
        elif what == "close":
            circuit.close()
            model.close()
        elif what == "begin":
            permit = circuit.allows(now)
            assert (permit is not None) == model.begin(number, now)
            if permit is not None:
                permits[number] = permit
        elif permits:
            call = list(permits)[value % len(permits)]
            permit = permits.pop(call)
            model.end(call, what, now)
            if what == "worked":
                circuit.succeeded(permit, now)
            elif what == "failed":
                circuit.failed(permit, now, "no")
            else:
                circuit.gave_up(permit)
        assert circuit.state == model.state
        if circuit.state == OPEN:
            assert circuit.retry_after(now) == max(0, model.opened + model.wait - now)
