"""Writes the table of the service's options into its reference page."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.server.settings import reference

PAGE = Path(__file__).parents[1] / "docs/reference/service.md"

text = PAGE.read_text()
made = re.sub(
    r"(<!-- options -->\n).*?(<!-- end -->)",
    lambda found: f"{found[1]}\n{reference()}\n{found[2]}",
    text,
    flags=re.S,
)
PAGE.write_text(made)
