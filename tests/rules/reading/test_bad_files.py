"""Every file in ``bad/`` is refused, with exactly the problems that its first lines expect.

``# expect: 7:9 unknown key ...`` is one problem: line, column, message. Lines and columns
count from 1, remarks included, as in an editor.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import RulesError
from penstock.rules.reading.parse import load_files

FILES = sorted((Path(__file__).parent / "bad").glob("*.yaml"))
EXPECT = "# expect: "


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_bad_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)  # so that messages name files without folders
    expected = [
        f"{path.name}:" + line.removeprefix(EXPECT).replace(" ", ": ", 1)
        for line in path.read_text().splitlines()
        if line.startswith(EXPECT)
    ]
    assert expected, "a bad file says what is wrong with it"
    with pytest.raises(RulesError) as caught:
        load_files([path.name])
    assert [str(problem) for problem in caught.value.problems] == expected


def test_there_are_enough_of_them() -> None:
    assert len(FILES) >= 45
