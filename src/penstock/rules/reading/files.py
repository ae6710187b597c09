"""Finds and reads rules files."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterable
from pathlib import Path

from penstock.rules.problems import Place, Problems
from penstock.rules.reading.tree import BOUNDS, shown

ENDINGS = (".yaml", ".yml")
_LONGEST_NAME = 300  # in a message


class CannotRead(Exception):
    """A file that cannot be read; the message says which and why."""


def named(path: Path) -> str:
    return shown(str(path), _LONGEST_NAME)


def digest_of(data: bytes) -> str:
    """By which a change of a file's content is detected."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def read_bytes(path: Path) -> bytes:
    """The content of a regular file of bounded size: a pipe might never end."""
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
    """The files themselves, and the rules files in folders, sorted by name.

    Hidden files are left out, and so are the folders in which Kubernetes keeps the versions of a
    mounted ConfigMap: the files themselves are links beside them.
    """
    files: dict[Path, None] = {}
    for path in map(Path, paths):
        try:
            inside = sorted(path.iterdir()) if path.is_dir() else None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            problems.error(Place(str(path), 1, 1), f"cannot read the folder: {reason}")
            continue
        if inside is None:
            files[path] = None
            continue
        rules = [
            file for file in inside
            if file.suffix in ENDINGS and not file.name.startswith(".") and not file.is_dir()
        ]  # fmt: skip
        if not rules:
            problems.error(Place(str(path), 1, 1), "no *.yaml or *.yml in this folder")
        files.update(dict.fromkeys(rules))
    return list(files)
