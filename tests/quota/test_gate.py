"""Quotas in rules: beside limits, lists, switches, shadow mode, slots and reloads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import AsyncGate, Gate, MemoryStore
from penstock.errors import RulesError, UnsupportedLimit
from penstock.quota import AsyncLedger, Ledger, QuotaStore
from penstock.stores.redis import RedisStore

RULES: dict[str, Any] = {
    "domain": "api",
    "plans": {
        "free": {"requests": "100/month"},
        "pro": {"requests": "1000/month", "rollover": 10, "tokens": "5M/month"},
    },
    "descriptors": [{"key": "account", "quota": {"meter": "requests", "plan_by": "plan"}}],
}


def rules(**step: Any) -> dict[str, Any]:
    """The same with more beside the quota."""
    return {**RULES, "descriptors": [{**RULES["descriptors"][0], **step}]}


@pytest.fixture
def ledger(sqlite_url: str) -> Iterator[Ledger]:
    with Ledger(sqlite_url) as ledger:
        yield ledger
        assert ledger.reconcile().differences == ()


@pytest.fixture
def make(ledger: Ledger, tmp_path: Path) -> Iterator[Callable[..., Gate]]:
    stores: list[QuotaStore] = []

    def make(rules: Any = RULES, kind: type[Any] = Gate) -> Any:
        store = QuotaStore(
            ledger, MemoryStore(), settle="1h", journal=tmp_path / "journal", deadline="60s"
        )
        stores.append(store)
        return kind.from_rules(rules, store)

    yield make
    for store in stores:
        store.close()


ACME = {"account": "acme"}


def passed(gate: Gate, count: int, *descriptors: Any, **options: Any) -> int:
    return sum(bool(gate.check(*descriptors, **options)) for _ in range(count))


def used(gate: Gate, ledger: Ledger, account: str = "acme", meter: str = "requests") -> int:
    store = gate.store
    assert isinstance(store, QuotaStore)
    store.settle()
    return ledger.balance(account)[meter].spent


def test_rules_define_plans_and_open_accounts(make: Callable[..., Gate], ledger: Ledger) -> None:
    gate = make()
    assert gate.check(ACME, {"plan": "pro"})
    assert ledger.balance("acme").account.plan == "pro"
    assert ledger.plans()["pro"].meters["tokens"].amount == 5_000_000
    assert passed(gate, 1200, ACME) == 999  # opened, the plan need not be named
    assert used(gate, ledger) == 1000


def test_an_unknown_account_and_an_unknown_plan_are_refused(make: Callable[..., Gate]) -> None:
    gate = make()
    verdict = gate.check({"account": "stranger"})
    assert not verdict
    assert verdict.decision is not None
    assert verdict.decision.retry_after is None
    assert not gate.check({"account": "stranger"}, {"plan": "platinum"})


def test_without_a_ledger_rules_say_so() -> None:
    with pytest.raises(
        UnsupportedLimit, match="rule api/account: the quota of 'requests' needs a ledger"
    ):
        Gate.from_rules(RULES)


def test_a_gate_takes_a_ledger(ledger: Ledger, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("penstock.quota.quota_store.default_journal", lambda: tmp_path / "j")
    gate = Gate.from_rules(RULES, ledger=ledger)
    assert gate.check(ACME, {"plan": "free"})
    gate.close()
    balance = ledger.balance("acme")["requests"]
    assert (balance.spent, balance.held) == (1, 0)


def test_limits_and_quota_pass_together_or_not_at_all(
    make: Callable[..., Gate], ledger: Ledger
) -> None:
    gate = make(rules(limits="30/hour", cost=2))
    assert passed(gate, 50, ACME, {"plan": "free"}) == 15
    assert used(gate, ledger) == 30
    gate = make(rules(limits="200/hour"))
    assert passed(gate, 300, {"account": "b"}, {"plan": "free"}) == 100
    limit, _ = gate.treatment({"account": "b"})[4]
    match = gate.matchers["api"].match((("account", "b"),))
    assert match is not None
    assert limit.peek(match.key, 1).remaining == 100  # what the quota refused took nothing of it
    assert used(gate, ledger, "b") == 100


def test_the_numbers_are_those_of_the_quota(make: Callable[..., Gate]) -> None:
    gate = make(rules(limits="10000/hour"))
    verdict = gate.check(ACME, {"plan": "free"})
    decision = verdict.decision
    assert decision is not None
    assert (decision.limit.amount, decision.limit.period_ns) == (100, 30 * 86_400 * 10**9)
    assert decision.remaining == 99
    assert verdict.statuses[0].limit_name == "api/account quota requests"


def test_shadow_mode_counts_and_refuses_nothing(make: Callable[..., Gate], ledger: Ledger) -> None:
    gate = make(rules(shadow_mode=True, limits="20/hour"))
    assert passed(gate, 150, ACME, {"plan": "free"}) == 150
    assert used(gate, ledger) == 20  # the limit is in the same group
    gate = make(rules(shadow_mode=True))
    assert passed(gate, 150, {"account": "b"}, {"plan": "free"}) == 150
    assert used(gate, ledger, "b") == 100


def test_another_descriptor_that_refuses_takes_nothing(
    make: Callable[..., Gate], ledger: Ledger
) -> None:
    both = {
        **RULES,
        "descriptors": [*RULES["descriptors"], {"key": "ip", "limits": "5/hour"}],
    }
    gate = make(both)
    assert passed(gate, 20, ACME, {"plan": "free"}, {"ip": "1.2.3.4"}) == 5
    assert used(gate, ledger) == 5


def test_looks_and_refunds(make: Callable[..., Gate], ledger: Ledger) -> None:
    gate = make()
    look = gate.check({"account": "acme"}, {"plan": "free"}, hits=1)
    assert look
    descriptor = [("account", "acme")]
    assert passed(gate, 200, descriptor) == 99
    from penstock import Descriptor

    assert not gate.check(Descriptor((("account", "acme"),), hits=0))  # nothing is left
    gate.check(ACME, hits=-30)
    assert gate.check(Descriptor((("account", "acme"),), hits=0))
    store = gate.store
    assert isinstance(store, QuotaStore)
    assert passed(gate, 100, ACME) == 30
    gate.check(ACME, hits=-7)
    assert used(gate, ledger) == 93


def test_lists_and_switches(make: Callable[..., Gate], ledger: Ledger) -> None:
    listed = {**rules(limits="1000/hour"), "allow": {"account": ["inside"]}}
    gate = make(listed)
    assert passed(gate, 5, {"account": "inside"}) == 5  # no account of the ledger
    gate.switches.mode("off", "api/account quota requests")
    assert passed(gate, 5, {"account": "nobody"}) == 5
    gate.switches.mode("shadow", "api/account quota requests")
    assert passed(gate, 5, {"account": "nobody"}) == 5
    gate.switches.mode("enforce", "api/account quota requests")
    assert passed(gate, 5, {"account": "nobody"}) == 0
    gate.switches.override("account", "acme", limit="3/hour")
    assert passed(gate, 9, ACME, {"plan": "free"}) == 3
    assert used(gate, ledger) == 3


def test_reloads_beside_quotas(make: Callable[..., Gate], ledger: Ledger) -> None:
    gate = make()
    assert passed(gate, 10, ACME, {"plan": "free"}) == 10
    gate.replace(rules(limits="2000/hour"))
    assert passed(gate, 20, ACME) == 20
    without = {**RULES, "descriptors": [{"key": "account", "limits": "5000/hour"}]}
    gate.replace(without)
    assert passed(gate, 50, ACME) == 50
    more = {**RULES, "plans": {**RULES["plans"], "team": {"requests": "7/day"}}}
    gate.replace(more)
    assert passed(gate, 20, {"account": "new"}, {"plan": "team"}) == 7
    assert passed(gate, 200, ACME) == 70
    assert used(gate, ledger) == 100


def test_a_reload_beside_a_reload_and_settling(make: Callable[..., Gate], ledger: Ledger) -> None:
    gate = make()
    count = 0
    for number in range(6):
        count += passed(gate, 10, ACME, {"plan": "pro"})
        prepared = gate.prepare(gate.rules)
        gate.replace(rules(limits=f"{1000 + number}/hour"))
        gate.swap(prepared)
        gate.store.settle()  # type: ignore[attr-defined]
    assert used(gate, ledger) == count == 60


def test_slots_beside_quotas(make: Callable[..., Gate], ledger: Ledger) -> None:
    gate = make(rules(concurrency=2))
    first, second = (gate.check(ACME, {"plan": "free"}) for _ in range(2))
    assert (bool(first), bool(second)) == (True, True)
    assert not gate.check(ACME)
    gate.release(first)
    assert gate.check(ACME)
    assert used(gate, ledger) == 3


def test_two_quotas_of_one_account(make: Callable[..., Gate], ledger: Ledger) -> None:
    tokens = {"key": "tokens_of", "quota": {"meter": "tokens"}, "cost": 1000}
    gate = make({**RULES, "descriptors": [*RULES["descriptors"], tokens]})
    assert gate.check(ACME, {"tokens_of": "acme"}, {"plan": "pro"})
    assert (used(gate, ledger), used(gate, ledger, meter="tokens")) == (1, 1000)


def test_a_plan_of_one_name_is_the_same_everywhere(tmp_path: Path) -> None:
    for name, amount in (("a", 100), ("b", 200)):
        text = f"domain: {name}\nplans: {{free: {{requests: {amount}/month}}}}\n"
        (tmp_path / f"{name}.yaml").write_text(text)
    with pytest.raises(RulesError, match="the plan 'free' is another one in the domain 'a'"):
        Gate.from_file(tmp_path)


# Coroutines -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_cancelled_checks_take_nothing(
    kind: str, request: pytest.FixtureRequest, sqlite_url: str, tmp_path: Path, prefix: str
) -> None:
    async def main() -> tuple[int, int]:
        ledger = AsyncLedger(sqlite_url)
        store: Any = MemoryStore()
        if kind == "redis":
            url = request.getfixturevalue("redis_url")
            store = RedisStore(url, prefix=prefix, deadline="60s")
        quotas = ledger.quota_store(store, settle="1h", journal=tmp_path / "j", deadline="60s")
        gate = AsyncGate.from_rules(rules(limits="100000/hour"), quotas)
        count = 0
        for number in range(15):
            tasks = [asyncio.ensure_future(gate.check(ACME, {"plan": "pro"})) for _ in range(40)]
            for _ in range(number % 4):
                await asyncio.sleep(0)
            for task in tasks[:: 1 + number % 3]:
                task.cancel()
            if number % 5 == 0:
                await asyncio.to_thread(quotas.settle)
            verdicts = await asyncio.gather(*tasks, return_exceptions=True)
            count += sum(bool(v) for v in verdicts if not isinstance(v, BaseException))
        for _ in range(200):  # what was cancelled gives back in the background
            await asyncio.sleep(0.001)
        await asyncio.to_thread(quotas.settle)
        balance = (await ledger.balance("acme"))["requests"]
        if kind == "redis":
            await store.close_async()
            store.close()
        await asyncio.to_thread(quotas.close)
        await ledger.close()
        return count, balance.spent

    count, spent = asyncio.run(main())
    assert 0 < count <= 1000
    # A unit may be given back after it was settled: then the next ones are not counted.
    assert count <= spent <= count + 40
