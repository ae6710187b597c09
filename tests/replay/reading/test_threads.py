"""Several threads read what one reads: the same requests, numbers of texts, and malformed lines."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from penstock._mode import REPLAY_COMPILED
from penstock.replay import LogError, read_log, simulate
from penstock.replay.reading import threads
from replay import example_log

RULES = {"domain": "web", "descriptors": [{"key": "remote_address", "limits": "60/minute"}]}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "access.log"
    example_log.write(path)
    chance = random.Random(1)
    lines = path.read_bytes().splitlines(keepends=True)
    for at in sorted(chance.sample(range(len(lines)), 40), reverse=True):
        lines.insert(at, b"no line of a log\n")
    path.write_bytes(b"".join(lines).removesuffix(b"\n"))
    return path


def contents(log: Path, count: int) -> Any:
    requests = read_log(log, threads=count)
    rows: list[tuple[int, ...]] = []
    for block in requests.blocks():
        columns = [*block.words, *block.numbers]
        rows += zip(block.times[: block.n], *(each[: block.n] for each in columns), strict=True)
    texts = [[each.text(n) for n in range(len(each))] for each in requests.interners]
    return rows, texts, requests.lines, requests.malformed, requests.shown  # type: ignore[attr-defined]


@pytest.mark.skipif(not REPLAY_COMPILED, reason="threads need the compiled scanner")
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("chunk", [1000, 70_000, threads.CHUNK])
def test_they_read_the_same(
    count: int, chunk: int, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "CHUNK", chunk)
    one, several = contents(log, 1), contents(log, count)
    assert one[3] == 40
    assert one == several


def test_reports_are_equal(log: Path) -> None:
    one, two = (simulate(RULES, read_log(log, threads=count)).as_dict() for count in (1, 2))
    assert one == two


def test_strict_names_the_line(log: Path) -> None:
    first = next(
        at for at, line in enumerate(log.read_bytes().splitlines(), 1) if line.startswith(b"no ")
    )
    with pytest.raises(LogError, match=f"access.log:{first}: "):
        list(read_log(log, threads=2, strict=True).blocks())
    with pytest.raises(LogError, match="threads is a number from 1 to 64"):
        read_log(log, threads=0)
