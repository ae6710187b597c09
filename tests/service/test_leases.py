"""Leases of the service: what a client gets for its slots, and how it gives them back."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import AsyncGate, MemoryStore, SharedMemoryStore
from penstock.errors import StoreError
from penstock.rules.deciding.verdict import Descriptor, Verdict
from penstock.service.leases import LeaseIds, UnknownLease
from penstock.service.service import Service
from penstock.stores.base import Store
from penstock.testing import FakeClock
from service.rls_case import ask
from service.rls_messages import decode, encode
from service.service_kit import Slow, at_once, gate_of

RULES = "{domain: api, descriptors: [{key: user, concurrency: %d}, {key: job, concurrency: 3}]}"
USER, JOB = Descriptor.of({"user": "42"}), Descriptor.of({"job": "7"})


def service_with(
    slots: int = 2, store: Store | None = None, clock: FakeClock | None = None, **options: Any
) -> Service:
    return Service(gate_of(RULES % slots, clock, store), **options)


def check(service: Service, *descriptors: Descriptor) -> str | None:
    verdict = service.check("api", descriptors or (USER,))
    assert isinstance(verdict, Verdict)
    lease = service.lease(verdict)
    assert (lease is not None) == verdict.allowed
    return lease


def granted(service: Service, *descriptors: Descriptor) -> str:
    lease = check(service, *descriptors)
    assert lease is not None
    return lease


def test_a_lease_is_released_once() -> None:
    service = service_with()
    first, second = granted(service), granted(service)
    assert first != second, "although they were granted at the same instant"
    assert check(service) is None
    assert service.release(first) is True
    assert service.release(first) is False
    assert check(service) is not None
    assert check(service) is None, "the second release has not freed the slot of the second lease"


def test_one_lease_for_several_descriptors() -> None:
    service = service_with(slots=1)
    lease = granted(service, USER, JOB)
    assert check(service, USER) is None
    service.release(lease)
    assert all(check(service, JOB) for _ in range(3))
    assert check(service, USER) is not None


def test_an_expired_lease_was_released_already() -> None:
    clock = FakeClock()
    service = service_with(slots=1, clock=clock)
    late = granted(service)
    clock.advance(30)
    again = granted(service)
    assert service.release(late) is False
    assert check(service) is None
    assert service.release(again) is True


def test_ids_cannot_be_guessed_or_changed() -> None:
    service = service_with()
    lease = granted(service)
    other = service_with()
    for wrong in ("", "nonsense", "AAAA", "ö", lease[:-1], lease[1:], lease + "AAAA", lease[::-1]):
        with pytest.raises(UnknownLease):
            service.release(wrong)
    for at in range(0, len(lease), 7):
        changed = lease[:at] + ("B" if lease[at] == "A" else "A") + lease[at + 1 :]
        with pytest.raises(UnknownLease):
            service.release(changed)
    with pytest.raises(UnknownLease):
        other.release(lease)
    assert service.release(lease) is True


def test_a_secret_is_long_enough() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        LeaseIds(b"short")


def test_a_service_that_was_restarted() -> None:
    clock = FakeClock()
    first = service_with(slots=1, clock=clock, lease_secret=b"s" * 16)
    lease = granted(first)
    unknown = service_with(slots=1, store=first.gate.store, clock=clock)
    assert check(unknown) is None
    with pytest.raises(UnknownLease, match="restarted"):
        unknown.release(lease)
    same = service_with(slots=1, store=first.gate.store, clock=clock, lease_secret=b"s" * 16)
    assert same.release(lease) is True
    assert first.release(lease) is False
    assert check(same) is not None


@pytest.mark.parametrize("now", [RULES % 1, "{domain: api, descriptors: [{key: ip}]}"])
def test_rules_that_changed_while_the_lease_was_out(now: str) -> None:
    service = service_with(slots=5)
    leases = [granted(service) for _ in range(3)]
    service.gate.replace(now)
    assert [service.release(lease) for lease in leases] == [True] * 3
    service.gate.replace(RULES % 5)
    assert [check(service) is not None for _ in range(6)] == [True] * 5 + [False]


def test_workers_share_slots_and_release_each_others(tmp_path: Any) -> None:
    path = tmp_path / "slots"
    with SharedMemoryStore(path, 100, 256) as one, SharedMemoryStore(path) as other:
        first = service_with(store=one, lease_secret=b"s" * 16)
        second = service_with(store=other, lease_secret=b"s" * 16)
        lease, _ = granted(first), granted(second)
        assert check(second) is None
        assert second.release(lease) is True
        assert first.release(lease) is False
        assert check(first) is not None
        assert check(second) is None


async def test_a_store_that_is_waited_for() -> None:
    service = Service(gate_of(RULES % 1, store=Slow(clock=FakeClock())))
    verdict: Any = service.check("api", [USER])
    lease = service.lease(await verdict)
    assert lease is not None
    released: Any = service.release(lease)
    assert await released is True
    again: Any = service.release(lease)
    assert await again is False


async def test_a_store_that_fails() -> None:
    store = Slow(clock=FakeClock())
    service = Service(gate_of(RULES % 1, store=store))
    verdict: Any = service.check("api", [USER])
    lease = service.lease(await verdict)
    assert lease is not None
    store.broken = True
    released: Any = service.release(lease)
    with pytest.raises(StoreError):
        await released


def test_envoy_holds_a_slot_for_the_whole_lease() -> None:
    clock = FakeClock()
    service = service_with(clock=clock)
    message = encode(ask("user=42"))

    def code() -> str:
        return str(decode(at_once(service.rate_limit(message)))["overall_code"])

    assert [code() for _ in range(3)] == ["OK", "OK", "OVER_LIMIT"]
    clock.advance(30)
    assert code() == "OK"


def test_released_leases_take_little_memory() -> None:
    store = MemoryStore(1000, clock=FakeClock())
    service = service_with(store=store)
    for _ in range(3000):
        assert service.release(granted(service)) is True
    assert isinstance(service.gate, AsyncGate)
    assert store.keys <= 1000
    assert len(service.gate.pool) <= 2
