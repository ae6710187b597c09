"""Every endpoint, as it is meant and as it is not, over real sockets."""

from __future__ import annotations

import json
import logging
from typing import Any
from urllib.parse import quote

import pytest

from admin.conftest import Site, Start
from penstock import _mode
from penstock.admin import handlers
from penstock.admin.endpoints import ENDPOINTS
from penstock.async_gate import AsyncGate
from penstock.metrics.snapshot import Snapshot


async def remaining(site: Site, user: str = "42") -> list[int]:
    response = await site.ask("GET", f"/v1/counters?descriptor=user={user}")
    return [each["remaining"] for each in response.json()["counters"][0]["limits"]]


# Looking -----------------------------------------------------------------------------------


async def test_the_index_lists_all(site: Site) -> None:
    text = (await site.ask("GET", "/")).text
    for each in ENDPOINTS:
        assert f"{each.method:6} {each.path} " in text


async def test_rlconfig_has_a_line_for_each_rule(site: Site) -> None:
    response = await site.ask("GET", "/rlconfig")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.text.splitlines() == [
        "api/user: limits=5/second & 100/hour, shadow_mode: false",
        "api/plan=free/user: unit=MINUTE requests_per_unit=10, shadow_mode: false",
        "api/batch: limits=30/hour, shadow_mode: false",
        "api/open: unlimited, shadow_mode: false",
    ]


async def test_rlconfig_shows_rules_as_they_are_in_force(site: Site) -> None:
    async def lines() -> list[str]:
        text = (await site.ask("GET", "/rlconfig")).text
        return [line.partition(", ")[2] for line in text.splitlines()]

    await site.ask("PUT", "/v1/mode", {"mode": "shadow", "name": "api/plan=free/user"})
    await site.ask("PUT", "/v1/mode", {"mode": "off", "name": "api/batch"})
    await site.ask("PUT", "/v1/mode", {"mode": "off", "name": "by_second"})
    for user in ("42", "43"):
        await site.ask("PUT", "/v1/overrides", {"key": "user", "value": user, "factor": 2})
    await site.ask("PUT", "/v1/overrides", {"key": "plan", "value": "gold", "factor": 2})
    await site.ask("PUT", "/v1/overrides", {"key": "plan", "value": "free", "factor": 2})
    assert await lines() == [
        "shadow_mode: false, by_second: off, overrides: 2",
        "shadow_mode: true, overrides: 3",
        "shadow_mode: false, switched: off",
        "shadow_mode: false",
    ]
    (domain,) = (await site.ask("GET", "/v1/rules")).json()["domains"]
    assert [(rule["mode"], rule["overrides"]) for rule in domain["rules"]] == [
        ("enforce", 2), ("shadow", 3), ("off", 0), ("enforce", 0),
    ]  # fmt: skip
    await site.ask("PUT", "/v1/mode", {"mode": "shadow"})
    assert [line.startswith("shadow_mode: true") for line in await lines()] == [
        True, True, False, True,
    ]  # fmt: skip
    await site.ask("PUT", "/v1/mode", {"mode": "off"})
    assert all("switched: off" in line for line in await lines())
    await site.ask("DELETE", "/v1/mode")
    await site.ask("DELETE", "/v1/mode?name=api/plan=free/user")
    assert (await lines())[1] == "shadow_mode: false, overrides: 3"


async def test_rules_as_json(site: Site) -> None:
    await site.ask("PUT", "/v1/mode", {"mode": "off", "name": "by_hour"})
    await site.ask("PUT", "/v1/mode", {"mode": "shadow", "name": "api/open"})
    body = (await site.ask("GET", "/v1/rules")).json()
    assert body["files"] == [str(site.rules)]
    (domain,) = body["domains"]
    user, free, batch, open_to_all = domain["rules"]
    assert user["limits"] == [
        {"name": "by_second", "limit": "5/second", "switched": None},
        {"name": "by_hour", "limit": "100/hour", "switched": "off"},
    ]
    assert user["place"] == f"{site.rules}:3:5"
    assert free["id"] == "api/plan=free/user"
    assert batch["cost"] == 3
    assert (open_to_all["unlimited"], open_to_all["switched"]) == (True, "shadow")


