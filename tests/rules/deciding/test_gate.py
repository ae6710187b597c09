"""Gate and AsyncGate: what a request gets, and what it leaves behind."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml")

from penstock import (
    AsyncGate,
    Descriptor,
    Gate,
    InvalidCost,
    InvalidKey,
    Limit,
    MemoryStore,
    RulesError,
    StoreError,
)
from penstock.decision import Decision
from penstock.events import Event, RulesLoaded, RulesRejected
from penstock.stores.base import Counters
from penstock.testing import FakeClock

DAY = 86_400


def gate(text: str) -> tuple[Gate, FakeClock]:
    clock = FakeClock(1_700_000_000 * 10**9)
    return Gate.from_rules(text, MemoryStore(clock=clock), clock=clock), clock


def rules(*steps: str, top: str = "") -> str:
    return f"domain: api\n{top}\ndescriptors:\n" + "\n".join(f"- {{{step}}}" for step in steps)


def left(gate: Gate, **pairs: str) -> int | None:
    """What remains for a descriptor; looking takes nothing."""
    decision = gate.check(Descriptor.of(pairs, hits=0)).statuses[0].decision
    return None if decision is None else decision.remaining


# All or nothing ----------------------------------------------------------------------


def test_a_refused_request_consumes_nothing_anywhere() -> None:
    door, _ = gate(rules("key: user, limits: 10/hour", "key: ip, limits: [2/hour, 50/hour]"))
    both = ({"user": "42"}, {"ip": "a"})
    assert [bool(door.check(*both)) for _ in range(4)] == [True, True, False, False]
    assert left(door, user="42") == 8
    verdict = door.check(*both)
    assert [status.allowed for status in verdict.statuses] == [True, False]
    assert verdict.decision is not None
    assert (str(verdict.decision.limit), verdict.rule and verdict.rule.id) == ("2/hour", "api/ip")
    assert verdict.statuses[0].decision is not None
    assert verdict.statuses[0].decision.remaining == 8
    assert verdict.retry_after == verdict.decision.retry_after


def test_two_descriptors_of_one_counter_are_counted_together() -> None:
    door, _ = gate(rules("key: user, limits: 3/hour"))
    assert door.check({"user": "42"}, {"user": "42"}).allowed
    assert not door.check({"user": "42"}, {"user": "42"}).allowed
    assert door.check({"user": "42"}).allowed


def test_what_no_rule_knows_is_allowed_and_not_counted() -> None:
    door, _ = gate(rules("key: user, limits: 1/hour"))
    verdict = door.check({"planet": "mars"})
    assert (verdict.allowed, verdict.decision, verdict.rule) == (True, None, None)
    assert verdict.statuses[0].reason == "unmatched"
    assert door.check({"user": "1"}, domain="elsewhere").statuses[0].reason == "unmatched"
    assert verdict.retry_after == 0.0


# Envoy's words ------------------------------------------------------------------------------


def test_shadow_rules_count_and_refuse_nothing() -> None:
    door, _ = gate(rules("key: a, limits: 1/hour, shadow_mode: true", "key: b, limits: 3/hour"))
    verdicts = [door.check({"a": "1"}, {"b": "1"}) for _ in range(4)]
    assert [bool(verdict) for verdict in verdicts] == [True, True, True, False]
    shadow = [verdict.statuses[0] for verdict in verdicts]
    assert all(status.allowed and status.shadow for status in shadow)
    assert [bool(status.decision) for status in shadow] == [True, False, False, False]
    assert verdicts[3].rule is not None
    assert verdicts[3].rule.id == "api/b"


def test_quotas_refuse_when_all_of_them_are_over() -> None:
    door, _ = gate(
        rules(
            "key: a, limits: 1/hour, quota_mode: true",
            "key: b, limits: 2/hour, quota_mode: true",
            "key: c, limits: 5/hour",
        )
    )
    descriptors = ({"a": "1"}, {"b": "1"}, {"c": "1"})
    assert [bool(door.check(*descriptors)) for _ in range(4)] == [True, True, False, False]
    assert left(door, c="1") == 3, "given back when the quotas refused"
    assert not door.check({"c": "1"}, {"b": "2"}, hits=4)
    assert left(door, b="2") == 2, "given back when another rule refused"


def test_unlimited_closed_and_replaced() -> None:
    door, _ = gate(
        """
