"""What a recorder counts, against real gates."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Gate
from penstock.breaker import CircuitBreaker
from penstock.errors import RulesError
from penstock.events import Damaged, Degraded, Hooks, StoreDown, StoreUp
from penstock.limits import Limit
from penstock.metrics import Hashed, Recorder, Snapshot
from penstock.metrics.families import BOUNDS
from penstock.rules.deciding.verdict import Descriptor, Verdict
from penstock.stores.memory import MemoryStore
from penstock.testing import FakeClock

RULES: dict[str, Any] = {
    "domain": "api",
    "descriptors": [
        {"key": "user", "limits": "5/hour"},
        {"key": "plenty", "limits": "100/hour"},
        {"key": "two", "limits": ["10/hour", "2/day"]},
        {"key": "shadow", "shadow_mode": True, "limits": "1/hour"},
        {"key": "soft", "limits": "2/hour soft 1 for 1h"},
        {"key": "free", "rate_limit": {"unlimited": True}},
        {"key": "shut", "rate_limit": {"unit": "hour", "requests_per_unit": 0}},
        {"key": "quota", "quota_mode": True, "limits": "1/hour"},
        {"key": "address", "group": {"ipv4": 24}, "limits": "1/hour"},
        {"key": "list", "deny": ["bad"], "limits": "5/hour"},
        {
            "key": "plan",
            "value_to_metric": True,
            "descriptors": [{"key": "who", "limits": "3/hour"}],
        },
        {"key": "all", "detailed_metric": True, "limits": "3/hour"},
        {"key": "path", "value": "/files/*", "share_threshold": True, "detailed_metric": True,
         "limits": "9/hour"},
    ],
}  # fmt: skip


def made(rules: dict[str, Any] = RULES, **options: Any) -> tuple[Gate, Recorder]:
    clock = FakeClock()
    gate = Gate.from_rules(rules, MemoryStore(clock=clock), clock=clock)
    recorder = Recorder(clock=clock, **options)
    recorder.follow(gate)
    return gate, recorder


def decide(gate: Gate, recorder: Recorder, *descriptors: Any, **more: Any) -> Verdict:
    verdict = gate.check(*descriptors, **more)
    recorder.decided("api", verdict, 0.001)
    return verdict


def outcomes(snapshot: Snapshot, rule: str) -> dict[str, int]:
    decisions = snapshot.values["penstock_decisions_total"]
    return {labels[2]: value for labels, value in decisions.items() if labels[1] == rule and value}  # type: ignore[misc]  # a number


@pytest.mark.parametrize(
    ("asked", "times", "expected"),
    [
        ({"user": "1"}, 7, {"allowed": 4, "near_limit": 1, "refused": 2}),
        ({"two": "1"}, 3, {"allowed": 1, "near_limit": 1, "refused": 1}),
        ({"shadow": "1"}, 3, {"near_limit": 1, "shadowed": 2}),
        ({"soft": "1"}, 4, {"allowed": 1, "near_limit": 1, "overrun": 1, "refused": 1}),
        ({"free": "1"}, 2, {"uncounted": 2}),
        ({"shut": "1"}, 2, {"refused": 2}),
        ({"quota": "1"}, 2, {"near_limit": 1, "refused": 1}),
        ({"list": "bad"}, 2, {"refused": 2}),
        ({"list": "good"}, 1, {"allowed": 1}),
    ],
)
def test_each_outcome_is_counted_once(
    asked: dict[str, str], times: int, expected: dict[str, int]
) -> None:
    gate, recorder = made()
    for _ in range(times):
        decide(gate, recorder, asked)
    snapshot = recorder.snapshot()
    (key,) = asked
    assert outcomes(snapshot, f"api/{key}") == expected
    refused = expected.get("refused", 0)
    assert snapshot.get("penstock_requests_total", "api", "refused") == refused
    assert snapshot.get("penstock_requests_total", "api", "allowed") == times - refused


@pytest.mark.parametrize("limit", range(1, 40))
def test_near_the_limit_is_where_envoy_has_it(limit: int) -> None:
    """After a hit, more than floor(0.8 * limit) are used."""
    gate, recorder = made(
        {"domain": "api", "descriptors": [{"key": "user", "limits": f"{limit}/hour"}]}
    )
    for used in range(1, limit + 1):
        before = outcomes(recorder.snapshot(), "api/user").get("near_limit", 0)
        decide(gate, recorder, {"user": "1"})
        after = outcomes(recorder.snapshot(), "api/user").get("near_limit", 0)
        assert after - before == (used > limit * 8 // 10)


def test_of_several_descriptors_every_rule_is_counted() -> None:
    gate, recorder = made()
    for _ in range(3):
        decide(gate, recorder, {"plenty": "1"}, {"two": "1"}, {"nobody": "1"})
    snapshot = recorder.snapshot()
    assert outcomes(snapshot, "api/plenty") == {"allowed": 3}
    assert outcomes(snapshot, "api/two") == {"allowed": 1, "near_limit": 1, "refused": 1}
    assert snapshot.get("penstock_without_rule_total", "api", "unmatched") == 3
    assert snapshot.get("penstock_requests_total", "api", "refused") == 1


def test_the_short_way_makes_no_statuses() -> None:
    gate, recorder = made()
    verdict = decide(gate, recorder, {"plenty": "1"}, {"user": "1"})
    assert verdict._statuses is None


PLAIN = [Descriptor(((key, value),)) for key in ("user", "plenty", "two") for value in "12"]


@given(st.lists(st.lists(st.sampled_from([*PLAIN, Descriptor((("no", "1"),))]), min_size=1,
                         max_size=3, unique=True), max_size=30))  # fmt: skip
def test_the_short_way_and_the_long_way_count_alike(requests: list[list[Descriptor]]) -> None:
    gate, short = made()
    long = Recorder()
    long.follow(gate)
    alone = Recorder()
    alone.follow(gate)
    for request in requests:
        verdict = gate.check(*request)
        short.decided("api", verdict, 0.5)
        general = Verdict(verdict.allowed, verdict.decision, verdict.rule, verdict.statuses)
        long.decided("api", general, 0.5)
    for name in ("penstock_requests_total", "penstock_decisions_total",
                 "penstock_without_rule_total", "penstock_decision_seconds"):  # fmt: skip
        assert short.snapshot().values[name] == long.snapshot().values[name]
    assert short.snapshot().refused.most() == long.snapshot().refused.most()


@given(st.lists(st.sampled_from(["user", "plenty", "all", "address"]), max_size=20))
def test_a_plan_counts_like_its_verdict(keys: list[str]) -> None:
    gate, recorder = made()
    other = Recorder()
    other.follow(gate)
    for key in keys:
        verdict = gate.check({key: "192.0.2.1"})
        recorder.decided("api", verdict, 0.5)
        assert verdict.plan is not None
        other.planned(verdict.plan, verdict.decisions, 0.5)
    for name in ("penstock_requests_total", "penstock_decisions_total",
                 "penstock_detailed_decisions_total", "penstock_decision_seconds"):  # fmt: skip
        ours, theirs = recorder.snapshot().values, other.snapshot().values
        assert ours.get(name) == theirs.get(name)
    assert recorder.snapshot().refused.most() == other.snapshot().refused.most()


def test_a_quota_that_is_used_up_refuses_also_if_another_lets_the_request_pass() -> None:
    quotas = [{"key": key, "quota_mode": True, "limits": limits}
              for key, limits in (("small", "1/hour"), ("large", "100/hour"))]  # fmt: skip
    gate, recorder = made({"domain": "api", "descriptors": quotas})
    for _ in range(3):
        assert decide(gate, recorder, {"small": "1"}, {"large": "1"})
    snapshot = recorder.snapshot()
    assert outcomes(snapshot, "api/small") == {"near_limit": 1, "refused": 2}
    assert outcomes(snapshot, "api/large") == {"allowed": 3}
    assert snapshot.get("penstock_requests_total", "api", "refused") == 0


# Switches ------------------------------------------------------------------------------------


def test_a_switch_to_shadow_shows_in_the_outcome() -> None:
    gate, recorder = made()
    gate.switches.mode("shadow")
    for _ in range(7):
        assert decide(gate, recorder, {"user": "1"})
    snapshot = recorder.snapshot()
    assert outcomes(snapshot, "api/user") == {"allowed": 4, "near_limit": 1, "shadowed": 2}
    assert snapshot.get("penstock_requests_total", "api", "refused") == 0
    assert snapshot.refused.most() == []


def test_what_is_switched_off_is_uncounted() -> None:
    gate, recorder = made()
    gate.switches.mode("off", "api/user")
    decide(gate, recorder, {"user": "1"})
    assert outcomes(recorder.snapshot(), "api/user") == {"uncounted": 1}


def test_lists_of_the_whole_domain_have_no_rule() -> None:
    gate, recorder = made()
    gate.switches.deny("user", "bad")
    gate.switches.allow("user", "good")
    for user in ("bad", "bad", "good"):
        decide(gate, recorder, {"user": user})
    snapshot = recorder.snapshot()
    assert snapshot.get("penstock_without_rule_total", "api", "deny list") == 2
    assert snapshot.get("penstock_without_rule_total", "api", "allow list") == 1
    assert [(each.key, each.count) for each in snapshot.refused.most()] == [
        (("deny list", "user=bad"), 2)
    ]


def test_a_look_and_a_refund_are_not_refused() -> None:
    gate, recorder = made()
    for _ in range(5):
        gate.check({"user": "1"})
    decide(gate, recorder, Descriptor((("user", "1"),), hits=0))
    decide(gate, recorder, {"user": "1"}, hits=-1)
    assert outcomes(recorder.snapshot(), "api/user") == {"near_limit": 1, "uncounted": 1}


# Time ----------------------------------------------------------------------------------------


def test_a_time_falls_into_the_bucket_whose_bound_it_does_not_exceed() -> None:
    gate, recorder = made()
    verdict = gate.check({"plenty": "1"})
    for bound in BOUNDS:
        recorder.decided("api", verdict, bound)
        recorder.decided("api", verdict, bound * 1.01)
    *counts, total = recorder.snapshot().values["penstock_decision_seconds"]["api",]  # type: ignore[misc]  # a list
    assert counts == [1] + [2] * (len(BOUNDS) - 1) + [1]
    assert total == pytest.approx(sum(BOUNDS) * 2.01)


# Values and keys -----------------------------------------------------------------------------


def details(snapshot: Snapshot) -> dict[tuple[str, str, str], Any]:
    decisions = snapshot.values.get("penstock_detailed_decisions_total", {})
    return {labels[1:]: value for labels, value in decisions.items() if value}


def test_values_are_told_where_a_rule_asks_for_it() -> None:
    gate, recorder = made()
    decide(gate, recorder, {"plan": "gold", "who": "42"})
    decide(gate, recorder, {"all": "x"})
    decide(gate, recorder, {"path": "/files/a"}, {"path": "/files/b"})
    decide(gate, recorder, {"user": "42"})
    assert details(recorder.snapshot()) == {
        ("api/plan/who", "plan=gold", "allowed"): 1,
        ("api/all", "all=x", "allowed"): 1,
        ("api/path=%2Ffiles%2F*", "path=/files/*", "allowed"): 2,
    }


def test_values_are_bounded_and_what_is_folded_is_counted() -> None:
    gate, recorder = made(most_labels=20)
    for at in range(100):
        decide(gate, recorder, {"all": str(at)})
    snapshot = recorder.snapshot()
    assert len(details(snapshot)) == 21
    assert details(snapshot)["other", "other", "allowed"] == 80
    assert snapshot.get("penstock_folded_total", "penstock_detailed_decisions_total") == 80
    assert outcomes(snapshot, "api/all") == {"allowed": 100}, "the rule itself has its place"


def test_rules_are_bounded_too() -> None:
    many = [{"key": f"key{at}", "limits": "9/hour"} for at in range(30)]
    gate, recorder = made({"domain": "api", "descriptors": many}, most_labels=10)
    for at in range(30):
        decide(gate, recorder, {f"key{at}": "1"})
    snapshot = recorder.snapshot()
    rules = {labels[1] for labels in snapshot.values["penstock_decisions_total"]}
    assert len(rules) == 11
    assert outcomes(snapshot, "other") == {"allowed": 20}
    assert len(snapshot.values["penstock_limit_units"]) == 10
    assert snapshot.get("penstock_limits_not_shown") == 20


def test_domains_that_somebody_made_up_are_one() -> None:
    gate, recorder = made()
    for at in range(50):
        name = f"no{at}" * (1000 if at % 2 else 1)
        recorder.decided(name, gate.check({"user": "1"}, domain=name), 0.1)
    snapshot = recorder.snapshot()
    assert {labels[0] for labels in snapshot.values["penstock_requests_total"]} == {"api", "other"}
    assert snapshot.get("penstock_requests_total", "other", "allowed") == 50
    assert snapshot.get("penstock_folded_total", "penstock_requests_total") == 50


def test_the_keys_that_are_refused_most() -> None:
    gate, recorder = made()
    for user, times in (("7", 9), ("8", 7), ("9", 5)):
        for _ in range(times):
            decide(gate, recorder, {"user": user})
    top = recorder.snapshot().refused.most()
    assert [(each.key, each.count) for each in top] == [
        (("api/user", "user=7"), 4),
        (("api/user", "user=8"), 2),
    ]


def test_addresses_of_one_network_are_one_key() -> None:
    gate, recorder = made()
    for last in range(5):
        decide(gate, recorder, {"address": f"192.0.2.{last}"})
    top = recorder.snapshot().refused.most()
    assert [(each.key, each.count) for each in top] == [
        (("api/address", "address=192.0.2.0/24"), 4)
    ]


def test_with_a_salt_no_value_is_shown() -> None:
    gate, recorder = made(salt="pepper")
    for _ in range(9):
        decide(gate, recorder, {"user": "erika@example.org"})
        decide(gate, recorder, {"all": "erika@example.org"})
    data = recorder.snapshot().to_bytes()
    assert b"erika" not in data
    digest = Hashed("pepper").value("erika@example.org")
    assert f"user={digest}".encode() in data
    assert f"all={digest}".encode() in data
    assert digest != Hashed("salt").value("erika@example.org")


def test_long_values_are_cut_and_still_told_apart() -> None:
    gate, recorder = made()
    for end in "ab":
        for _ in range(5):
            decide(gate, recorder, {"all": "x" * 100_000 + end})
    snapshot = recorder.snapshot()
    assert len({values for _, values, _ in details(snapshot)}) == 2
    assert len(snapshot.to_bytes()) < 20_000
    assert len({each.key for each in snapshot.refused.most()}) == 2


# Rules and events ----------------------------------------------------------------------------


def test_configured_limits_are_told() -> None:
    _, recorder = made({
        "domain": "api",
        "descriptors": [
            {"key": "user", "limits": [{"limit": "10/second burst 30", "name": "fast"}, "5/hour"]}
        ],
    })  # fmt: skip
    values = recorder.snapshot().values
    assert values["penstock_limit_units"] == {
        ("api", "api/user", "fast"): 10,
        ("api", "api/user", "5/hour"): 5,
    }
    assert values["penstock_limit_period_seconds"]["api", "api/user", "fast"] == 1.0
    assert values["penstock_limit_burst_units"]["api", "api/user", "fast"] == 30
    assert values["penstock_rules"][()] == 1


def test_a_reload_forgets_rules_that_are_gone() -> None:
    gate, recorder = made(most_labels=20)
    decide(gate, recorder, {"user": "1"})
    for at in range(100):
        gate.replace({"domain": "api", "descriptors": [
            {"key": "user", "limits": "5/hour"}, {"key": f"new{at}", "limits": "5/hour"},
        ]})  # fmt: skip
        decide(gate, recorder, {f"new{at}": "1"})
    snapshot = recorder.snapshot()
    rules = {labels[1] for labels in snapshot.values["penstock_decisions_total"]}
    assert rules == {"api/user", "api/new99"}
    assert outcomes(snapshot, "api/user") == {"allowed": 1}
    assert snapshot.get("penstock_rules_loaded_total") == 101
    assert snapshot.get("penstock_folded_total", "penstock_decisions_total") == 0


def test_rejected_rules_show_until_good_ones_come(tmp_path: Any) -> None:
    clock = FakeClock()
    file = tmp_path / "rules.yaml"
    file.write_text("domain: api\ndescriptors: [{key: user, limits: 5/hour}]\n")
    gate = Gate.from_file(file)
    recorder = Recorder(clock=clock)
    recorder.follow(gate)
    loaded = recorder.snapshot().get("penstock_rules_loaded_timestamp_seconds")
    assert loaded == clock.now() / 1e9
    clock.advance(60)
    file.write_text("domain: api\nwrong: 1\n")
    with pytest.raises(RulesError):
        gate.reload()
    snapshot = recorder.snapshot()
    assert snapshot.get("penstock_rules_ok") == 0
    assert snapshot.get("penstock_rules_rejected_total") == 1
    assert snapshot.get("penstock_rules_loaded_timestamp_seconds") == loaded
    file.write_text("domain: api\ndescriptors: [{key: user, limits: 6/hour}]\n")
    gate.reload()
    snapshot = recorder.snapshot()
    assert snapshot.get("penstock_rules_ok") == 1
    assert snapshot.get("penstock_rules_loaded_total") == 2
    assert snapshot.get("penstock_limit_units", "api", "api/user", "6/hour") == 6


class FailingStore(Hooks):
    name = "redis://one"

    def subscribe(self, hook: Any) -> None:
        self.add(hook)

    def unsubscribe(self, hook: Any) -> None:
        self.remove(hook)


def test_stores_that_go_and_come_back() -> None:
    recorder, store = Recorder(), FailingStore()
    recorder.listen(store)
    assert recorder.snapshot().get("penstock_store_up", "redis://one") == 1
    store.emit(StoreDown("redis://one", "refused"))
    limit = Limit.parse("1/hour")
    for _ in range(3):
        store.emit(Degraded("redis://one", limit, "key", "hit", "open", "refused"))
    snapshot = recorder.snapshot()
    assert snapshot.get("penstock_store_up", "redis://one") == 0
    assert snapshot.get("penstock_store_downs_total", "redis://one") == 1
    assert snapshot.get("penstock_store_degraded_total", "redis://one", "hit", "open") == 3
    store.emit(Damaged("redis://one", limit, "key"))
    assert recorder.snapshot().get("penstock_store_damaged_total", "redis://one") == 1
    store.emit(StoreUp("redis://one", 1.5))
    assert recorder.snapshot().get("penstock_store_up", "redis://one") == 1
    recorder.close()
    assert not store


def test_decisions_of_a_failure_policy_are_degraded() -> None:
    gate, recorder = made()
    verdict = gate.check({"plenty": "1"})
    assert verdict.decision is not None
    degraded = verdict.decision.as_degraded(verdict.decision.limit, 0)
    assert verdict.plan is not None
    recorder.planned(verdict.plan, [degraded], 0.1)
    snapshot = recorder.snapshot()
    assert snapshot.get("penstock_degraded_decisions_total", "api", "api/plenty") == 1
    assert outcomes(snapshot, "api/plenty") == {"allowed": 1}


def test_circuit_breakers_tell_their_state() -> None:
    breaker, recorder = CircuitBreaker(name="prices"), Recorder()
    recorder.listen(breaker)
    assert recorder.snapshot().values["penstock_circuit_state"] == {("prices",): 0}
    breaker.trip("maintenance")
    assert recorder.snapshot().values["penstock_circuit_state"] == {("prices",): 2}


def test_somebody_looks_while_it_counts_and_rules_change() -> None:
    gate, recorder = made()
    done, problems = threading.Event(), []

    def look() -> None:
        try:
            while not done.is_set():
                recorder.snapshot().to_bytes()
                gate.replace(RULES)
        except Exception as error:
            problems.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    for at in range(3000):
        decide(gate, recorder, {"all": str(at)}, {"plenty": str(at)})
    done.set()
    thread.join()
    assert problems == []
    assert sum(outcomes(recorder.snapshot(), "api/plenty").values()) == 3000


@pytest.mark.parametrize("most", [0, -1, "many", True])
def test_a_bound_that_makes_no_sense(most: object) -> None:
    with pytest.raises(ValueError, match="most_labels is a whole number"):
        Recorder(most_labels=most)  # type: ignore[arg-type]  # that is the point


def test_a_recorder_follows_one_gate() -> None:
    gate, recorder = made()
    with pytest.raises(ValueError, match="one gate"):
        recorder.follow(gate)