async def test_every_kind_of_rule_is_told(start: Start) -> None:
    site = await start()
    site.rules.write_text("""\
domain: api
allow: { ip: [192.0.2.1] }
deny: { ip: [198.51.100.0/24] }
descriptors:
  - key: a
    plans: { by: a, tiers: { free: 1/hour, pro: [] }, default: free }
  - key: b
    limits: 5/hour
    split: { percent: 10, limits: 6/hour }
  - key: c
    limits: 5/hour
    schedule: [{ days: [sat, sun], from: "22:00", to: "06:00", tz: Asia/Taipei, limits: 1/hour }]
  - key: d
    quota_mode: true
    shadow_mode: true
    rate_limit: { name: x, unit: day, requests_per_unit: 5, replaces: [{ name: other }] }
  - key: e
    rate_limit: { unit: second, requests_per_unit: 0 }
""")
    assert (await site.ask("POST", "/v1/rules/reload")).status_code == 200
    (domain,) = (await site.ask("GET", "/v1/rules")).json()["domains"]
    a, b, c, d, e = domain["rules"]
    assert domain["allow"] == {"ip": ["192.0.2.1"]}
    assert domain["deny"] == {"ip": ["198.51.100.0/24"]}
    assert a["plans"]["tiers"]["pro"] == []
    assert a["plans"]["tiers"]["free"][0]["limit"] == "1/hour"
    assert b["split"]["percent"] == 10
    assert c["schedule"][0]["days"] == ["sat", "sun"]
    assert (c["schedule"][0]["from"], c["schedule"][0]["to"]) == ("22:00", "06:00")
    assert (d["quota"], d["shadow"], d["replaces"], d["name"]) == (True, True, ["other"], "x")
    assert e["closed"] is True
    assert (await site.ask("GET", "/rlconfig")).text.splitlines()[-2:] == [
        "api/d: unit=DAY requests_per_unit=5, shadow_mode: true, quota_mode: true",
        "api/e: requests_per_unit=0, shadow_mode: false",
    ]


async def test_stats_by_the_names_of_envoys_service(site: Site) -> None:
    for outcome, count in (("allowed", 5), ("near_limit", 2), ("refused", 3), ("shadowed", 1)):
        site.snapshot.set("penstock_decisions_total", ("api", "api/plan=free/user", outcome), count)
    site.snapshot.set("penstock_decisions_total", ("api", "api/x\n: y", "refused"), 1)
    site.snapshot.set("penstock_rules_loaded_total", (), 4)
    lines = (await site.ask("GET", "/stats")).text.splitlines()
    name = "ratelimit.service.rate_limit.api.plan_free.user"
    assert [line for line in lines if line.startswith(name)] == [
        f"{name}.near_limit: 2", f"{name}.over_limit: 4", f"{name}.shadow_mode: 1",
        f"{name}.total_hits: 11", f"{name}.within_limit: 7",
    ]  # fmt: skip
    assert "ratelimit.service.config_load_success: 4" in lines
    assert "ratelimit.service.rate_limit.api.x__ y.over_limit: 1" in lines


async def test_metrics_are_what_was_given(site: Site) -> None:
    response = await site.ask("GET", "/metrics")
    assert response.content == b"penstock_rules 4\n"
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_health_of_each_component(site: Site) -> None:
    assert (await site.ask("GET", "/healthcheck")).text == "OK"
    response = await site.ask("GET", "/v1/health")
    assert response.json() == {"healthy": True, "components": {"": "up", "store": "up"}}
    site.up["store"] = False
    plain = await site.ask("GET", "/healthcheck")
    assert (plain.status_code, plain.text) == (500, "down: store")
    response = await site.ask("GET", "/v1/health")
    assert (response.status_code, response.json()["components"]["store"]) == (503, "down")


async def test_version(site: Site) -> None:
    site.clock.advance(90.5)
    body = (await site.ask("GET", "/v1/version")).json()
    assert body["core"] == _mode.describe()
    assert body["uptime"] == 90.5
    assert (body["rules"], body["domains"]) == (4, ["api"])
    assert (body["wire"], body["store"]) == ("nghttp2", "memory")


async def test_the_store_and_its_leases(site: Site) -> None:
    assert (await site.ask("GET", "/v1/store")).json() == {"store": "memory", "leases": None}
    for name, value in (("leases", 2), ("lease_units", 30), ("lease_calls_total", 40)):
        site.snapshot.set(f"penstock_{name}", ("redis",), value)
    for decided, value in (("here", 900), ("directly", 100)):
        site.snapshot.set("penstock_lease_decisions_total", ("redis", decided), value)
    assert (await site.ask("GET", "/v1/store")).json()["leases"] == {
        "keys": 2, "units": 30, "decided_here": 900, "decided_directly": 100, "calls": 40,
        "failures": 0, "granted": 0, "returned": 0, "lapsed": 0, "stretched": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lease", "shown"),
    [(None, None), (True, True), (False, False), ({"horizon": "20ms"}, {"horizon": 0.02})],
)
async def test_the_lease_of_a_rule(site: Site, lease: Any, shown: Any) -> None:
    step = {"key": "user", "limits": "100/second", "lease": lease}
    site.gate.replace({"domain": "api", "descriptors": [step]})
    (domain,) = (await site.ask("GET", "/v1/rules")).json()["domains"]
    assert domain["rules"][0].get("lease") == shown


async def test_top(site: Site) -> None:
    assert (await site.ask("GET", "/v1/top?n=5")).json()["rules"] == [["api/user", 7]]
    assert (await site.ask("GET", "/v1/top?n=0")).status_code == 400