domain: api
descriptors:
  - key: a
    rate_limit: { unlimited: true }
  - key: b
    rate_limit: { unit: hour, requests_per_unit: 0 }
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1, name: small }
  - key: vip
    rate_limit: { unit: hour, requests_per_unit: 9, replaces: [{ name: small }] }
"""
    )
    assert door.check({"a": "1"}).statuses[0].reason == "unlimited"
    closed = door.check({"b": "1"}, {"user": "1"})
    assert (closed.allowed, closed.statuses[0].reason) == (False, "closed")
    assert closed.retry_after is None
    assert left(door, user="1") == 1
    for _ in range(9):
        assert door.check({"user": "1"}, {"vip": "1"}).statuses[0].reason == "replaced"
    assert not door.check({"user": "1"}, {"vip": "1"})
    assert left(door, user="1") == 1


def test_hits_look_take_and_give_back() -> None:
    door, _ = gate(rules("key: user, limits: 10/hour, cost: 2", "key: ip, limits: 9/hour"))
    assert door.check({"user": "1"}, hits=3).decision.remaining == 4  # type: ignore[union-attr]
    assert left(door, user="1") == 4
    verdict = door.check(Descriptor.of({"user": "1"}, hits=0), {"ip": "1"}, hits=5)
    assert [status.decision.remaining for status in verdict.statuses] == [4, 4]  # type: ignore[union-attr]
    assert door.check({"user": "1"}, hits=-2).allowed
    assert left(door, user="1") == 8
    assert door.check({"user": "1"}, hits=0).decision.remaining == 6, "0 for all means 1"  # type: ignore[union-attr]
    assert not door.check({"user": "1"}, hits=99)
    assert door.check(Descriptor.of({"user": "1"}, hits=0)), "a look is never over"


def test_a_request_may_bring_its_own_limit() -> None:
    door, _ = gate(rules("key: user, limits: 10/hour"))
    own = Descriptor.of({"user": "1"}, limit="2/hour fixed_window")
    assert [bool(door.check(own)) for _ in range(3)] == [True, True, False]
    assert left(door, user="1") == 10
    unknown = Descriptor.of([("a", "1"), ("b", "2")], limit=Limit(1, "hour"))
    assert [bool(door.check(unknown)) for _ in range(2)] == [True, False]
    assert door.check(unknown, domain="elsewhere").statuses[0].reason == "unmatched"


# Lists and switches ----------------------------------------------------------------------


def test_lists_of_a_domain_and_of_a_step() -> None:
    door, _ = gate(
        rules(
            "key: user, limits: 1/hour, allow: [root], deny: [mallory]",
            top="allow: {ip: [10.0.0.0/8]}\ndeny: {ip: [10.6.6.0/24]}",
        )
    )
    assert all(door.check({"user": "root"}) for _ in range(3))
    refused = door.check({"user": "mallory"})
    assert (refused.allowed, refused.statuses[0].reason) == (False, "deny list")
    assert refused.rule is not None
    assert all(door.check({"user": "1"}, {"ip": "10.1.1.1"}) for _ in range(3))
    assert not door.check({"user": "2"}, {"ip": "10.6.6.6"})
    assert left(door, user="1") == left(door, user="2") == 1


def test_a_kill_switch_for_all_and_for_one() -> None:
    door, _ = gate(rules("key: a, limits: 1/hour", "key: b, limits: {limit: 1/hour, name: bee}"))
    for pairs in ({"a": "1"}, {"b": "1"}):
        assert door.check(pairs)
        assert not door.check(pairs)
    door.switches.mode("shadow")
    verdict = door.check({"a": "1"})
    assert (verdict.allowed, verdict.statuses[0].allowed) == (True, False)
    door.switches.mode("off")
    assert door.check({"a": "1"}).statuses[0].decision is None
    door.switches.mode("enforce")
    door.switches.mode("off", "api/a")
    door.switches.mode("shadow", "bee")
    assert door.check({"a": "1"}).statuses[0].reason == "switched off"
    assert door.check({"b": "1"}).statuses[0].shadow
    door.switches.clear_mode("api/a")
    door.switches.clear_mode("bee")
    assert not door.check({"a": "1"})
    assert not door.check({"b": "1"})
    assert door.switches.calm
    with pytest.raises(ValueError, match="a mode is one of"):
        door.switches.mode("maybe")


def test_overrides_run_out() -> None:
    door, clock = gate(rules("key: user, limits: 5/day fixed_window align first_hit"))
    assert sum(bool(door.check({"user": "42"})) for _ in range(9)) == 5
    door.switches.override("user", "42", factor=10, lasts="4d")
    assert sum(bool(door.check({"user": "42"})) for _ in range(99)) == 50
    assert sum(bool(door.check({"user": "43"})) for _ in range(9)) == 5
    clock.advance(4 * DAY)
    assert sum(bool(door.check({"user": "42"})) for _ in range(9)) == 5
    assert door.switches.calm, "nothing is left of it"
    door.switches.override("user", "42", limit="1/minute")
    assert sum(bool(door.check({"user": "42"})) for _ in range(9)) == 1
    door.switches.clear_override("user", "42")
    assert door.switches.calm
    for wrong in ({}, {"factor": 2, "limit": "1/s"}, {"factor": 0}, {"factor": float("nan")}):
        with pytest.raises(ValueError, match=r"override|factor"):
            door.switches.override("user", "1", **wrong)


def test_lists_may_be_added_to_for_a_while() -> None:
    door, clock = gate(rules("key: user, limits: 1/hour"))
    door.switches.deny("ip", "203.0.113.0/24", lasts="1h")
    assert not door.check({"ip": "203.0.113.9"})
    door.switches.allow("user", "42")
    assert all(door.check({"user": "42"}) for _ in range(5))
    clock.advance(3600)
    assert door.check({"ip": "203.0.113.9"})
    door.switches.clear_list("allow", "user", "42")
    assert [bool(door.check({"user": "42"})) for _ in range(2)] == [True, False]
    with pytest.raises(RulesError, match="no network"):
        door.switches.deny("ip", "1.2.3.4/99")


# Bad input ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [{}, [], "user", 7, None, [("a",)], [("a", 1)], {"": "x"}, [["a", "b"]], {"a": None}]
)
def test_a_descriptor_that_is_none_is_an_error(wrong: Any) -> None:
    door, _ = gate(rules("key: user, limits: 1/hour"))
    with pytest.raises(InvalidKey, match="descriptor"):
        door.check({"user": "1"}, wrong)
    assert left(door, user="1") == 1


def test_domains_and_hits_are_checked() -> None:
    door, _ = gate(rules("key: user, limits: 1/hour"))
    for hits in (1.5, "1", None, 2**40):
        with pytest.raises(InvalidCost, match="hits"):
            door.check({"user": "1"}, hits=hits)  # type: ignore[arg-type]
    for domain in ("", 7):
        with pytest.raises(InvalidKey, match="domain"):
            door.check({"user": "1"}, domain=domain)  # type: ignore[arg-type]
    assert door.check({"user": "1"})


# Reloading ----------------------------------------------------------------------


def test_unchanged_limits_go_on_and_changed_ones_inherit() -> None:
    door, clock = gate(rules("key: a, limits: 10/hour", "key: b, limits: 10/hour"))
    for _ in range(5):
        assert door.check({"a": "1"}, {"b": "1"})
    door.replace(rules("key: a, limits: 10/hour", "key: b, limits: 100/hour"))
    assert left(door, a="1") == 5
    assert left(door, b="1") == 50, "half of the old one was used, so is half of the new one"
    assert left(door, b="2") == 100
    door.replace(rules("key: a, limits: 3/hour", "key: b, limits: 100/hour"))
    assert door.check({"a": "1"}).decision.remaining == 0  # type: ignore[union-attr]
    clock.advance(2 * 3600 + 1)
    door.replace(rules("key: a, limits: 4/hour"))
    assert left(door, a="1") == 4


def test_a_limit_that_rounds_otherwise_inherits_too() -> None:
    door, _ = gate(rules("key: a, limits: 10/hour sliding_window"))
    for _ in range(4):
        assert door.check({"a": "1"})
    door.replace(rules("key: a, limits: 10/hour sliding_window rounding up"))
    assert left(door, a="1") == 6


def test_a_lockout_outlives_a_change() -> None:
    door, _ = gate(rules("key: ip, limits: 5/minute lockout 15m"))
    for _ in range(6):
        door.check({"ip": "1"})
    door.replace(rules("key: ip, limits: 6/minute lockout 15m"))
    verdict = door.check({"ip": "1"})
    assert not verdict
    assert verdict.retry_after == 900


def test_a_bad_file_keeps_the_old_rules(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(rules("key: a, limits: 1/hour"))
    door, events = Gate.from_file(file), []
    door.subscribe(events.append)
    assert door.check({"a": "1"})
    file.write_text(rules("key: a, limits: 1/hour", "key: b, limit: 2/hour"))
    with pytest.raises(RulesError, match=r"rules.yaml:5:12: unknown key 'limit'"):
        door.reload()
    assert not door.check({"a": "1"})
    file.write_text(rules("key: a, limits: 1/hour", "key: b, limits: 2/hour"))
    door.reload()
    assert not door.check({"a": "1"})
    assert left(door, b="1") == 2
    assert [type(event) for event in events] == [RulesRejected, RulesLoaded]


def test_files_are_watched_until_told_otherwise(tmp_path: Path) -> None:
    pytest.importorskip("watchfiles")
    # As Kubernetes mounts a ConfigMap: the file is a link into a folder that is swapped.
    for version, limit in (("v1", "1/hour"), ("v2", "2/hour"), ("bad", "lots")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "rules.yaml").write_text(rules(f"key: a, limits: {limit}"))
    (tmp_path / "..data").symlink_to(tmp_path / "v1")
    (tmp_path / "rules.yaml").symlink_to(Path("..data/rules.yaml"))
    door, events = Gate.from_file(tmp_path / "rules.yaml"), []
    changed = threading.Event()

    def hook(event: Event) -> None:
        events.append(type(event))
        changed.set()

    door.subscribe(hook)
    door.watch()
    for version in ("bad", "v2"):
        changed.clear()
        (tmp_path / "..new").symlink_to(tmp_path / version)
        (tmp_path / "..new").rename(tmp_path / "..data")
        assert changed.wait(60), version
    assert events == [RulesRejected, RulesLoaded]
    assert left(door, a="1") == 2
    door.close()
    before = threading.active_count()
    (tmp_path / "v2/rules.yaml").write_text(rules("key: a, limits: 9/hour"))
    assert left(door, a="1") == 2
    assert threading.active_count() == before


def test_a_list_in_a_file_of_its_own_is_watched_too(tmp_path: Path) -> None:
    pytest.importorskip("watchfiles")
    (tmp_path / "bad.txt").write_text("mallory  # of all people\n")
    file = tmp_path / "rules.yaml"
    file.write_text(rules("key: user, limits: 9/hour, deny: [{file: bad.txt}]"))
    door = Gate.from_file(file)
    door.watch()
    assert not door.check({"user": "mallory"})
    (tmp_path / "bad.txt").write_text("mallory\ntrudy\n")
    # It may be read before all of it is written, and is read again then.
    end = time.monotonic() + 60
    while door.check({"user": "trudy"}):
        assert time.monotonic() < end, "the change was missed"
        time.sleep(0.01)
    door.close()


@pytest.fixture
def busy_switching() -> Iterator[None]:
    """Threads take turns often: a reload does not wait long for those that ask."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("busy_switching")
