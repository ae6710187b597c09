"""``GET /v1/who``: every rule that a value touches, whatever other pairs it comes with."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("yaml")

from admin.conftest import Site, Start
from penstock.admin.commands import Answer, Command
from penstock.admin.control import LocalControl
from penstock.async_gate import AsyncGate
from penstock.clock import SECOND
from penstock.metrics.recorder import Recorder
from penstock.testing import FakeClock

RULES = """
domain: api
deny: {ip: [192.0.2.9]}
descriptors:
  - {key: user, limits: 2/hour}
  - key: tenant
    descriptors:
      - {key: path, limits: 1/hour}
      - {key: plan, value: free, limits: 5/hour}
  - {key: ip, limits: 3/hour}
"""


class TwoWorkers(LocalControl):
    """Both have the gate, and each what it has refused itself."""

    def __init__(self, gate: AsyncGate, clock: FakeClock) -> None:
        super().__init__(gate)
        self.recorders = [Recorder(clock=clock), Recorder(clock=clock)]

    async def apply(self, command: Command) -> list[Answer]:
        if command["do"] != "refusals":
            return await super().apply(command)
        pair = command["key"], command["value"]
        return [{"ok": True, "result": each.refusals.of(*pair)} for each in self.recorders]


@pytest.fixture
async def control(site: Site) -> TwoWorkers:
    site.gate.replace(RULES)
    control = TwoWorkers(site.gate, site.clock)
    site.api._handlers._control = control
    return control


async def request(site: Site, recorder: Recorder, *descriptors: dict[str, str]) -> bool:
    verdict = await site.gate.check(*descriptors)
    recorder.decided("api", verdict, 0.0)
    return verdict.allowed


async def who(site: Site, key: str, value: str, others: str = "") -> list[dict[str, Any]]:
    more = f"&others={others}" if others else ""
    response = await site.ask("GET", f"/v1/who?key={key}&value={value}{more}")
    assert response.status_code == 200, response.text
    rows: list[dict[str, Any]] = response.json()["rules"]
    return rows


async def test_since_when_it_is_refused_and_why(site: Site, control: TwoWorkers) -> None:
    one, other = control.recorders
    begin = site.clock.now() / SECOND
    assert [await request(site, one, {"user": "42"}) for _ in range(2)] == [True, True]
    (row,) = await who(site, "user", "42")
    assert (row["rule"], row["refused"], row["reason"]) == ("api/user", None, "limit")
    site.clock.advance(10)
    assert not await request(site, one, {"user": "42"})
    site.clock.advance(5)
    assert not await request(site, other, {"user": "42"})
    (row,) = await who(site, "user", "42")
    assert row["pairs"] == [["user", "42"]]
    assert row["limits"][0]["allowed"] is False
    assert row["refused"] == {
        "since": begin + 10, "last": begin + 15, "count": 2, "reason": "limit", "limit": "2/hour",
    }  # fmt: skip


async def test_other_pairs_come_from_refused_requests(site: Site, control: TwoWorkers) -> None:
    one, other = control.recorders
    rows = await who(site, "tenant", "acme")
    assert [(row["rule"], row["needs"]) for row in rows] == [
        ("api/tenant/plan=free", []), ("api/tenant/path", ["path"]),
    ]  # fmt: skip
    for recorder, path in ((one, "/a"), (other, "/b")):
        assert await request(site, recorder, {"tenant": "acme", "path": path})
        site.clock.advance(1)
        assert not await request(site, recorder, {"tenant": "acme", "path": path})
    rows = [row for row in await who(site, "tenant", "acme") if row["rule"] == "api/tenant/path"]
    assert [row["pairs"][1] for row in rows] == [["path", "/b"], ["path", "/a"]], "the last first"
    assert all(row["refused"]["count"] == 1 and not row["needs"] for row in rows)
    assert not any(row["limits"][0]["allowed"] for row in rows)
    assert await who(site, "tenant", "other") != rows


async def test_other_pairs_come_from_the_question(site: Site, control: TwoWorkers) -> None:
    await request(site, control.recorders[0], {"tenant": "acme", "path": "/a"})
    rows = await who(site, "tenant", "acme", "path=/a")
    (row,) = [row for row in rows if row["rule"] == "api/tenant/path"]
    assert (row["needs"], row["limits"][0]["remaining"]) == ([], 0)


async def test_a_request_is_refused_because_of_another_descriptor(
    site: Site, control: TwoWorkers
) -> None:
    """The user has units left, but its address has not."""
    recorder = control.recorders[0]
    for n in range(3):
        assert await request(site, recorder, {"ip": "192.0.2.1"}, {"user": f"{n}"})
    assert not await request(site, recorder, {"ip": "192.0.2.1"}, {"user": "42"})
    rows = {row["rule"]: row for row in await who(site, "user", "42")}
    assert rows["api/user"]["refused"] is None
    assert rows["api/user"]["limits"][0]["remaining"] == 2
    assert rows["api/ip"]["pairs"] == [["ip", "192.0.2.1"]]
    assert rows["api/ip"]["refused"]["reason"] == "limit"


async def test_a_deny_list_is_a_reason(site: Site, control: TwoWorkers) -> None:
    assert not await request(site, control.recorders[0], {"ip": "192.0.2.9"})
    refused = [row for row in await who(site, "ip", "192.0.2.9") if row["refused"]]
    assert [(row["rule"], row["reason"]) for row in refused] == [(None, "deny list")]
    standing = [row for row in await who(site, "ip", "192.0.2.9") if not row["refused"]]
    assert standing[0]["reason"] == "deny list"


async def test_a_typo_is_refused(site: Site, start: Start) -> None:
    response = await site.ask("GET", "/v1/who?key=usr&value=42")
    assert response.status_code == 400
    assert "no rule has the key 'usr' (did you mean 'user'?)" in response.json()["error"]