async def test_sources_may_be_awaited_and_may_be_missing(start: Start) -> None:
    site = await start()

    async def later() -> bytes:
        return b"later"

    site.api._handlers._sources = handlers.Sources(metrics=later)
    assert (await site.ask("GET", "/metrics")).text == "later"
    for path in ("/stats", "/v1/store", "/v1/top"):
        assert (await site.ask("GET", path)).status_code == 501
    assert (await site.ask("GET", "/healthcheck")).text == "OK"


async def test_head_is_get_without_its_body(site: Site) -> None:
    response = await site.ask("HEAD", "/v1/rules")
    assert (response.status_code, response.content) == (200, b"")


@pytest.mark.parametrize("path", ["/", "/v1/rules", "/metrics", "/v1/counters", "/rlconfig"])
async def test_no_answer_is_for_a_cache(site: Site, path: str) -> None:
    response = await site.ask("GET", path)
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"


# Counters ----------------------------------------------------------------------------------


async def test_a_look_counts_nothing(site: Site) -> None:
    for _ in range(3):
        await site.gate.check({"user": "42"})
    for _ in range(5):
        assert await remaining(site) == [2, 97]
    body = (await site.ask("GET", "/v1/counters?domain=api&descriptor=user=42")).json()
    (told,) = body["counters"]
    assert (told["rule"], told["reason"], told["shadow"]) == ("api/user", "limit", False)
    assert told["descriptor"] == [["user", "42"]]
    assert told["limits"][0] == {
        "name": "by_second", "limit": "5/second", "allowed": True, "remaining": 2,
        "retry_after": 0.0, "reset_after": 0.6, "overridden": False, "degraded": False,
            "holders": None,
    }  # fmt: skip


async def test_a_look_says_what_the_next_request_would_get(site: Site) -> None:
    for _ in range(5):
        await site.gate.check({"user": "42"})
    body = (await site.ask("GET", "/v1/counters?descriptor=user=42&limit=by_second")).json()
    (limit,) = body["counters"][0]["limits"]
    assert (limit["allowed"], limit["retry_after"]) == (False, 0.2)
    assert not await site.gate.check({"user": "42"})


@pytest.mark.parametrize(
    "text",
    ["plan=free,user=7", '{"plan":"free","user":"7"}', '[["plan","free"],["user","7"]]'],
)
async def test_how_a_descriptor_may_be_written(site: Site, text: str) -> None:
    await site.gate.check({"plan": "free", "user": "7"})
    response = await site.ask("GET", f"/v1/counters?descriptor={quote(text)}")
    (told,) = response.json()["counters"]
    assert (told["rule"], told["limits"][0]["remaining"]) == ("api/plan=free/user", 9)


@pytest.mark.parametrize("value", ["a=b", "ünïcode", "a b", "", "a%b", "😀"])
async def test_values_of_all_kinds(site: Site, value: str) -> None:
    await site.gate.check({"user": value})
    assert await remaining(site, quote(value)) == [4, 99]


async def test_several_descriptors_and_none_that_match(site: Site) -> None:
    query = "descriptor=user=1&descriptor=who=2&descriptor=open=3"
    counters = (await site.ask("GET", f"/v1/counters?{query}")).json()["counters"]
    assert [(each["rule"], each["reason"], len(each["limits"])) for each in counters] == [
        ("api/user", "limit", 2), (None, "unmatched", 0), ("api/open", "unlimited", 0),
    ]  # fmt: skip


async def test_reset_and_refund(site: Site) -> None:
    for _ in range(4):
        await site.gate.check({"user": "42"}, {"batch": "7"})
    body = {"descriptors": [{"user": "42"}], "hits": 2}
    done = (await site.ask("POST", "/v1/counters/refund", body)).json()
    assert [each["remaining"] for each in done["before"][0]["limits"]] == [1, 96]
    assert [each["remaining"] for each in done["after"][0]["limits"]] == [3, 98]
    # A request of this rule costs 3.
    await site.ask("POST", "/v1/counters/refund", {"descriptors": [{"batch": "7"}]})
    look = (await site.ask("GET", "/v1/counters?descriptor=batch=7")).json()
    assert look["counters"][0]["limits"][0]["remaining"] == 30 - 4 * 3 + 3
    one = {"descriptors": [{"user": "42"}], "limit": "by_hour", "domain": "api"}
    assert (await site.ask("POST", "/v1/counters/reset", one)).status_code == 200
    assert await remaining(site) == [3, 100]
    await site.ask("POST", "/v1/counters/reset", {"descriptors": [{"user": "42"}]})
    assert await remaining(site) == [5, 100]
    assert [line["action"] for line in site.audited()] == [
        "counters.refund", "counters.refund", "counters.reset", "counters.reset",
    ]  # fmt: skip