def test_reloads_under_load_are_never_seen_half(tmp_path: Path) -> None:
    """Two rules that only make sense together: both of one version, in every request."""
    good = [
        rules(f"key: a, limits: {{limit: {n}/hour, name: v}}", f"key: b, limits: {n}/hour")
        for n in (1_000_000, 2_000_000)
    ]
    door, stop, wrong, count = Gate.from_rules(good[0]), threading.Event(), [], [0]
    # Each reload allows so many checks: the work is the same on a slow machine.
    checks_each, allowed = 20, threading.Semaphore(0)

    def work() -> None:
        while allowed.acquire() and not stop.is_set():
            try:
                verdict = door.check({"a": "1"}, {"b": "1"})
                seen = {status.decision.limit.amount for status in verdict.statuses}  # type: ignore[union-attr]
                if len(seen) != 1 or not verdict:
                    wrong.append(verdict)
            except Exception as error:
                wrong.append(error)
            count[0] += 1

    async def work_async() -> None:
        other = AsyncGate(door.rules, door.store)
        others.append(other)
        while not stop.is_set():
            if not allowed.acquire(blocking=False):
                await asyncio.sleep(0.001)
                continue
            verdict = await other.check({"a": "2"}, {"b": "2"})
            seen = {status.decision.limit.amount for status in verdict.statuses}  # type: ignore[union-attr]
            if len(seen) != 1 or not verdict:
                wrong.append(verdict)
            await asyncio.sleep(0)

    others: list[AsyncGate] = []
    threads = [threading.Thread(target=work) for _ in range(4)]
    threads.append(threading.Thread(target=lambda: asyncio.run(work_async())))
    for thread in threads:
        thread.start()
    for turn in range(400):
        if turn == 100:
            gc.collect()
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
        allowed.release(checks_each)
        if turn % 10 == 9:
            with pytest.raises(RulesError):
                door.replace("domain: api\ndescriptors: [{key: a, limits: never}]")
        else:
            for gate in (door, *others):
                gate.replace(good[turn % 2])
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    stop.set()
    allowed.release(len(threads))
    for thread in threads:
        thread.join()
    assert grown < 100_000, "three hundred reloads, and nothing piles up"
    assert wrong[:3] == []
    assert count[0] > 400, "nobody asked meanwhile"


