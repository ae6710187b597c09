"""Leases by themselves: until when they are believed, and what names things have."""

from __future__ import annotations

import os
import socket

import pytest

from penstock.concurrency.leases import Lease, LeaseClock, ScriptCalls
from penstock.testing import FakeClock

SECOND = 10**9


def test_a_lease_is_believed_from_before_it_was_asked_for() -> None:
    clock = FakeClock(start=0)
    lease = Lease("k", "id", clock)
    assert not lease.lost
    assert not lease.counted
    clock.advance(5)
    lease.renewed(sent=4 * SECOND, length=10 * SECOND)
    assert lease.counted
    clock.set(13_800_000_000)  # 4 s + 9.8 s
    assert not lease.lost
    lease.renewed(sent=13_800_000_000, length=10 * SECOND)
    clock.set(23_600_000_000)
    assert not lease.lost
    clock.advance_ns(1)
    assert lease.lost


def test_what_was_lost_once_stays_lost() -> None:
    clock = FakeClock(start=0)
    lease = Lease("k", "id", clock)
    lease.renewed(sent=0, length=SECOND)
    clock.advance(2)
    lease.renewed(sent=clock.now(), length=SECOND)  # the answer came too late
    clock.advance(0.1)
    assert lease.lost
    clock.set(0)
    assert lease.lost
    other = Lease("k", "id", clock)
    other.renewed(sent=0, length=SECOND)
    other.lose()
    assert other.lost


def test_the_clock_of_leases_goes_on() -> None:
    clock = LeaseClock()
    before = clock.now()
    assert 0 <= clock.now() - before < 10 * SECOND


def test_holders_can_be_told_apart_and_found() -> None:
    one, other = ScriptCalls("p", 1, SECOND), ScriptCalls("p", 1, SECOND)
    ids = [one.new_id(), one.new_id(), other.new_id()]
    assert len(set(ids)) == 3
    assert ids[0].startswith(f"{socket.gethostname()}:{os.getpid()}:")
    one.start_over()
    assert one.new_id() not in ids


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("transcode", "p:slots:{transcode}:held"),
        ("user:42", "p:slots:{user:42}:held"),
        ("a} b{", "p:slots:{a%7D%20b%7B}:held"),
        ("größe", "p:slots:{größe}:held"),
    ],
)
def test_names_in_the_store(key: str, name: str) -> None:
    request = ScriptCalls("p", 2, SECOND).release(key, ["id"])
    assert request.keys[0].decode() == name
    line = ScriptCalls("p", 2, SECOND).ask(Lease(key, "id", FakeClock()), 0, 1, [1, 2])
    assert [key.decode().rpartition(":")[2] for key in line.keys] == [
        "held", "seen", "line1", "line2"
    ]  # fmt: skip
