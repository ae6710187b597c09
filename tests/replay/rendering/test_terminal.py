"""Reports in the terminal: what is to be pasted stays valid, however narrow it is."""

from __future__ import annotations

import io
import re

import pytest

from penstock.replay.recommending.yaml import rules_yaml
from penstock.replay.rendering.sections import Section
from penstock.replay.rendering.terminal import print_sections
from penstock.rules.reading.loading import read_rules


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_rules_can_be_pasted_at_any_width(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")
    why = "any limit from 26 to 180 refuses the same 3 keys, and nobody who looks like a person"
    text = rules_yaml(["path=/a very long path with spaces", "remote_address"], "60/minute", why)
    out = Terminal()
    print_sections([Section("rules", text.rstrip().split("\n"), is_verbatim=True)], out)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).split("\n")
    pasted = "\n".join(lines[lines.index("rules") + 1 :])
    assert read_rules(pasted) == read_rules(text)
