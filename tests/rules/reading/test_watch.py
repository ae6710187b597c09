"""No change of a file goes unseen, whenever it comes."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("yaml")
pytest.importorskip("watchfiles")

from penstock import Descriptor, Gate, RulesError
from penstock.events import Event, RulesLoaded, RulesRejected
from penstock.rules.reading import parse
from penstock.rules.reading.watch import Watcher


def rules(limit: str, more: str = "", domain: str = "api") -> str:
    return f"domain: {domain}\ndescriptors:\n- {{key: user, limits: {limit}{more}}}\n"


class Watched:
    """A gate whose files are looked at when the test says so."""

    def __init__(self, *files: Path) -> None:
        self.gate = Gate.from_file(*files)
        self.events: list[type[Event]] = []
        self.gate.subscribe(lambda event: self.events.append(type(event)))
        self.watcher = Watcher(files, self.gate.reload, lambda: self.gate.rules.digests)

    def look(self) -> list[type[Event]]:
        """What a look led to."""
        self.events.clear()
        self.watcher.look()
        return [*self.events]

    def limit(self) -> str:
        return told_limit(self.gate)


def told_limit(gate: Gate) -> str:
    verdict = gate.check(Descriptor.of({"user": "1"}, hits=0), domain="api")
    assert verdict.decision is not None
    return str(verdict.decision.limit)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(rules("1/hour"))
    return path


@pytest.fixture
def watched(file: Path) -> Iterator[Gate]:
    gate = Gate.from_file(file)
    yield gate
    gate.close()


def test_a_change_between_loading_and_watching_is_seen(file: Path, watched: Gate) -> None:
    loaded = threading.Event()
    watched.subscribe(lambda event: loaded.set())
    file.write_text(rules("2/hour"))
    watched.watch()
    assert loaded.wait(60)
    assert told_limit(watched) == "2/hour"


def test_a_folder_that_is_replaced_is_looked_at_all_the_same(tmp_path: Path) -> None:
    folder, new = tmp_path / "rules", tmp_path / "new"
    for each, limit in ((folder, "1/hour"), (new, "2/hour")):
        each.mkdir()
        (each / "a.yaml").write_text(rules(limit))
    gate = Gate.from_file(folder)
    loaded = threading.Event()
    gate.subscribe(lambda event: loaded.set() if type(event) is RulesLoaded else None)
    gate.watch()
    try:
        folder.rename(tmp_path / "old")
        new.rename(folder)
        assert loaded.wait(60)
        loaded.clear()
        (folder / "a.yaml").write_text(rules("3/hour"))
        assert loaded.wait(60), "nobody tells of what happens in the new folder"
        assert told_limit(gate) == "3/hour"
    finally:
        gate.close()


def test_nothing_is_loaded_without_a_change(file: Path) -> None:
    watched = Watched(file)
    assert watched.look() == []
    file.write_text(rules("1/hour"))
    assert watched.look() == []
    file.write_text(rules("2/hour"))
    assert watched.look() == [RulesLoaded]
    assert watched.look() == []


def test_files_that_join_and_leave_a_folder(tmp_path: Path, file: Path) -> None:
    watched = Watched(tmp_path)
    (tmp_path / "more.yaml").write_text(rules("5/hour", domain="other"))
    (tmp_path / "notes.txt").write_text("no rules")
    assert watched.look() == [RulesLoaded]
    assert set(watched.gate.rules.domains) == {"api", "other"}
    (tmp_path / "more.yaml").unlink()
    assert watched.look() == [RulesLoaded]
    assert set(watched.gate.rules.domains) == {"api"}
    assert watched.look() == []


def test_a_list_that_changes_before_the_first_look(tmp_path: Path, file: Path) -> None:
    (tmp_path / "bad.txt").write_text("mallory\n")
    file.write_text(rules("9/hour", ", deny: [{file: bad.txt}]"))
    watched = Watched(file)
    (tmp_path / "bad.txt").write_text("mallory\ntrudy\n")
    assert watched.look() == [RulesLoaded]
    assert not watched.gate.check({"user": "trudy"})
    # One that is new in the rules has been read already.
    (tmp_path / "worse.txt").write_text("eve\n")
    file.write_text(rules("9/hour", ", deny: [{file: worse.txt}]"))
    assert watched.look() == [RulesLoaded]
    assert watched.look() == []
    (tmp_path / "bad.txt").unlink()
    assert watched.look() == [], "it is not in the rules any more"


def test_wrong_files_are_tried_once_and_a_right_one_ends_it(file: Path) -> None:
    watched = Watched(file)
    file.write_text("domain: [")
    assert watched.look() == [RulesRejected]
    assert watched.look() == []
    file.write_text(rules("lots"))
    assert watched.look() == [RulesRejected]
    file.write_text(rules("1/hour"))
    assert watched.look() == [], "that is what is in force"
    file.write_text(rules("lots"))
    assert watched.look() == [RulesRejected]
    file.write_text(rules("2/hour"))
    assert watched.look() == [RulesLoaded]


def test_a_file_that_vanishes_and_comes_back(file: Path, tmp_path: Path) -> None:
    watched = Watched(file)
    file.rename(tmp_path / "away")
    assert watched.look() == [RulesRejected]
    assert watched.look() == []
    assert watched.limit() == "1/hour"
    (tmp_path / "away").write_text(rules("2/hour"))
    os.replace(tmp_path / "away", file)
    assert watched.look() == [RulesLoaded]
    assert watched.limit() == "2/hour"


def test_a_mount_whose_contents_are_swapped_by_a_link(tmp_path: Path) -> None:
    for version, limit in (("v1", "1/hour"), ("v2", "2/hour")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "rules.yaml").write_text(rules(limit))
    (tmp_path / "..data").symlink_to(tmp_path / "v1")
    (tmp_path / "rules.yaml").symlink_to(Path("..data/rules.yaml"))
    watched = Watched(tmp_path / "rules.yaml")
    (tmp_path / "..new").symlink_to(tmp_path / "v2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    shutil.rmtree(tmp_path / "v1")
    assert watched.look() == [RulesLoaded]
    assert watched.limit() == "2/hour"


def test_a_file_that_changes_while_it_is_loaded_and_then_back(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(file)
    read = parse.read_bytes

    def changed_before(path: Path) -> bytes:
        file.write_text(rules("3/hour"))
        return read(path)

    file.write_text(rules("2/hour"))
    with monkeypatch.context() as patched:
        patched.setattr(parse, "read_bytes", changed_before)
        assert watched.look() == [RulesLoaded]
    assert watched.limit() == "3/hour"
    file.write_text(rules("2/hour"))
    assert watched.look() == [RulesLoaded]
    assert watched.limit() == "2/hour"


def test_what_is_read_first_does_not_come_into_force_last(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate.from_file(file)
    load, has_read, go_on = parse.load_files, threading.Event(), threading.Event()

    def slowly(*args: object, **options: object) -> object:
        loaded = load(*args, **options)  # type: ignore[arg-type]
        if not has_read.is_set():
            has_read.set()
            assert go_on.wait(60)
        return loaded

    monkeypatch.setattr(parse, "load_files", slowly)
    file.write_text(rules("2/hour"))
    first = threading.Thread(target=gate.reload)
    first.start()
    assert has_read.wait(60)
    file.write_text(rules("3/hour"))
    second = threading.Thread(target=gate.reload)
    second.start()
    second.join(0.2)  # it would be done by now, if it did not wait for the first
    go_on.set()
    first.join(60)
    second.join(60)
    assert told_limit(gate) == "3/hour"


def test_other_files_are_compared_with_what_they_were_at_the_start(tmp_path: Path) -> None:
    certificate = tmp_path / "cert.pem"
    calls: list[str] = []
    certificate.write_text("one")
    watcher = Watcher([], lambda: calls.append("changed"), dict, [certificate])
    certificate.write_text("two")
    for _ in range(2):
        watcher.look()
    assert calls == ["changed"]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(RulesError, match="needs watchfiles"):
        Gate.from_file(file).watch()
