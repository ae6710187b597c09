"""GET /v1/leases: the keys that are leased, and who holds how much of each."""

from __future__ import annotations

import re
from typing import Any

import pytest

from admin.conftest import Site
from penstock.admin.leases import MOST, look, merged
from penstock.metrics import Hashed
from penstock.stores.memory import MemoryStore

pytest.importorskip("redis")

from penstock.stores.leased import Holder, LeasedKey


def holder(instance: str, units: int, demand: int) -> dict[str, Any]:
    return {"instance": instance, "units": units, "demand": demand, "expires": 0.5}


def leased(key: str, *holders: dict[str, Any]) -> dict[str, Any]:
    return {"limit": "100/second", "key": key, "holders": list(holders)}


def test_workers_that_lease_one_key_are_one_row() -> None:
    a, b, other = holder("a", 3, 20), holder("b", 9, 10), holder("other-host", 1, 5)
    first = {"total": 2, "keys": [leased("k", a, other), leased("mine", a)]}
    second = {"total": 1, "keys": [leased("k", b, other)]}
    both = merged([first, second])
    assert both["total"] == 3
    assert both["keys"] == [
        {"limit": "100/second", "key": "k", "units": 13, "demand": 35, "holders": [b, a, other]},
        {"limit": "100/second", "key": "mine", "units": 3, "demand": 20, "holders": [a]},
    ]


def test_only_the_busiest_are_shown() -> None:
    rows = [leased(f"k{number}", holder("a", 1, number)) for number in range(3 * MOST)]
    keys = merged([{"total": 3 * MOST, "keys": rows}])["keys"]
    assert [row["demand"] for row in keys] == list(range(3 * MOST - 1, 2 * MOST - 1, -1))


class Leasing(MemoryStore):
    can_lease = True

    def stats(self) -> Any:
        return type("Stats", (), {"leases": 1})

    def leased_keys(self, most: int) -> list[Any]:
        raise ConnectionError("the server is gone")


async def test_a_server_that_does_not_answer_hides_only_the_keys() -> None:
    assert await look(Leasing()) == {"total": 1, "keys": []}


class Held(Leasing):
    def leased_keys(self, most: int) -> list[Any]:
        held = Holder("a", 3, 20, 0.5)
        return [LeasedKey("100/second", "api|user=42|path=/a", 3, 20, (held,))]


async def test_values_of_keys_are_hidden_if_they_are_to_be() -> None:
    (row,) = (await look(Held()))["keys"]
    assert row == {
        "limit": "100/second", "key": "api|user=42|path=/a", "holders": (holder("a", 3, 20),)
    }  # fmt: skip
    (hidden,) = (await look(Held(), Hashed("salt")))["keys"]
    assert re.fullmatch(r"api\|user=#\w{16}\|path=#\w{16}", hidden["key"])


async def test_a_store_that_does_not_lease_has_none(site: Site) -> None:
    assert (await site.ask("GET", "/v1/leases")).json() == {"total": 0, "keys": []}
