"""Records: entries and tombstones as backends keep them, with integers for times.

In Redis, a record is a line of numbers, then who, why and the payload::

    1 <revision> <previous> <at> <expires> <token> <bytes of who> <bytes of why> <kind>\\n
    <who><why><payload>

Times are milliseconds since 1970 by the store's clock; ``expires`` 0 means never. The token is
random: two records with the same revision and token are the same write, also after a failover in
which a server has forgotten writes and has numbered others the same.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace

from penstock.errors import StoreError
from penstock.kv.codec import LARGEST_PAYLOAD, decode
from penstock.kv.entry import DELETE, EXPIRE, PUT, Change, Entry

_VERSION = b"1"
_LONGEST_HEAD = 200


@dataclass(frozen=True, slots=True)
class Record:
    """``payload`` is None for a tombstone."""

    key: str
    revision: int
    token: str
    at: int
    expires: int
    previous: int
    who: str
    why: str
    payload: bytes | None

    def is_live(self, now: int) -> bool:
        """Whether the key exists at this moment, in milliseconds."""
        return self.payload is not None and not 0 < self.expires <= now

    def entry(self, age: float = 0.0) -> Entry:
        assert self.payload is not None
        return Entry(
            self.key,
            decode(self.key, self.payload),
            self.revision,
            self.at / 1000,
            self.expires / 1000 if self.expires else None,
            self.who,
            self.why,
            age,
        )

    def change(self, age: float = 0.0) -> Change:
        """This write, for watchers and for the history."""
        entry = None if self.payload is None else self.entry(age)
        return Change(
            DELETE if entry is None else PUT,
            self.key,
            self.revision,
            entry,
            self.at / 1000,
            self.who,
            self.why,
            self.previous,
        )

    def expiry(self) -> Change:
        """The end of its time to live, which is no write and has no revision of its own."""
        return Change(
            EXPIRE, self.key, self.revision, None, self.expires / 1000, previous=self.revision
        )

    def removal(self) -> Change:
        """It is gone, and who deleted it is no longer known."""
        return Change(DELETE, self.key, self.revision, None, self.at / 1000, previous=self.revision)

    def without_payload(self) -> Record:
        """For a key whose value is only on disk."""
        return replace(self, payload=b"")

    def with_payload(self, payload: bytes) -> Record:
        return replace(self, payload=payload)

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return len(self.key) + len(self.who) + len(self.why) + len(self.payload or b"")


@dataclass(frozen=True, slots=True)
class Write:
    """A write that is not done yet. ``ttl`` is milliseconds, or 0 for ever."""

    key: str
    payload: bytes | None
    ttl: int = 0
    expect: int | None = None
    who: str = ""
    why: str = ""
    token: str = ""

    def record(self, revision: int, previous: int, now: int) -> Record:
        expires = now + self.ttl if self.ttl else 0
        return Record(
            self.key, revision, self.token, now, expires, previous, self.who, self.why, self.payload
        )


def new_token() -> str:
    return secrets.token_hex(8)


def parse_record(key: bytes, data: bytes) -> Record:
    """`StoreError` if Penstock did not write it."""
    try:
        line = data.index(b"\n", 0, _LONGEST_HEAD)
        version, *numbers, token, who_size, why_size, kind = data[:line].split(b" ")
        if version != _VERSION:
            raise ValueError(f"version {version[:10]!r}")
        revision, previous, at, expires = map(int, numbers)
        end_of_who = line + 1 + int(who_size)
        end_of_why = end_of_who + int(why_size)
        payload = data[end_of_why:]
        if end_of_why > len(data) or len(payload) > LARGEST_PAYLOAD:
            raise ValueError("lengths")
        return Record(
            key.decode(),
            revision,
            token.decode("ascii"),
            at,
            expires,
            previous,
            data[line + 1 : end_of_who].decode(),
            data[end_of_who:end_of_why].decode(),
            payload if kind == b"p" else None,
        )
    except ValueError as error:
        raise StoreError(
            f"the entry {key[:100]!r} in the store is damaged, or of another version: {error}"
        ) from None
