"""Leases of ``penstock serve``: over several workers, one of which is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from running.e2e.running import PATIENCE, Answer, Penstock, ask, new_folder
from stores.redis_server import wait_until

RULES = "{domain: api, descriptors: [{key: user, concurrency: %d, slot_lease: 5m}]}"
USER = {"user": "42"}


@contextlib.contextmanager
def serving(*options: str) -> Iterator[tuple[Penstock, Path]]:
    rules = new_folder() / "rules.yaml"
    rules.write_text(RULES % 8)
    service = Penstock(rules, *options)
    try:
        yield service.wait(), rules
    finally:
        service.end()


def leases(service: Penstock, count: int) -> list[str]:
    answers = [service.check(USER) for _ in range(count)]
    return [json.loads(answer.body)["lease"] for answer in answers if answer.status == 200]


def release(service: Penstock, lease: str) -> Answer:
    return ask(service.http, "/v1/release", "POST", json.dumps({"lease": lease}).encode())


def test_workers_share_slots_and_a_killed_one_takes_none_with_it() -> None:
    with serving("--workers", "2") as (service, rules):
        granted = leases(service, 12)
        assert len(granted) == 8
        assert service.counted("penstock_slots_in_use") == 8
        assert service.counted("penstock_slots_refused_total") == 4
        victim = service.workers[0]
        os.kill(victim, signal.SIGKILL)
        wait_until(
            lambda: len(service.workers) == 2 and victim not in service.workers,
            "the worker starts again",
            PATIENCE,
        )
        assert service.check(USER).status == 429
        # Every connection may be another worker's: any of them can release any lease.
        assert [release(service, lease).status for lease in granted[:4]] == [200] * 4
        assert [json.loads(release(service, granted[0]).body)] == [{"released": False}]
        assert len(leases(service, 6)) == 4
        rules.write_text(RULES % 3)
        wait_until(
            lambda: "concurrency=3" in json.dumps(service.told("/v1/rules")), "a reload", PATIENCE
        )
        assert service.check(USER).status == 429


def test_a_service_that_starts_again_knows_its_leases_if_it_has_a_secret() -> None:
    folder = new_folder()
    (folder / "secret").write_text("0123456789abcdef\n")
    store = f"shared:{folder / 'store'}"
    options = ("--store", store, "--lease-secret-file", str(folder / "secret"))
    with serving(*options) as (service, _):
        (lease,) = leases(service, 1)
    with serving("--store", store) as (service, _):
        answer = release(service, lease)
        assert answer.status == 404
        assert b"unknown lease" in answer.body
    with serving(*options) as (service, _):
        assert json.loads(release(service, lease).body) == {"released": True}


def test_a_secret_that_is_too_short_is_an_error_at_the_start() -> None:
    folder = new_folder()
    (folder / "secret").write_text("short")
    service = Penstock(None, "--lease-secret-file", str(folder / "secret"))
    service.said("has 5 bytes, and 16 is the least")
    assert service.process.wait(PATIENCE) == 1
    service.end()
