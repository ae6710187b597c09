"""Texts for labels and lists of keys: short, valid, and without personal data if configured.

Clients choose these values, so their length is bounded here: a long text is cut and gets a
digest, which still distinguishes it from others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

Pair = tuple[str, str]

LONGEST = 200
_KEPT = 160
_REMEMBERED = 4096


def short(text: str) -> str:
    """At most `LONGEST` characters that can be encoded."""
    if len(text) > LONGEST:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
        text = f"{text[:_KEPT]}...{digest.hexdigest()}"
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def plain(pairs: Sequence[Pair]) -> str:
    """``plan=free|user=42``"""
    if len(pairs) == 1:
        key, value = pairs[0]
        return short(f"{key}={value}")
    return short("|".join([f"{key}={value}" for key, value in pairs]))


class Hashed:
    """The same with a digest in place of each value: ``plan=#6b1f...|user=#90c2...``.

    Processes whose metrics are summed need the same ``salt``. Anyone who knows it can find
    the key of a digest by trying: treat it like a password.
    """

    def __init__(self, salt: str | bytes) -> None:
        if not isinstance(salt, (str, bytes)) or not salt:
            raise ValueError(f"salt must be a non-empty str or bytes, not {type(salt).__name__}")
        secret = salt.encode() if isinstance(salt, str) else salt
        # A salt of any length becomes a key of the right length.
        key = hashlib.blake2b(secret, digest_size=32).digest()

        @lru_cache(_REMEMBERED)
        def digest(value: str) -> str:
            text = value.encode("utf-8", "surrogatepass")
            return "#" + hashlib.blake2b(text, digest_size=8, key=key).hexdigest()

        self._digest = digest

    def __call__(self, pairs: Sequence[Pair]) -> str:
        return short("|".join([f"{key}={self.value(value)}" for key, value in pairs]))

    def value(self, value: str) -> str:
        """The digest of one value."""
        # Long values are not cached: a few thousand of them would take much memory.
        return self._digest(value) if len(value) <= LONGEST else self._digest.__wrapped__(value)
