"""Finds and reads the files of rules."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

from penstock.rules.problems import Place, Problems
from penstock.rules.reading.tree import shown
from penstock.rules.reading.yaml_tree import BOUNDS

ENDINGS = (".yaml", ".yml")
_LONGEST_NAME = 300  # in a message


class CannotRead(Exception):
    """A file that cannot be read; the message says which and why."""


def named(path: Path) -> str:
    return shown(str(path), _LONGEST_NAME)


def read_bytes(path: Path) -> bytes:
    """The content of an ordinary file of a bounded size: a pipe would never end."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise CannotRead(f"{named(path)} is not a file")
        with path.open("rb") as file:
            data = file.read(BOUNDS.size + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotRead(f"cannot read {named(path)}: {reason}") from None
    if len(data) > BOUNDS.size:
        raise CannotRead(f"{named(path)} is larger than {BOUNDS.size // 10**6} MB")
    return data


def find_files(paths: Iterable[str | Path], problems: Problems) -> list[Path]:
    """The files that ``paths`` name: each itself, or the rules in a folder, in order of name.

    Hidden ones are left out. So are the folders in which Kubernetes keeps the versions of
    a mounted ConfigMap: the files themselves are links beside them.
    """
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        try:
            inside = sorted(path.iterdir()) if path.is_dir() else None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            problems.error(Place(str(path), 1, 1), f"cannot read the folder: {reason}")
            continue
        if inside is None:
            found[path] = None
            continue
        files = [
            file for file in inside
            if file.suffix in ENDINGS and not file.name.startswith(".") and not file.is_dir()
        ]  # fmt: skip
        if not files:
            problems.error(Place(str(path), 1, 1), "no *.yaml or *.yml in this folder")
        found.update(dict.fromkeys(files))
    return list(found)
