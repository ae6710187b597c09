"""The one place where keys of a shared store are joined and escaped.

::

    penstock:100/minute:user:42                     prefix : limit : key
    penstock:{acme}:100/minute:user:42              with a hash tag, for a cluster
    penstock:1000/hour%20burst%202000:a%7Bb%7D      escaped where it must be

Every part but the last is free of ``:``, so that no two different sets of parts make
one key. Spaces, control characters, quotes, braces, backslashes and ``%`` are written
as ``%XX``: what is left can be typed in a shell, and only a tag that was meant as one
chooses the slot in a cluster. Other text stays as it is, in UTF-8.
"""

from __future__ import annotations

import re

from penstock.errors import InvalidKey

_UNSAFE = re.compile(r"""[\x00-\x20"%'\\{}\x7f]""")
_UNSAFE_INSIDE = re.compile(r"""[\x00-\x20"%':\\{}\x7f]""")


def last_part(text: str) -> str:
    """``text`` escaped for the end of a key, where ``:`` may stay."""
    return _UNSAFE.sub(_code, text) if _UNSAFE.search(text) else text


def part(text: str) -> str:
    """``text`` escaped for anywhere in a key."""
    return _UNSAFE_INSIDE.sub(_code, text)


def check_prefix(prefix: object) -> str:
    """A prefix for all keys of a store: any text; ``:`` may divide it."""
    if not isinstance(prefix, str) or not prefix:
        raise InvalidKey(f"a prefix is a non-empty str, not {prefix!r:.100}")
    return ":".join(part(piece) for piece in prefix.split(":"))


def encode(text: str) -> bytes:
    """As bytes, one to one, lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def _code(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"