async def test_counters_under_an_override_are_those_that_decide(site: Site) -> None:
    await site.ask("PUT", "/v1/overrides", {"key": "user", "value": "42", "factor": 2})
    await site.gate.check({"user": "42"})
    assert await remaining(site) == [9, 199]
    look = (await site.ask("GET", "/v1/counters?descriptor=user=42")).json()
    assert all(each["overridden"] for each in look["counters"][0]["limits"])


async def test_a_look_brings_over_what_was_used_of_a_limit_that_changed(site: Site) -> None:
    for _ in range(4):
        await site.gate.check({"plan": "free", "user": "7"})
    site.rules.write_text(site.rules.read_text().replace("unit: 10", "unit: 20"))
    assert (await site.ask("POST", "/v1/rules/reload")).status_code == 200
    look = (await site.ask("GET", "/v1/counters?descriptor=plan=free,user=7")).json()
    assert look["counters"][0]["limits"][0]["remaining"] == 20 - 8


async def test_what_was_reset_or_given_back_stays_so_in_other_processes(site: Site) -> None:
    text = site.rules.read_text()
    other = AsyncGate.from_file(site.rules, store=site.gate.store, clock=site.clock)
    for user in ("7", "8"):
        for _ in range(10):
            await site.gate.check({"plan": "free", "user": user})
    site.rules.write_text(text.replace("unit: 10", "unit: 20"))
    other.reload()
    assert (await site.ask("POST", "/v1/rules/reload")).status_code == 200
    reset = {"descriptors": [{"plan": "free", "user": "7"}]}
    assert (await site.ask("POST", "/v1/counters/reset", reset)).status_code == 200
    refund = {"descriptors": [{"plan": "free", "user": "8"}], "hits": 20}
    assert (await site.ask("POST", "/v1/counters/refund", refund)).status_code == 200
    for user in ("7", "8"):
        verdict = await other.check({"plan": "free", "user": user})
        assert verdict.decision.remaining == 19


# Switches ----------------------------------------------------------------------------------


async def test_the_kill_switch_and_back(site: Site) -> None:
    for _ in range(5):
        await site.gate.check({"user": "42"})
    assert not await site.gate.check({"user": "42"})
    done = await site.ask("PUT", "/v1/mode", {"mode": "off"})
    assert done.json() == {"before": "enforce", "after": "off", "workers": 1, "in_force": "off"}
    assert await site.gate.check({"user": "42"})
    done = await site.ask("DELETE", "/v1/mode")
    assert done.json() == {
        "before": "off", "after": "enforce", "workers": 1, "in_force": "enforce",
    }  # fmt: skip
    assert not await site.gate.check({"user": "42"})


@pytest.mark.parametrize("name", ["api/user", "by_second", "api/plan=free/user"])
async def test_the_switch_of_one_rule_or_limit(site: Site, name: str) -> None:
    await site.ask("PUT", "/v1/mode", {"mode": "shadow", "name": name})
    assert (await site.ask("GET", "/v1/switches")).json()["modes"] == {name: "shadow"}
    done = await site.ask("DELETE", f"/v1/mode?name={quote(name)}")
    assert done.json() == {
        "before": "shadow", "after": None, "workers": 1, "in_force": "enforce",
    }  # fmt: skip
    assert site.gate.switches.calm


async def test_shadow_for_one_rule_lets_it_refuse_nobody(site: Site) -> None:
    await site.ask("PUT", "/v1/mode", {"mode": "shadow", "name": "api/user"})
    assert all([await site.gate.check({"user": "42"}) for _ in range(9)])


async def test_an_override_runs_out(site: Site) -> None:
    body = {"key": "user", "value": "42", "limit": "1/hour", "lasts": "10m"}
    free = {"plan": "free", "user": "42"}
    done = (await site.ask("PUT", "/v1/overrides", body)).json()
    override = {"key": "user", "value": "42", "factor": None, "limit": "1/hour", "left": 600.0}
    assert done == {"before": None, "after": override, "workers": 1}
    assert [bool(await site.gate.check(free)) for _ in range(2)] == [True, False]
    site.clock.advance(599)
    assert (await site.ask("GET", "/v1/overrides")).json() == {
        "overrides": [{**override, "left": 1.0}]
    }
    site.clock.advance(1)
    assert (await site.ask("GET", "/v1/overrides")).json() == {"overrides": []}
    assert await site.gate.check(free)


async def test_an_override_is_taken_back(site: Site) -> None:
    await site.ask("PUT", "/v1/overrides", {"key": "user", "value": "a&b=c", "factor": 0.5})
    done = await site.ask("DELETE", f"/v1/overrides?key=user&value={quote('a&b=c', safe='')}")
    assert done.json()["before"]["factor"] == 0.5
    assert done.json()["after"] is None
    assert site.gate.switches.calm


