"""Operations: what `KeyValue` and `AsyncKeyValue` share. Each is a flow; the two classes run it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from penstock.clock import Clock
from penstock.durations import MILLISECOND, SECOND, Duration, parse_duration
from penstock.errors import StoreError, StoreUnavailable
from penstock.kv.backend import Flow, Position
from penstock.kv.cache import DiskCache
from penstock.kv.codec import Compression, check_compression, encode
from penstock.kv.entry import (
    LONGEST_WHO,
    LONGEST_WHY,
    AtLeast,
    Change,
    Entry,
    Read,
    Status,
    Value,
    check_expect,
    check_key,
    check_note,
    check_prefix,
    check_read,
)
from penstock.kv.mirror import MEMORY_BYTES, Mirror
from penstock.kv.open import open_backend
from penstock.kv.record import Write, new_token

MOST_HISTORY = 10_000
# In a class with a method `list`, the type has another name.
Changes = list[Change]


class BaseKeyValue:
    """Small values for many readers. Subclasses add the verbs, which block or are awaited."""

    def __init__(
        self,
        where: Any = "memory:",
        *,
        cache: str | Path | None = None,
        namespace: str | None = None,
        replicas: int = 0,
        compression: Compression = "zlib",
        timeout: Duration = "2s",
        memory_bytes: int = MEMORY_BYTES,
        who: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._compression = check_compression(compression)
        self._who = check_note(who, "who", LONGEST_WHO)
        self._timeout = parse_duration(timeout, "timeout") / SECOND
        if type(memory_bytes) is not int or memory_bytes < 0:
            raise ValueError(f"memory_bytes is a whole number from 0, not {memory_bytes!r:.50}")
        self.backend = open_backend(
            where, clock, namespace=namespace, replicas=replicas, timeout=self._timeout
        )
        self._owns_backend = self.backend is not where
        self._memory_bytes = memory_bytes
        self._cache: DiskCache | None = None
        if cache is not None:
            if self.backend.direct:
                raise ValueError(
                    f"cache is for a store in Redis: {self.backend.name} needs none, as it is"
                    " always at hand"
                )
            self._cache = DiskCache(cache, f"{self.backend.name} {namespace}")
        self._new_mirror()

    def _new_mirror(self) -> None:
        self._process = os.getpid()
        self._mirror = Mirror(
            getattr(self.backend, "now", None), cold=self._cache, memory_bytes=self._memory_bytes
        )

    # Flows ----------------------------------------------------------------------------------

    def _put(
        self,
        key: str,
        value: Value,
        ttl: Duration | None,
        expect: int | None,
        who: str | None,
        why: str,
    ) -> Flow[Entry]:
        payload = encode(check_key(key), value, self._compression)
        write = self._write(key, payload, expect, who, why, _milliseconds(ttl))
        written = yield from self.backend.write(write)
        assert written.record is not None
        self._mirror.offer(written.record)
        return written.record.entry()

    def _delete(self, key: str, expect: int | None, who: str | None, why: str) -> Flow[int | None]:
        write = self._write(check_key(key), None, expect, who, why)
        written = yield from self.backend.write(write)
        if written.record is None:
            return None
        self._mirror.offer(written.record)
        return written.record.revision

    def _write(
        self,
        key: str,
        payload: bytes | None,
        expect: int | None,
        who: str | None,
        why: str,
        ttl: int = 0,
    ) -> Write:
        name = self._who if who is None else check_note(who, "who", LONGEST_WHO)
        reason = check_note(why, "why", LONGEST_WHY)
        return Write(key, payload, ttl, check_expect(expect), name, reason, new_token())

    def _get_from_store(self, key: str, read: Read) -> Flow[Entry | None]:
        record, revision = yield from self.backend.read(key)
        _check_reached(read, revision)
        return None if record is None else record.entry()

    def _list_from_store(self, prefix: str, read: Read) -> Flow[list[Entry]]:
        snapshot = yield from self.backend.snapshot(prefix)
        _check_reached(read, snapshot.position.revision)
        return sorted((record.entry() for record in snapshot.records), key=_by_key)

    def _history(self, prefix: str, limit: int, before: int | None) -> Flow[list[Change]]:
        check_prefix(prefix)
        if type(limit) is not int or not 1 <= limit <= MOST_HISTORY:
            raise ValueError(f"limit is from 1 to {MOST_HISTORY}, not {limit!r:.50}")
        records = yield from self.backend.history(prefix, limit, check_expect(before))
        return [record.change() for record in records]

    def _change(self, revision: int) -> Flow[Change | None]:
        if type(revision) is not int or revision < 1:
            raise ValueError(f"a revision is a whole number from 1, not {revision!r:.50}")
        changes = yield from self._history("", 1, revision + 1)
        return changes[0] if changes and changes[0].revision == revision else None

    # Local reads ----------------------------------------------------------------------------

    def _is_local(self, read: object) -> bool:
        """Whether the mirror is to answer. That of a store that is at hand would only be later."""
        return not self.backend.direct and check_read(read) != "primary"

    def _is_current(self, read: Read) -> bool:
        """Whether the mirror may answer; `StoreUnavailable` if it knows nothing at all."""
        if isinstance(read, AtLeast):
            return read.revision <= self._mirror.position.revision
        if not self._mirror.knows_something:
            raise StoreUnavailable(
                f"{self._mirror.status().reason or f'no answer from {self.backend.name} yet'};"
                " and nothing is known from before"
            )
        return True

    def _get_local(self, key: str) -> Entry | None:
        record = self._mirror.get(key)
        return None if record is None else record.entry(self._age())

    def _list_local(self, prefix: str) -> list[Entry]:
        age = self._age()
        return sorted((record.entry(age) for record in self._mirror.list(prefix)), key=_by_key)

    def _age(self) -> float:
        return self._mirror.age or 0.0

    def _status(self) -> Status:
        if self.backend.direct:
            fetched = self.backend.run(self.backend.fetch(Position()))  # has no steps
            return Status(True, fetched.revision, 0.0, "store")
        return self._mirror.status()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.backend.name}>"


def _check_reached(read: Read, revision: int) -> None:
    if isinstance(read, AtLeast) and revision < read.revision:
        raise StoreError(
            f"the store is at revision {revision} and does not have revision {read.revision}: it"
            " was never written, or the store has lost it"
        )


def _milliseconds(ttl: Duration | None) -> int:
    return 0 if ttl is None else max(1, parse_duration(ttl, "ttl") // MILLISECOND)


def _by_key(entry: Entry) -> str:
    return entry.key