# Coroutines ----------------------------------------------------------------------


async def test_async_gate_answers_the_same() -> None:
    text = rules(
        "key: a, limits: 2/hour",
        "key: b, limits: 9/hour",
        "key: c, limits: 1/hour, shadow_mode: true",
    )
    door = AsyncGate.from_rules(text)
    assert isinstance(door, AsyncGate)
    descriptors = ({"a": "1"}, {"b": "1"}, {"c": "1"})
    verdicts = [await door.check(*descriptors) for _ in range(3)]
    assert [bool(verdict) for verdict in verdicts] == [True, True, False]
    several = await asyncio.gather(*(door.check({"b": "2"}) for _ in range(10)))
    assert sum(map(bool, several)) == 9


def test_an_override_in_place_of_several_limits_is_asked_once() -> None:
    gate = Gate.from_rules(
        {"domain": "d", "descriptors": [{"key": "user", "limits": ["5/second", "100/hour"]}]}
    )
    gate.switches.override("user", "42", limit="10/hour")
    assert [bool(gate.check({"user": "42"})) for _ in range(11)] == [True] * 10 + [False]


@pytest.mark.parametrize("factor", [0, -1, 1e10, 1e308, 10**400, float("inf"), float("nan"), "2"])
def test_a_factor_beyond_use_is_refused(factor: Any) -> None:
    gate = Gate.from_rules({"domain": "d", "descriptors": [{"key": "user", "limits": "5/hour"}]})
    with pytest.raises(ValueError, match="a factor is a number above 0"):
        gate.switches.override("user", "42", factor=factor)
    gate.switches.override("user", "42", factor=1e9)
    assert gate.check({"user": "42"})


