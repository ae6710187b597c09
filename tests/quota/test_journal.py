"""The journal: what a process has spent survives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import StoreFileError
from penstock.quota.journal import Journal, StockKey, Totals

ACME = StockKey("acme", "requests", 1000)
BOB = StockKey("bob", "requests", 2000)


def test_totals_add_up(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "journal", "origin")
    assert journal.add(ACME, 3)
    assert not journal.add(ACME, 2, 1)
    journal.add(BOB, 0, 7)
    assert journal.totals() == {ACME: Totals(5, 1), BOB: Totals(0, 7)}
    assert journal.of(ACME) == Totals(5, 1)
    assert journal.of(StockKey("x", "y", 1)) == Totals(0, 0)
    journal.close()


def test_a_living_process_keeps_its_journal(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "origin")
    journal.add(ACME, 3)
    assert list(Journal.orphans(tmp_path)) == []
    journal.close()
    (orphan,) = Journal.orphans(tmp_path)
    assert (orphan.part, orphan.totals()) == (journal.part, {ACME: Totals(3, 0)})
    assert list(Journal.orphans(tmp_path)) == []
    orphan.remove()
    assert list(tmp_path.iterdir()) == []


def test_whether_others_have_stocks_of_an_origin(tmp_path: Path) -> None:
    one, other = Journal.create(tmp_path, "a"), Journal.create(tmp_path, "b")
    assert (one.origin, other.origin) == ("a", "b")
    assert Journal.lives(tmp_path, "a", set())
    assert not Journal.lives(tmp_path, "a", {one.part})
    other.close()
    assert not Journal.lives(tmp_path, "b", set())
    one.remove()


def test_a_place_is_used_again_from_zero(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "origin")
    journal.add(ACME, 3)
    assert not journal.drop(ACME, Totals(2, 0))  # more was spent since
    assert journal.drop(ACME, Totals(3, 0))
    journal.add(BOB, 1)
    journal.close()
    (orphan,) = Journal.orphans(tmp_path)
    assert orphan.totals() == {BOB: Totals(1, 0)}
    orphan.remove()


def test_it_grows(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "origin")
    keys = [StockKey(f"account {number}", "requests", number) for number in range(9000)]
    for number, key in enumerate(keys):
        journal.add(key, number)
    journal.close()
    (orphan,) = Journal.orphans(tmp_path)
    assert orphan.totals() == {key: Totals(number, 0) for number, key in enumerate(keys)}
    orphan.remove()


def test_lines_are_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.quota.journal._MOST_OLD_LINES", 10)
    journal = Journal.create(tmp_path, "origin")
    journal.add(BOB, 5)
    for number in range(50):
        key = StockKey("acme", "requests", number)
        journal.add(key, 1)
        journal.drop(key, Totals(1, 0))
    assert len((tmp_path / f"{journal.part}.stocks").read_text().splitlines()) < 20
    journal.close()
    (orphan,) = Journal.orphans(tmp_path)
    assert orphan.totals() == {BOB: Totals(5, 0)}
    orphan.remove()


def test_a_line_that_was_cut_off_is_no_stock(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "origin")
    journal.add(ACME, 3)
    with (tmp_path / f"{journal.part}.stocks").open("ab") as file:
        file.write(b'[1, "bo')
    journal.close()
    (orphan,) = Journal.orphans(tmp_path)
    assert orphan.totals() == {ACME: Totals(3, 0)}
    orphan.remove()


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(StoreFileError, match="is a link"):
        Journal.create(tmp_path / "link", "origin")


_SPENDER = """
import sys
from pathlib import Path
from penstock.quota.journal import Journal, StockKey
journal = Journal.create(Path(sys.argv[1]), "origin")
for number in range(10**9):
    journal.add(StockKey("acme", "requests", number % 5), 1)
    print(number, flush=True)
"""


def test_a_killed_process_loses_nothing_that_it_said(tmp_path: Path) -> None:
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", _SPENDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if int(line) == 200:
                    process.send_signal(signal.SIGKILL)
                    break
            said = 201 + sum(1 for _ in process.stdout)
        (orphan,) = Journal.orphans(tmp_path)
        counted = sum(totals.taken for totals in orphan.totals().values())
        assert said <= counted <= said + 1
        orphan.remove()
    assert os.listdir(tmp_path) == []