@pytest.mark.parametrize("which", ["allow", "deny"])
async def test_lists(site: Site, which: str) -> None:
    entry = {"key": "user", "entry": "192.0.2.0/24", "lasts": 60}
    done = await site.ask("PUT", f"/v1/{which}", entry)
    assert done.json()["after"] == {"key": "user", "entry": "192.0.2.0/24", "left": 60.0}
    verdict = await site.gate.check({"user": "192.0.2.7"})
    assert (verdict.allowed, verdict.statuses[0].reason) == (which == "allow", f"{which} list")
    assert len((await site.ask("GET", f"/v1/{which}")).json()["entries"]) == 1
    gone = await site.ask("DELETE", f"/v1/{which}?key=user&entry=192.0.2.0/24")
    assert gone.json()["after"] is None
    assert site.gate.switches.calm


async def test_switches_shows_all(site: Site) -> None:
    await site.ask("PUT", "/v1/mode", {"mode": "shadow", "lasts": "10m"})
    await site.ask("PUT", "/v1/mode", {"mode": "off", "name": "api/user", "lasts": "2m"})
    await site.ask("PUT", "/v1/mode", {"mode": "off", "name": "api/batch"})
    await site.ask("PUT", "/v1/overrides", {"key": "user", "value": "1", "factor": 2})
    await site.ask("PUT", "/v1/log", {"key": "user", "value": "1"})
    await site.ask("PUT", "/v1/allow", {"key": "ip", "entry": "a", "lasts": "1h"})
    await site.ask("PUT", "/v1/deny", {"key": "ip", "entry": "b"})
    site.clock.advance(60)
    assert (await site.ask("GET", "/v1/switches")).json() == {
        "mode": "shadow",
        "mode_left": 540.0,
        "modes": {"api/user": "off", "api/batch": "off"},
        "modes_left": {"api/user": 60.0, "api/batch": None},
        "notes": {},
        "overrides": [{"key": "user", "value": "1", "factor": 2, "limit": None, "left": None}],
        "allow": [{"key": "ip", "entry": "a", "left": 3540.0}],
        "deny": [{"key": "ip", "entry": "b", "left": None}],
        "logged": [{"key": "user", "value": "1", "left": 540.0}],
    }


async def test_a_switch_does_not_lift_the_shadow_mode_of_a_file(site: Site) -> None:
    site.gate.replace(
        "domain: api\ndescriptors: [{key: user, limits: 5/hour, shadow_mode: true}]\n"
    )
    on = await site.ask("PUT", "/v1/mode", {"mode": "enforce", "name": "api/user", "lasts": "1h"})
    assert on.status_code == 409
    assert "api/user is in shadow mode by its file" in on.json()["error"]
    on = await site.ask("DELETE", "/v1/mode?name=api/user")
    assert on.status_code == 404
    assert "shadow mode by its file" in on.json()["error"]
    await site.ask("PUT", "/v1/mode", {"mode": "off", "name": "api/user"})
    on = await site.ask("DELETE", "/v1/mode?name=api/user&why=done")
    assert (on.status_code, on.json()["in_force"]) == (200, "shadow")


async def test_decisions_are_logged_for_a_while_only(site: Site) -> None:
    body = {"key": "user", "value": "42"}
    assert (await site.ask("PUT", "/v1/log", body)).json()["after"] == {**body, "left": 600.0}
    assert site.gate.switches.calm, "decisions cost what they did"
    assert (await site.ask("GET", "/v1/log")).json() == {
        "logged": [{**body, "left": 600.0}], "left_out": 0, "decisions": [],
    }  # fmt: skip
    long = await site.ask("PUT", "/v1/log", {**body, "lasts": "25h"})
    assert (long.status_code, "at most 24h" in long.json()["error"]) == (400, True)
    typo = await site.ask("PUT", "/v1/log", {"key": "usr", "value": "1"})
    assert (typo.status_code, "did you mean 'user'" in typo.json()["error"]) == (400, True)
    site.clock.advance(601)
    assert (await site.ask("GET", "/v1/log")).json()["logged"] == []
    for n in range(handlers.MOST_LOGGED):
        assert (await site.ask("PUT", "/v1/log", {**body, "value": str(n)})).status_code == 200
    most = await site.ask("PUT", "/v1/log", body)
    assert (most.status_code, "the maximum is 20" in most.json()["error"]) == (409, True)


async def test_there_are_at_most_so_many(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "MOST_SWITCHED", 2)
    for path, what, asked in (
        ("/v1/overrides", "overrides", {"key": "user", "value": "{}", "factor": 2}),
        ("/v1/allow", "entries of the allow list", {"key": "user", "entry": "{}"}),
        ("/v1/deny", "entries of the deny list", {"key": "user", "entry": "{}"}),
    ):
        bodies = [{k: str(v).format(n) if v == "{}" else v for k, v in asked.items()}
                  for n in range(4)]  # fmt: skip
        bodies[1]["lasts"] = "1m"
        answers = [await site.ask("PUT", path, body) for body in bodies[:3]]
        assert [answer.status_code for answer in answers] == [200, 200, 409]
        assert f"2 {what} are in force" in answers[2].json()["error"]
        assert (await site.ask("PUT", path, bodies[0])).status_code == 200  # it is there already
        # What has run out makes room.
        site.clock.advance(61)
        statuses = [(await site.ask("PUT", path, body)).status_code for body in bodies[2:]]
        assert statuses == [200, 409]


