"""Sets of rules in a key-value store: pushed, fetched, listed and put back.

The files are written first, under their digests, and ``rules/current`` last, by compare-and-set.
So a reader sees the old set or the new one, and of two operators who push at the same time, one is
told. The last 50 sets are kept.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.control.steps import Flow, call
from penstock.errors import RulesError, StoreError
from penstock.kv import LARGEST_VALUE, Entry
from penstock.rules.model import RuleSet
from penstock.rules.reading.tree import BOUNDS

CURRENT = "rules/current"
SETS = "rules/set/"
FILES = "rules/file/"
MOST_SETS = 50
# Seconds after which a file that no set names is deleted: another push may be under way.
_SETTLED = 3600
_LARGEST_SET = 64 * 1024 * 1024

Files = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class RuleSetInfo:
    """A set that was pushed. ``number`` counts the sets of a store."""

    number: int
    digest: str
    pieces: int
    files: int
    size: int
    summary: str
    at: float
    who: str
    why: str
    revision: int  # of rules/current, or of the set's own entry


def current() -> Flow[RuleSetInfo | None]:
    """The set in force, as the store itself has it."""
    entry = yield from call("get", CURRENT, read="primary")
    return None if entry is None else info_of(entry)


def fetch(info: RuleSetInfo) -> Flow[dict[str, bytes]]:
    """Its files, by name; `StoreError` if they are incomplete or damaged."""
    manifest = json.loads((yield from _read(info.digest, info.pieces, _LARGEST_SET)))
    files = {}
    for name, (digest, pieces) in manifest.items():
        files[name] = yield from _read(digest, pieces, BOUNDS.size)
    return files


def push(
    files: Files, *, summary: str = "", expect: int | None = None, who: str = "", why: str = ""
) -> Flow[RuleSetInfo]:
    """Put these files in force. `RevisionConflict` if the store has another set than expected.

    ``expect`` is the revision of the set that was compared with, 0 for none. The caller has
    checked the rules.
    """
    before = yield from current()
    revision = (0 if before is None else before.revision) if expect is None else expect
    manifest = {}
    for name, data in files.items():
        manifest[name] = yield from _write(data)
    digest, pieces = yield from _write(json.dumps(manifest).encode())
    sets = yield from call("list", SETS, read="primary")
    number = 1 + max((info_of(entry).number for entry in sets), default=0)
    text = json.dumps(
        {
            "number": number,
            "digest": digest,
            "pieces": pieces,
            "files": len(files),
            "size": sum(map(len, files.values())),
            "summary": summary[:2000],
        }
    )
    yield from call("put", f"{SETS}{number:08}", text, expect=0, who=who, why=why)
    entry = yield from call("put", CURRENT, text, expect=revision, who=who, why=why)
    yield from _forget_old(number)
    return info_of(entry)


def history(limit: int = MOST_SETS) -> Flow[list[RuleSetInfo]]:
    """The sets that are kept, the newest first."""
    sets = yield from call("list", SETS, read="primary")
    return sorted(map(info_of, sets), key=lambda info: -info.number)[:limit]


def find(number: int) -> Flow[RuleSetInfo]:
    entry = yield from call("get", f"{SETS}{number:08}", read="primary")
    if entry is None:
        known = yield from history()
        numbers = f"the store has {known[-1].number} to {known[0].number}" if known else "none yet"
        raise StoreError(f"there is no set of rules {number}: {numbers}")
    return info_of(entry)


def rules_of(files: Files, *, merge_domains: bool = False) -> RuleSet:
    """`RulesError` lists all problems."""
    if not files:
        raise RulesError("the set has no files")
    from penstock.rules.reading.parse import load_texts

    return load_texts(files, merge_domains=merge_domains)


def info_of(entry: Entry) -> RuleSetInfo:
    """`StoreError` if the entry was not written by `push`."""
    try:
        data: dict[str, Any] = json.loads(entry.text)
        return RuleSetInfo(
            data["number"], data["digest"], data["pieces"], data["files"], data["size"],
            data["summary"], entry.at, entry.who, entry.why, entry.revision,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError):
        raise StoreError(f"the entry {entry.key!r} is no set of rules") from None


# Contents of files -------------------------------------------------------------------------


def _write(data: bytes) -> Flow[tuple[str, int]]:
    """Under its digest, in pieces; nothing if it is there already."""
    digest = hashlib.sha256(data).hexdigest()
    packed = zlib.compress(data, 6)
    pieces = [packed[at : at + LARGEST_VALUE] for at in range(0, len(packed), LARGEST_VALUE)]
    last = yield from call("get", f"{FILES}{digest}/{len(pieces) - 1}", read="primary")
    if last is None:
        for number, piece in enumerate(pieces):
            yield from call("put", f"{FILES}{digest}/{number}", piece)
    return digest, len(pieces)


def _read(digest: str, pieces: int, largest: int) -> Flow[bytes]:
    packed = b""
    for number in range(pieces):
        entry = yield from call("get", f"{FILES}{digest}/{number}")
        if entry is None:
            entry = yield from call("get", f"{FILES}{digest}/{number}", read="primary")
        if entry is None:
            raise StoreError(f"a piece of the rules is missing in the store: {digest[:12]}")
        packed += entry.value if isinstance(entry.value, bytes) else entry.value.encode()
    try:
        data = zlib.decompressobj().decompress(packed, largest)
    except zlib.error as error:
        raise StoreError(f"a file of the rules in the store is damaged: {error}") from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise StoreError("a file of the rules in the store is damaged: its digest is another one")
    return data


def _forget_old(number: int) -> Flow[None]:
    sets = sorted(map(info_of, (yield from call("list", SETS, read="primary"))), key=_number)
    old, kept = sets[:-MOST_SETS], sets[-MOST_SETS:]
    if not old:
        return
    for info in old:
        yield from call("delete", f"{SETS}{info.number:08}", why="too old")
    named = set()
    for info in kept:
        named.add(info.digest)
        manifest = json.loads((yield from _read(info.digest, info.pieces, _LARGEST_SET)))
        named.update(digest for digest, _ in manifest.values())
    newest = kept[-1].at
    for entry in (yield from call("list", FILES, read="primary")):
        if entry.key.split("/")[2] not in named and entry.at < newest - _SETTLED:
            yield from call("delete", entry.key, why="no set of rules has it")


def _number(info: RuleSetInfo) -> int:
    return info.number
