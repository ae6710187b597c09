"""Bad input is refused before anything is written, and the message says what to write."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from penstock.quota import InvalidQuota, Ledger


@pytest.fixture
def opened(sqlite_url: str, ledger_at: Callable[[str], Ledger]) -> Ledger:
    ledger = ledger_at(sqlite_url)
    ledger.open("acme", plan="pro")
    return ledger


@pytest.mark.parametrize(
    ("amount", "message"),
    [
        (0, "amount is from 1 to 1,000,000,000,000,000, not 0"),
        (-5, "not -5; to take units away, use adjust"),
        (10**15 + 1, "amount is from 1 to"),
        (2**64, "amount is from 1 to"),
        (1.5, "amount is a whole number of units, not 1.5"),
        (float("nan"), "amount is a whole number of units, not nan"),
        ("5", "amount is a whole number of units, not '5'"),
        (True, "amount is a whole number of units, not True"),
        (None, "amount is a whole number of units, not None"),
    ],
)
def test_amounts(opened: Ledger, amount: Any, message: str) -> None:
    for verb in (
        lambda: opened.grant("acme", amount, meter="tokens", ref="r"),
        lambda: opened.spend("acme", amount, meter="tokens"),
        lambda: opened.hold("acme", amount, meter="tokens"),
    ):
        with pytest.raises(InvalidQuota, match=re.escape(message)):
            verb()
    assert len(list(opened.entries())) == 2


@pytest.mark.parametrize("amount", [0, 1.5, "5", True, 10**16, -(10**16)])
def test_corrections(opened: Ledger, amount: Any) -> None:
    with pytest.raises(InvalidQuota, match="an adjustment is a whole number other than 0"):
        opened.adjust("acme", amount, meter="tokens", ref="r")


@pytest.mark.parametrize("total", [-1, 0.5, "5", None])
def test_totals(opened: Ledger, total: Any) -> None:
    with pytest.raises(InvalidQuota, match="total is"):
        opened.settle("acme", total, meter="tokens", source="s")
    hold = opened.hold("acme", 5, meter="tokens")
    with pytest.raises(InvalidQuota, match="used is"):
        hold.settle(total)
    hold.release()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "has 1 to 200 characters, not 0"),
        ("x" * 201, "has 1 to 200 characters, not 201"),
        ("a\nb", "has control characters or outer spaces"),
        ("a\0b", "has control characters or outer spaces"),
        ("a\ud800", "has control characters or outer spaces"),
        (" a", "has control characters or outer spaces"),
        (b"a", "is a str, not b'a'"),
        (None, "is a str, not None"),
        (5, "is a str, not 5"),
    ],
)
def test_names(opened: Ledger, name: Any, message: str) -> None:
    calls: dict[str, Callable[[], object]] = {
        "account": lambda: opened.spend(name, 1, meter="tokens"),
        "meter": lambda: opened.spend("acme", 1, meter=name),
        "ref": lambda: opened.grant("acme", 1, meter="tokens", ref=name),
        "source": lambda: opened.settle("acme", 1, meter="tokens", source=name),
        "id": lambda: opened.settle_hold("acme", name, 1),
        "plan": lambda: opened.change_plan("acme", name),
    }
    for what, call in calls.items():
        with pytest.raises(InvalidQuota, match=re.escape(f"{what} ")) as refused:
            call()
        assert message in str(refused.value)


@pytest.mark.parametrize(
    "name", ["ünïcödé", "日本", "a'; DROP TABLE penstock_entry; --", "100%", "%s", "a?b", '"', "\\"]
)
def test_names_that_are_fine(ledger: Ledger, name: str) -> None:
    ledger.open(name)
    ledger.grant(name, 10, meter=name, ref=name, who=name, note=name)
    ledger.spend(name, 4, meter=name, ref=name)
    ledger.settle(name, 2, meter=name, source=name)
    assert ledger.balance(name)[name].available == 4
    assert [entry.meter for entry in ledger.entries(name, meter=name)] == [name] * 3


@pytest.mark.parametrize(
    ("tz", "message"),
    [
        ("Asia/Tapei", "is no time zone: write a name such as 'Asia/Taipei'"),
        ("Asia/Tapei", "did you mean 'Asia/Taipei'?"),
        ("", "is no time zone"),
        ("../../etc/passwd", "is no time zone"),
        ("/etc/localtime", "is no time zone"),
        ("Asia", "is no time zone"),
        ("a\0b", "is no time zone"),
        (8, "tz is the name of a time zone"),
        (None, "tz is the name of a time zone"),
    ],
)
def test_zones(opened: Ledger, tz: Any, message: str) -> None:
    with pytest.raises(InvalidQuota, match=re.escape(message)):
        opened.open("other", tz=tz)


@pytest.mark.parametrize("anchor", [0, 32, -1, 1.5, "first", "2024-02-30", None, True])
def test_anchors(opened: Ledger, anchor: Any) -> None:
    with pytest.raises(InvalidQuota, match="anchor"):
        opened.open("other", anchor=anchor)
    assert opened.open("a", anchor="2024-02-29").anchor == 29
    assert opened.open("b", anchor=date(2024, 2, 29)).anchor == 29


@pytest.mark.parametrize(
    ("expires", "message"),
    [
        ("soon", "expires 'soon' has an unknown unit 'soon'"),
        ("2024-13-45", "expires '2024-13-45' is no time: write '90d', '2026-12-31'"),
        ("2001-01-01", "is not after the credit begins"),
        (0, "expires must be above zero"),
        (-5, "expires must be above zero"),
        ([], "expires must be a duration"),
    ],
)
def test_expiry(opened: Ledger, expires: Any, message: str) -> None:
    with pytest.raises(InvalidQuota, match=re.escape(message)):
        opened.grant("acme", 1, meter="tokens", ref="r", expires=expires)
    assert len(list(opened.entries())) == 2


def test_other_arguments(opened: Ledger) -> None:
    with pytest.raises(InvalidQuota, match="kind is 'top-up' or 'promo', not 'plan'"):
        opened.grant("acme", 1, meter="tokens", ref="r", kind="plan")
    with pytest.raises(InvalidQuota, match="priority is a whole number from 0"):
        opened.grant("acme", 1, meter="tokens", ref="r", priority=-1)
    with pytest.raises(InvalidQuota, match="note has at most 2000 characters"):
        opened.spend("acme", 1, meter="tokens", note="x" * 2001)
    with pytest.raises(InvalidQuota, match="who is a str"):
        opened.spend("acme", 1, meter="tokens", who=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidQuota, match="after is the seq of an entry"):
        list(opened.entries(after=-1))
    with pytest.raises(InvalidQuota, match="plans is a mapping"):
        Ledger("sqlite:///x.db", plans=["pro"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="clock"):
        Ledger("sqlite:///x.db", clock=5)  # type: ignore[arg-type]
