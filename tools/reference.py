"""Writes what the program itself knows into its reference pages.

    python tools/reference.py            writes them
    python tools/reference.py --check    fails if they would change

The table of the service's options goes into service.md, and what each ``--help`` prints into
command-line.md.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from penstock.running.settings_sources import reference

PAGES = Path(__file__).parents[1] / "docs/reference"


def service(text: str) -> str:
    return re.sub(
        r"(<!-- options -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}\n{reference()}\n{found[2]}",
        text,
        flags=re.S,
    )


def command_line(text: str) -> str:
    return re.sub(
        r"(^\$ penstock([^\n]*?) --help\n).*?(^```$)",
        lambda found: found[1] + help_of(found[2].split()) + found[3],
        text,
        flags=re.S | re.M,
    )


def help_of(command: list[str]) -> str:
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    run = [sys.executable, "-m", "penstock", *command, "--help"]
    return subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout


def main() -> int:
    changed = 0
    for name, write in (("service.md", service), ("command-line.md", command_line)):
        page = PAGES / name
        before = page.read_text()
        after = write(before)
        if before != after:
            changed = 1
            if "--check" not in sys.argv[1:]:
                page.write_text(after)
    return changed if "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