async def test_an_override_that_its_rules_cannot_count_by_is_refused(site: Site) -> None:
    site.gate.replace(
        """
        domain: api
        descriptors:
          - {key: user, limits: 500000/minute sliding_log}
          - {key: ip, value: 10.*, limits: 500000/minute sliding_log}
        """
    )
    wrong = {"key": "user", "value": "42", "factor": 10}
    answer = await site.ask("PUT", "/v1/overrides", wrong)
    assert answer.status_code == 400
    assert "api/user, 500000/minute sliding_log times 10" in answer.json()["error"]
    assert (await site.ask("GET", "/v1/overrides")).json() == {"overrides": []}
    for right in ({"key": "ip", "value": "192.0.2.1", "factor": 10}, {**wrong, "factor": 2}):
        assert (await site.ask("PUT", "/v1/overrides", right)).status_code == 200


# Rules, and the log ------------------------------------------------------------------------


async def test_reload(site: Site) -> None:
    site.rules.write_text("domain: web\ndescriptors:\n  - { key: ip, limits: 1/hour }\n")
    done = await site.ask("POST", "/v1/rules/reload")
    assert done.json() == {"domains": ["web"], "rules": 1, "workers": 1}
    assert (await site.ask("GET", "/rlconfig")).text.startswith("web/ip: ")
    assert site.audited()[0]["before"] == {"domains": ["api"], "rules": 4}


async def test_wrong_rules_are_told_and_the_old_ones_stay(site: Site) -> None:
    site.rules.write_text("domain: web\ndescriptors:\n  - { kee: ip, limits: 1/houre }\n")
    done = await site.ask("POST", "/v1/rules/reload")
    assert done.status_code == 422
    assert any("unknown key 'kee'" in problem for problem in done.json()["problems"])
    assert (await site.ask("GET", "/v1/version")).json()["domains"] == ["api"]
    (line,) = site.audited()
    assert (line["result"], line["status"]) == ("refused", 422)


async def test_the_log_level(site: Site) -> None:
    await site.ask("PUT", "/v1/log-level", {"level": "debug"})
    assert logging.getLogger("penstock").level == logging.DEBUG
    done = await site.ask("PUT", "/v1/log-level", {"level": "error"})
    assert done.json() == {"before": "debug", "after": "error", "workers": 1}
    assert (await site.ask("GET", "/v1/log-level")).json() == {"level": "error"}


# Bad input ---------------------------------------------------------------------------------

