"""What users of a key-value store get and give: `Entry`, `Change`, `Status`, `at_least`.

Times are seconds since 1970 by the store's clock. A revision numbers the writes of a whole store,
from 1: the revision of an entry is that of its last write, and 0 stands for "does not exist".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.errors import InvalidKey

Value = str | bytes

# In bytes of UTF-8.
LONGEST_KEY = 256
LONGEST_WHO = 100
LONGEST_WHY = 500

Kind = Literal["put", "delete", "expire"]
Source = Literal["store", "memory", "disk", "nothing"]
PUT: Kind = "put"
DELETE: Kind = "delete"
EXPIRE: Kind = "expire"


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its value.

    ``at`` is when it was written, ``who`` wrote it, and ``why``. ``age`` is for how many seconds
    the reader has not heard from the store: 0 if the store itself answered.
    """

    key: str
    value: Value
    revision: int
    at: float
    expires_at: float | None = None
    who: str = ""
    why: str = ""
    age: float = 0.0

    @property
    def text(self) -> str:
        """The value as text; `UnicodeDecodeError` if it is bytes that are none."""
        return self.value if isinstance(self.value, str) else self.value.decode()


@dataclass(frozen=True, slots=True)
class Change:
    """A key has a new value (``put``), or none any more (``delete``, ``expire``).

    ``entry`` is None unless the kind is ``put``. ``previous`` is the revision of the key before,
    0 if it did not exist.
    """

    kind: Kind
    key: str
    revision: int
    entry: Entry | None
    at: float
    who: str = ""
    why: str = ""
    previous: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """How fresh local reads are.

    ``age`` is for how many seconds the store has not been heard from; None if it never was.
    ``source`` is where values come from: ``store``, ``memory`` (cut off, what was known then),
    ``disk`` (cut off since the start, from the cache) or ``nothing``. ``reason`` says why it is
    cut off.
    """

    connected: bool
    revision: int
    age: float | None
    source: Source
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A consistency of reads: see `at_least`."""

    revision: int


Read = Literal["local", "primary"] | AtLeast


def at_least(revision: int) -> AtLeast:
    """Read a state that includes the write with this revision: ``get(key, read=at_least(7))``."""
    if type(revision) is not int or revision < 0:
        raise ValueError(f"a revision is a whole number from 0, not {revision!r:.50}")
    return AtLeast(revision)


# Checks ---------------------------------------------------------------------------------


def check_key(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise InvalidKey(f"a key is a text of at least one character, not {key!r:.100}")
    return _checked(key, "a key", LONGEST_KEY)


def check_prefix(prefix: object) -> str:
    if not isinstance(prefix, str):
        raise InvalidKey(f"a prefix is a text, not {prefix!r:.100}")
    return _checked(prefix, "a prefix", LONGEST_KEY)


def check_note(text: object, name: str, longest: int) -> str:
    """``who`` or ``why``."""
    if not isinstance(text, str):
        raise TypeError(f"{name} is a text, not {text!r:.100}")
    return _checked(text, name, longest)


def check_read(read: object) -> Read:
    if isinstance(read, AtLeast):
        return read
    if read == "local":
        return "local"
    if read == "primary":
        return "primary"
    raise ValueError(f"read is 'local', 'primary' or at_least(revision), not {read!r:.100}")


def check_expect(expect: object) -> int | None:
    if expect is not None and (type(expect) is not int or expect < 0):
        raise ValueError(
            f"expect is a revision, 0 for a key that does not exist, or None, not {expect!r:.50}"
        )
    return expect


def _checked(text: str, what: str, longest: int) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidKey(f"{what} must be valid Unicode, not {text!r:.100}") from None
    if size > longest:
        raise InvalidKey(f"{what} has at most {longest} bytes of UTF-8, not {size}: {text!r:.50}")
    if not text.isprintable():
        raise InvalidKey(f"{what} has no control characters or line breaks, as {text!r:.100} has")
    return text
