"""Colours for terminals."""

from __future__ import annotations

import os
from typing import TextIO


class Paint:
    """Colours text on a terminal, but not in a pipe or with NO_COLOR."""

    def __init__(self, out: TextIO) -> None:
        self._on = out.isatty() and not os.environ.get("NO_COLOR")

    def colour(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._on else text

    def red(self, text: str) -> str:
        return self.colour(text, "31")

    def green(self, text: str) -> str:
        return self.colour(text, "32")

    def yellow(self, text: str) -> str:
        return self.colour(text, "33")

    def dim(self, text: str) -> str:
        return self.colour(text, "2")

    def bold(self, text: str) -> str:
        return self.colour(text, "1")

    def outcome(self, allowed: bool) -> str:
        return self.green("allowed") if allowed else self.red("refused")
