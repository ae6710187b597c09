"""LiveLog: decisions on requests that an operator looks for, while he does, and no others."""

from __future__ import annotations

import logging
from typing import Any

import pytest

pytest.importorskip("yaml")

from penstock.async_gate import AsyncGate
from penstock.metrics import Hashed, Recorder
from penstock.running.live_log import MOST_KEPT, LiveLog
from penstock.service.service import Observer, Service
from penstock.stores.memory import MemoryStore
from penstock.testing import FakeClock

RULES = """
domain: api
descriptors:
  - {key: user, limits: 2/hour}
  - {key: api_key, limits: 2/hour}
  - {key: path, limits: 1000000/hour}
"""


class Site:
    def __init__(self, **options: Any) -> None:
        self.clock = FakeClock(1_700_000_000 * 10**9)
        self.gate = AsyncGate.from_rules(RULES, MemoryStore(clock=self.clock), clock=self.clock)
        self.recorder = Recorder()
        self.service = Service(self.gate, observer=self.recorder)
        self.observers: list[Observer | None] = []
        self.log = LiveLog(
            "0", self.gate.switches, self.recorder, self.observe, clock=self.clock, **options
        )

    def observe(self, observer: Observer | None) -> None:
        self.observers.append(observer)
        self.service.observe(observer)

    def on(self, key: str, value: str, lasts: str = "10m") -> None:
        self.gate.switches.log(key, value, lasts)
        self.log.look()

    def request(self, *descriptors: dict[str, str]) -> bool:
        from penstock.rules.deciding.verdict import Descriptor

        return bool(self.service.check("api", [Descriptor.of(each) for each in descriptors]))

    def rows(self, after: int = 0) -> list[dict[str, Any]]:
        return self.log.rows({"0": after})


def test_only_what_is_looked_for(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    logging.getLogger("penstock").setLevel(logging.ERROR)
    try:
        site.request({"user": "42"})
        site.on("user", "42")
        site.request({"user": "7"})
        site.request({"path": "/a"}, {"user": "42"})
        site.request({"user": "42"})
    finally:
        logging.getLogger("penstock").setLevel(logging.NOTSET)
    rows = site.rows()
    assert [(row["decision"], row["keys"]) for row in rows] == [
        ("allowed", ["path=/a", "user=42"]), ("refused", ["user=42"]),
    ]  # fmt: skip
    assert (rows[1]["rule"], rows[1]["limit"], rows[1]["reason"]) == ("api/user", "2/hour", "limit")
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["allowed", "refused"], "at any log level"
    assert site.rows(rows[0]["number"]) == rows[1:]


def test_plans_are_logged_as_well() -> None:
    """What Envoy asks again and again is decided by a plan."""
    site = Site()
    site.on("user", "42")
    from penstock.rules.deciding.verdict import Descriptor

    plan = site.service.plan("api", [Descriptor.of({"user": "42"})])
    assert plan is not None
    for _ in range(3):
        site.service.hit(plan)
    assert [row["decision"] for row in site.rows()] == ["allowed", "allowed", "refused"]


def test_it_ends_by_itself_and_then_costs_nothing() -> None:
    site = Site()
    site.on("user", "42", "1m")
    site.request({"user": "42"})
    site.clock.advance(60)
    site.request({"user": "42"})
    assert len(site.rows()) == 1
    assert site.observers[-1] is site.recorder
    site.on("user", "42")
    site.gate.switches.clear_log("user", "42")
    site.log.look()
    assert site.observers[-1] is site.recorder


def test_it_is_bounded() -> None:
    site = Site()
    site.on("path", "/a")
    for _ in range(300):
        site.request({"path": "/a"})
    assert (len(site.rows()), site.log.left_out) == (100, 200)
    for _ in range(10):
        site.clock.advance(1)
        for _ in range(100):
            site.request({"path": "/a"})
    assert len(site.rows()) == MOST_KEPT
    assert [row["left_out"] for row in site.log.rows({}) if "left_out" in row] == []
    assert site.log.left_out == 200


def test_what_was_left_out_is_said_in_the_next_line() -> None:
    site = Site()
    site.on("path", "/a")
    for _ in range(101):
        site.request({"path": "/a"})
    site.clock.advance(1)
    site.request({"path": "/a"})
    assert site.rows()[-1]["left_out"] == 1


def test_keys_are_masked_as_in_logs() -> None:
    site = Site()
    site.on("api_key", "hunter2hunter2")
    site.request({"api_key": "hunter2hunter2"})
    assert site.rows()[0]["keys"] == ["api_key=***"]
    site = Site(format_key=Hashed("salt"))
    site.on("user", "42")
    site.request({"user": "42"})
    assert site.rows()[0]["keys"] == [f"user={Hashed('salt').value('42')}"]