def test_a_check_that_fails_has_taken_nothing() -> None:
    """A rule in shadow is asked beside the others: if that fails, they have not counted."""

    class Failing(MemoryStore):
        def make_counters(self, limit: Limit) -> Any:
            counters = super().make_counters(limit)
            if limit.amount != 7:
                return counters
            return NeverThere(limit, None)

    class NeverThere(Counters):
        def hit(self, key: str, cost: int) -> Decision:
            raise StoreError("no answer")

    rules = """
        domain: api
        descriptors:
          - {key: user, limits: [5/hour, 50/day]}
          - {key: path, limits: 7/hour, shadow_mode: true}
    """
    gate = Gate.from_rules(rules, Failing())
    for _ in range(9):
        with pytest.raises(StoreError):
            gate.check({"user": "a"}, {"path": "/"})
    decision = gate.check({"user": "a"}).decision
    assert decision is not None
    assert decision.remaining == 4


@pytest.mark.parametrize(
    ("make", "given", "words"),
    [
        (Gate.from_rules, "rules.yaml", "'rules.yaml' is the name of a file: use from_file"),
        (Gate.from_rules, Path("rules"), "'rules' is the name of a file: use from_file"),
        (Gate.from_file, "domain: api\n", "a text of rules, .*: use from_rules"),
        (Gate.from_file, ["a.yaml"], r"one by one, not \['a.yaml'\]"),
    ],
)
def test_a_file_in_place_of_rules(make: Any, given: Any, words: str) -> None:
    with pytest.raises((RulesError, TypeError), match=words):
        make(given)


def test_a_text_of_rules_may_end_with_the_name_of_a_file() -> None:
    with pytest.raises(RulesError, match="'file' belongs"):
        Gate.from_rules("domain: api\nfile: list.yaml")
