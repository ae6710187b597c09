"""The one place where keys are joined and escaped.

Keys of a shared store::

    penstock:100/minute:user:42                     prefix : limit : key
    penstock:@search:100/minute:user:42             of a limiter with a name
    penstock:{acme}:100/minute:user:42              with a hash tag, for a cluster
    penstock:1000/hour%20burst%202000:a%7Bb%7D      escaped where necessary
    penstock:slots:{reports}:held                   slots of a concurrency limit
    penstock:leases:{penstock:100/minute:user:42}   leases of a counter
    penstock:rlqs:{shop}:shop|user=42               a limit that is divided among Envoys
    penstock:region:100/minute:user:42              what a site has of a limit
    penstock:region-state:{eu}:agent                who speaks for a site, and what it knows
    penstock:home:{home}:100/minute:user:42         what the regions have of a limit, at home

Every part but the last is free of ``:``, so that different parts never make the same key.
Spaces, control characters, quotes, braces, backslashes and ``%`` are written as ``%XX``. What is
left can be typed in a shell, and only a tag that was meant as one chooses the slot in a cluster.
Other text stays as it is, in UTF-8.

Rules count each descriptor under a key of its own, in any store::

    shop|user=42|path=/cart                         domain | pair | pair
    shop|user=42|path=/cart|slots                   slots of its concurrency

Here ``|``, ``=``, ``%`` and control characters are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from penstock.errors import InvalidKey

_UNSAFE = re.compile(r"""[\x00-\x20"%'\\{}\x7f]""")
_UNSAFE_INSIDE = re.compile(r"""[\x00-\x20"%':\\{}\x7f]""")
_UNSAFE_IN_DESCRIPTORS = re.compile(r"[\x00-\x1f%=|\x7f-\x9f]")


def last_part(text: str) -> str:
    """``text`` escaped for the end of a key, where ``:`` may stay."""
    return _UNSAFE.sub(_code, text) if _UNSAFE.search(text) else text


def part(text: str) -> str:
    """``text`` escaped for anywhere in a key."""
    return _UNSAFE_INSIDE.sub(_code, text)


def join(parts: Iterable[str]) -> str:
    """One key of several parts."""
    return ":".join(part(text) for text in parts)


def check_prefix(prefix: object) -> str:
    """A prefix for all keys of a store: any text; ``:`` may divide it."""
    if not isinstance(prefix, str) or not prefix:
        raise InvalidKey(f"a prefix is a non-empty str, not {prefix!r:.100}")
    return join(prefix.split(":"))


def encode(text: str) -> bytes:
    """As bytes, one to one, lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


# In a shared store ------------------------------------------------------------------


@lru_cache(4096)  # called for every decision on keys with tags
def counter_head(prefix: str, limit: str, tag: str | None = None, name: str | None = None) -> str:
    """What all keys of one limit, one name and one hash tag begin with; ``prefix`` is checked."""
    tagged = "" if tag is None else f"{{{part(tag)}}}:"
    named = "" if name is None else f"@{part(name)}:"  # a limit begins with a digit
    return f"{prefix}:{tagged}{named}{part(limit)}:"


def counter_key(head: str, key: str) -> bytes:
    """Where the counter of ``key`` is kept; for ``head`` see `counter_head`."""
    return encode(head + last_part(key))


def lease_key(prefix: str, counter: bytes) -> bytes:
    """Where the leases of a counter are kept, in the same slot of a cluster."""
    inside = counter if b"{" in counter else b"{%b}" % counter
    return b"%b:leases:%b" % (encode(prefix), inside)


def quota_key(prefix: str, account: str) -> bytes:
    """Where a limit that is divided among Envoys is kept: one slot for each domain.

    ``account`` is a `descriptor_key`.
    """
    domain = account.partition("|")[0]
    return encode(f"{prefix}:rlqs:{{{part(domain)}}}:{last_part(account)}")


def region_prefix(prefix: str) -> bytes:
    """What the keys of a site's counters begin with, up to the limit or the tag."""
    return encode(f"{prefix}:region:")


def region_keys(prefix: str, region: str) -> tuple[bytes, bytes, bytes]:
    """Where a site keeps its agent, its state and its demand, all in one slot of a cluster."""
    base = f"{prefix}:region-state:{{{part(region)}}}"
    return encode(f"{base}:agent"), encode(f"{base}:state"), encode(f"{base}:demand")


def home_key(prefix: str, place: bytes | None = None) -> bytes:
    """Where the home keeps the account of a counter, ``place`` being its key behind
    `region_prefix`; without one, the roster. All are in one slot of a cluster."""
    base = encode(f"{prefix}:home:{{home}}")
    return base if place is None else b"%b:%b" % (base, place)


def slot_keys(prefix: str, key: str, queues: int) -> tuple[bytes, ...]:
    """Where the slots of ``key`` and its queues are kept, all in one slot of a cluster."""
    base = f"{prefix}:slots:{{{last_part(key)}}}"
    names = ("held", "seen", *(f"line{number + 1}" for number in range(queues)))
    return tuple(encode(f"{base}:{name}") for name in names)


def undecided(key: str) -> str:
    """The key of the row that counts the undecided units of ``key``."""
    return f"undecided:{key}"


# Of rules ---------------------------------------------------------------------------


def descriptor_part(text: str) -> str:
    """A domain, or the key or value of a pair, escaped for `descriptor_key`."""
    unsafe = _UNSAFE_IN_DESCRIPTORS
    return unsafe.sub(_code, text) if unsafe.search(text) else text


def descriptor_head(before: str, key: str) -> str:
    """The text before the value of a pair; ``before`` is the domain and earlier pairs."""
    return f"{before}|{descriptor_part(key)}="


def descriptor_key(domain: str, pairs: Iterable[tuple[str, str]]) -> str:
    """The key of a descriptor."""
    key = descriptor_part(domain)
    for name, value in pairs:
        key = descriptor_head(key, name) + descriptor_part(value)
    return key


def slots_key(key: str) -> str:
    """Where the slots of a descriptor are kept; ``key`` is its `descriptor_key`."""
    return f"{key}|slots"


def _code(unsafe: re.Match[str]) -> str:
    return f"%{ord(unsafe[0]):02X}"