C, R, F = "/v1/counters", "/v1/counters/reset", "/v1/counters/refund"
M, V, A, L = "/v1/mode", "/v1/overrides", "/v1/allow", "/v1/log-level"
ONE = {"descriptors": [{"user": "42"}]}
PAIR = {"key": "user", "value": "42"}
BAD: list[tuple[str, str, Any, int, str]] = [
    ("GET", "/nothing", None, 404, "nothing at /nothing"),
    ("GET", "//v1/rules", None, 404, "nothing at"),
    ("POST", "/v1/rules", None, 405, "allows GET, HEAD, not POST"),
    ("PATCH", M, None, 405, "allows DELETE, PUT, not PATCH"),
    ("GET", "/v1/rules?x=1", None, 400, "unknown parameter 'x': there are none here"),
    ("GET", "/v1/balance", None, 400, "account is missing"),
    ("GET", "/v1/balance?account=acme", None, 501, "this service has no ledger"),
    ("GET", "/v1/overview?after=x", None, 400, "after must be a whole number, not 'x'"),
    ("GET", "/v1/overview", None, 501, "without this feature"),
    ("GET", "/v1/history?rules=a", None, 400, "unknown parameter 'rules': use rule, span"),
    ("PUT", "/v1/rules/files", {"files": 5}, 400, "files must be an object"),
    ("PUT", "/v1/rules/files", {"files": {"a": 5}}, 400, "the file 'a' must be a string"),
    ("POST", "/v1/rules/try", {}, 400, "needs 'files'"),
    ("GET", "/v1/top?n=x", None, 400, "n must be a whole number, not 'x'"),
    ("GET", "/v1/who?key=user", None, 400, "the parameter value is missing"),
    (
        "GET",
        "/v1/who?key=usr&value=1",
        None,
        400,
        "no rule has the key 'usr' (did you mean 'user'?)",
    ),
    ("GET", "/v1/who?key=user&value=1&others=x", None, 400, "a descriptor is key=value"),
    ("GET", "/v1/log?after=0", None, 400, "after is worker:number,worker:number, not '0'"),
    ("GET", "/v1/log?after=0:x", None, 400, "after must be a whole number"),
    ("PUT", "/v1/log", {"key": "user"}, 400, "needs 'value'"),
    ("DELETE", "/v1/log?key=user&value=1", None, 404, "nothing to remove"),
    ("GET", "/v1/changes?limit=0", None, 400, "limit must be from 1 to 1000, not 0"),
    ("GET", "/v1/changes", None, 501, "without this feature"),
    ("POST", "/v1/undo", {}, 400, "needs 'number'"),
    ("POST", "/v1/undo", {"number": 0}, 400, "number must be at least 1"),
    ("GET", "/v1/top?n=-1", None, 400, "n must be a whole number"),
    ("GET", "/v1/top?n=1001", None, 400, "n must be from 1 to 1000"),
    ("GET", "/v1/top?n=1&n=2", None, 400, "n was given 2 times"),
    ("GET", "/v1/top?n=" + "9" * 5000, None, 400, "n must be a whole number"),
    ("GET", C, None, 400, "the parameter descriptor is missing"),
    ("GET", f"{C}?descriptor=", None, 400, "a descriptor is key=value"),
    ("GET", f"{C}?descriptor=user", None, 400, "a descriptor is key=value"),
    ("GET", f"{C}?descriptor==x", None, 400, "a descriptor is key=value"),
    ("GET", f"{C}?descriptor=user=1,", None, 400, "a descriptor is key=value"),
    ("GET", f"{C}?descriptor=%7B", None, 400, "is not JSON"),
    ("GET", f"{C}?descriptor=%5B%5D", None, 400, "at least one pair"),
    ("GET", f"{C}?descriptor=%5B1%5D", None, 400, "a tuple (key, value)"),
    ("GET", f"{C}?descriptor=" + "%5B" * 2000, None, 400, "is not JSON"),
    ("GET", f"{C}?descriptor=%ff%fe=1", None, 400, "the query cannot be read"),
    ("GET", f"{C}?descriptor=user=1&domain=nope", None, 400, "no domain 'nope'"),
    ("GET", f"{C}?descriptor=user=1&domain=", None, 400, "a domain is a non-empty text"),
    ("GET", f"{C}?" + "&".join(["descriptor=user=1"] * 101), None, 400, "at most 100"),
    ("GET", f"{C}?" + "&".join(["descriptor=a=1"] * 201), None, 400, "cannot be read"),
    ("GET", f"{C}?user", None, 400, "the query cannot be read"),
    ("POST", R, None, 400, "the body must be an object"),
    ("POST", R, b"", 400, "the body must be an object, not None"),
    ("POST", R, b"{", 400, "the body is not JSON"),
    ("POST", R, b"\xff", 400, "the body is not JSON"),
    ("POST", R, b"[" * 100_000, 400, "the body is not JSON"),
    ("POST", R, [], 400, "the body must be an object"),
    ("POST", R, {}, 400, "needs 'descriptors'"),
    ("POST", R, {"descriptors": []}, 400, "descriptors must not be empty"),
    ("POST", R, {"descriptors": {}}, 400, "descriptors must be a list"),
    ("POST", R, {"descriptors": [{}]}, 400, "at least one pair"),
    ("POST", R, {"descriptors": [1]}, 400, "a descriptor must be an object, not 1"),
    ("POST", R, {"descriptors": [{"user": 42}]}, 400, "key and value are texts"),
    ("POST", R, {"descriptors": [{"user": "1"}] * 101}, 400, "at most 100"),
    ("POST", R, {**ONE, "hits": 1}, 400, "has unknown 'hits'"),
    ("POST", R, {**ONE, "domain": ""}, 400, "domain must not be empty"),
    ("POST", R, {**ONE, "domain": 5}, 400, "domain must be a string"),
    ("POST", R, {**ONE, "domain": "nope"}, 400, "no domain 'nope'"),
    ("POST", R, {**ONE, "limit": "nope"}, 400, "nothing is counted for user=42"),
    ("POST", R, {"descriptors": [{"who": "1"}]}, 400, "nothing is counted for who=1: unmatched"),
    ("POST", R, {"descriptors": [{"user": "1"}, {"open": "1"}]}, 400, "unlimited"),
    ("POST", F, {**ONE, "hits": 0}, 400, "hits must be at least 1"),
    ("POST", F, {**ONE, "hits": -1}, 400, "hits must be at least 1"),
    ("POST", F, {**ONE, "hits": 1.5}, 400, "hits must be a whole number"),
    ("POST", F, {**ONE, "hits": True}, 400, "hits must be a whole number"),
    ("POST", F, {**ONE, "hits": 10**400}, 400, "hits must be at most"),
    ("PUT", M, {}, 400, "needs 'mode'"),
    ("PUT", M, {"mode": "on"}, 400, "mode must be one of enforce, shadow, off"),
    ("PUT", M, {"mode": None}, 400, "mode must be a string"),
    ("PUT", M, {"mode": "off", "name": ""}, 400, "name must not be empty"),
    ("PUT", M, {"mode": "off", "name": "nope"}, 404, "there is no rule or limit 'nope'"),
    ("PUT", M, {"mode": "off", "nam": "x"}, 400, "has unknown 'nam': use mode, name"),
    ("DELETE", f"{M}?name=api/user", None, 404, "nothing to remove"),
    ("DELETE", f"{M}?mode=off", None, 400, "unknown parameter 'mode'"),
    ("PUT", V, PAIR, 400, "a factor or a limit"),
    ("PUT", V, {**PAIR, "factor": 2, "limit": "1/hour"}, 400, "a factor or a limit"),
    ("PUT", V, {**PAIR, "factor": 0}, 400, "factor must be above 0"),
    ("PUT", V, {**PAIR, "factor": "2"}, 400, "factor must be a number"),
    ("PUT", V, {**PAIR, "factor": True}, 400, "factor must be a number"),
    ("PUT", V, b'{"key":"a","value":"b","factor":NaN}', 400, "NaN is not a number"),
    ("PUT", V, b'{"key":"a","value":"b","factor":1e999}', 400, "factor must be at most"),
    ("PUT", V, {**PAIR, "factor": 10**400}, 400, "factor must be at most"),
    ("PUT", V, {**PAIR, "limit": "lots"}, 400, "does not start with a number"),
    ("PUT", V, {**PAIR, "factor": 2, "lasts": "soon"}, 400, "lasts 'soon'"),
    ("PUT", V, {**PAIR, "factor": 2, "lasts": 0}, 400, "lasts must be above zero"),
    ("PUT", V, {**PAIR, "factor": 2, "lasts": -1}, 400, "lasts must be above zero"),
    ("PUT", V, {**PAIR, "factor": 2, "lasts": []}, 400, "lasts must be a string or a number"),
    ("PUT", V, {"key": "", "value": "x", "factor": 2}, 400, "key must not be empty"),
    ("PUT", V, {"key": "user", "factor": 2}, 400, "needs 'value'"),
    ("DELETE", V, None, 400, "the parameter key is missing"),
    ("DELETE", f"{V}?key=user&value=1", None, 404, "nothing to remove"),
    ("PUT", A, {"key": "ip"}, 400, "needs 'entry'"),
    ("PUT", A, {"key": "ip", "entry": "10.0.0.0/99"}, 400, "its length is too large"),
    ("PUT", "/v1/deny", {"key": "ip", "entry": 5}, 400, "entry must be a string"),
    ("DELETE", f"{A}?key=ip&entry=1", None, 404, "nothing to remove"),
    ("PUT", L, {"level": "loud"}, 400, "level must be one of debug, info, warning, error"),
    ("PUT", L, {"level": 10}, 400, "level must be a string"),
    ("POST", "/v1/rules/reload?x=1", None, 400, "unknown parameter 'x'"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "error"), BAD)
