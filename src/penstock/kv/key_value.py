"""KeyValue: small values for many readers, for threads.

>>> from penstock.kv import KeyValue
>>> kv = KeyValue("memory:")
>>> first = kv.put("rules/api", "domain: api", who="ops", why="first rules")
>>> kv.get("rules/api").value
'domain: api'
>>> kv.put("rules/api", "domain: web", expect=first.revision).revision
2
"""

from __future__ import annotations

import os
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Self

from penstock.durations import Duration
from penstock.errors import StoreUnavailable
from penstock.kv.entry import (
    Change,
    Entry,
    Read,
    Status,
    Value,
    check_key,
    check_prefix,
    check_read,
)
from penstock.kv.follower import FollowerThread
from penstock.kv.operations import BaseKeyValue, Changes
from penstock.kv.watching import Watch


class KeyValue(BaseKeyValue):
    """Put, get, delete, list and watch small values. `AsyncKeyValue` is the same for tasks.

    ``where`` is ``"memory:"``, ``"file:..."``, or the URL of a Redis or Valkey. ``cache`` is a
    file on this machine's disk with what was last known, for a start while Redis is away.
    ``replicas`` is how many replicas must confirm a write. ``who`` is the default author of
    writes. The first local read or watch of a store in Redis starts a thread, which follows its
    log until `close`.
    """

    _thread: FollowerThread | None = None

    def put(
        self,
        key: str,
        value: Value,
        *,
        ttl: Duration | None = None,
        expect: int | None = None,
        who: str | None = None,
        why: str = "",
    ) -> Entry:
        """Write a value of up to 10 KB, and return it with its revision.

        After ``ttl`` it is gone. With ``expect``, `RevisionConflict` is raised unless the key is
        at this revision; 0 means that it must not exist.
        """
        return self.backend.run(self._put(key, value, ttl, expect, who, why))

    def get(self, key: str, *, read: Read = "local") -> Entry | None:
        """The entry, or None.

        ``read="local"`` answers from memory, ``"primary"`` from the store, ``at_least(revision)``
        from memory if it includes that revision, else from the store.
        """
        check_key(key)
        if self._is_local(read):
            self._follow()
            if self._is_current(read):
                return self._get_local(key)
        return self.backend.run(self._get_from_store(key, check_read(read)))

    def delete(
        self, key: str, *, expect: int | None = None, who: str | None = None, why: str = ""
    ) -> int | None:
        """Delete a key; the revision of that, or None if it does not exist."""
        return self.backend.run(self._delete(key, expect, who, why))

    def list(self, prefix: str = "", *, read: Read = "local") -> list[Entry]:
        """All entries whose keys begin with ``prefix``, by key."""
        check_prefix(prefix)
        if self._is_local(read):
            self._follow()
            if self._is_current(read):
                return self._list_local(prefix)
        return self.backend.run(self._list_from_store(prefix, check_read(read)))

    def watch(self, prefix: str = "") -> Watch:
        """The entries of this moment, then every change, until the watch is closed.

        A slow reader gets the last state of each key, not all states in between.
        """
        check_prefix(prefix)
        self._follow()
        return Watch(self._mirror, prefix)

    def history(self, prefix: str = "", *, limit: int = 100, before: int | None = None) -> Changes:
        """Writes, the newest first, as far as the store remembers them."""
        return self.backend.run(self._history(prefix, limit, before))

    def change(self, revision: int) -> Change | None:
        """The write with this revision; None if the store does not remember it."""
        return self.backend.run(self._change(revision))

    def sync(self) -> int:
        """Wait until local reads and watches include all writes up to now; the revision."""
        self._follow()
        assert self._thread is not None
        try:
            self._thread.catch_up(self._timeout * 2)
        except FutureTimeout:
            raise StoreUnavailable(f"{self.backend.name}: no answer") from None
        return self._mirror.position.revision

    def status(self) -> Status:
        """Whether the store is reached, and how old local reads are."""
        if not self.backend.direct:
            self._follow()
        return self._status()

    def _follow(self) -> None:
        if self._process != os.getpid():  # forked: the thread is in the parent
            self._new_mirror()
            self._thread = None
        if self._thread is None:
            self._thread = FollowerThread(self.backend, self._mirror, self._cache)
        self._thread.tried.wait(self._timeout * 2)

    def close(self) -> None:
        """Stop following, and close the connections or the file."""
        thread, self._thread = self._thread, None
        if thread is not None and self._process == os.getpid():
            thread.stop()
        if self._owns_backend:
            self.backend.close()
        if self._cache is not None:
            self._cache.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
