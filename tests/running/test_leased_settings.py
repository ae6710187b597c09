"""``--leased`` and ``--lease-replicas``: the store that a worker opens."""

from __future__ import annotations

import pytest

from penstock.rules.model import RuleSet
from penstock.rules.reading.loading import read_rules
from penstock.running.settings import Settings
from penstock.running.stores import open_store

pytest.importorskip("redis")

from penstock.stores.leased import LeasedStore
from penstock.stores.redis import RedisStore

URL = "redis://127.0.0.1:1"  # nobody is asked


@pytest.fixture
def rules() -> RuleSet:
    return read_rules("{domain: api, descriptors: [{key: user, limits: 5/second}]}")


@pytest.mark.parametrize(
    ("settings", "replicas"),
    [
        (Settings(store=URL, leased=True), 0),
        (Settings(store=f"leased+{URL}"), 0),
        (Settings(store=f"leased+{URL}", leased=True), 0),
        (Settings(store=URL, leased=True, lease_replicas=2), 2),
        (Settings(store=f"leased+{URL}", lease_replicas=1), 1),
    ],
)
def test_a_worker_leases(rules: RuleSet, settings: Settings, replicas: int) -> None:
    store = open_store(settings.store, settings, rules)
    assert isinstance(store, LeasedStore)
    assert store._renewal.exchange.replicas == replicas
    assert store.redis.name == "127.0.0.1:1"
    store.close()


def test_it_does_not_unless_it_is_told_to(rules: RuleSet) -> None:
    store = open_store(URL, Settings(store=URL), rules)
    assert type(store) is RedisStore
    store.close()