async def test_bad_input(
    site: Site, method: str, path: str, body: Any, status: int, error: str
) -> None:
    response = await site.ask(method, path, body)
    assert (response.status_code, error in response.json()["error"]) == (status, True), (
        response.text
    )
    assert site.gate.switches.calm
    known = {(each.method, each.path) for each in ENDPOINTS if each.action}
    if (method, path.partition("?")[0]) in known:
        # What was tried is on record.
        (line,) = site.audited()
        assert (line["result"], line["status"]) == ("refused", status)
        assert error in line["error"]
    else:
        assert site.audited() == []


async def test_a_body_that_is_too_large_is_refused(site: Site) -> None:
    response = await site.ask("PUT", "/v1/mode", b" " * 300_000)
    assert response.status_code == 413


async def test_the_table_tries_every_change_and_every_query() -> None:
    tried = {(method, path.partition("?")[0]) for method, path, *_ in BAD}
    wanted = {
        (each.method, each.path)
        for each in ENDPOINTS
        if each.action or each.query
        if each.path != "/v1/deny" or each.method == "PUT"  # as with allow
    }
    assert wanted <= tried


async def test_lone_surrogates_do_no_harm(site: Site) -> None:
    body = b'{"key":"user","value":"\\ud800","factor":2}'
    assert (await site.ask("PUT", "/v1/overrides", body)).status_code == 200
    assert (await site.ask("GET", "/v1/switches")).status_code == 200
    assert json.loads(site.audit_file.read_text())["asked"]["value"] == "\ud800"


async def test_an_empty_snapshot_has_stats(site: Site) -> None:
    site.snapshot = Snapshot(0)
    assert (await site.ask("GET", "/stats")).text.splitlines() == [
        "ratelimit.service.config_load_error: 0", "ratelimit.service.config_load_success: 0",
    ]  # fmt: skip
