"""How texts of rules stand in a configuration: as data, whatever characters they have.

Patterns are written without any character that could have a meaning to a parser of
configuration: everything but letters, digits and a few others is ``\\xHH``.
"""

from __future__ import annotations

import re

from penstock.errors import RulesError
from penstock.rules.lists import Address, as_address
from penstock.rules.wildcards import Pattern

# Parsers of configuration have longest lines; nginx takes 4096 bytes.
LONGEST = 500
_PLAIN = re.compile(r"[A-Za-z0-9/_-]*")
_NOT_IN_COMMENTS = re.compile("[^\x20-\x7e]")
HEADER_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
COOKIE_NAME = re.compile(r"[A-Za-z0-9_]+")


def is_plain(text: str) -> bool:
    """Whether a text means itself in every configuration, without quotes."""
    return bool(text) and _PLAIN.fullmatch(text) is not None


def comment(text: str) -> str:
    """A text inside of a comment, on one line whatever it contains."""
    return _NOT_IN_COMMENTS.sub(_visible, text)


def _visible(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")


def address_of(value: str) -> Address:
    """The address that a value is, whose text is then safe everywhere.

    Not one with a scope: that may be any text.
    """
    address = as_address(value)
    if address is None or getattr(address, "scope_id", None) is not None:
        raise RulesError(
            f"{comment(value)!r:.100} is no address of a client: write one without a scope or a"
            " wildcard, or group them"
        )
    return address


def bytes_of(text: str) -> bytes:
    """A value as servers see it; `RulesError` for what no request can have."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise RulesError(f"the value {comment(text)!r:.100} is not valid Unicode") from None
    if len(raw) > LONGEST:
        raise RulesError(f"the value {comment(text)!r:.60} is longer than {LONGEST} bytes")
    return raw


def literal(text: str) -> str:
    """A text as a regular expression, in the syntax of PCRE and RE2."""
    return "".join(
        chr(byte) if _PLAIN.fullmatch(chr(byte)) else f"\\x{byte:02x}" for byte in bytes_of(text)
    )


def pcre(value: str, *, wildcard: bool) -> str:
    """A value or a pattern of rules as a regular expression that matches the whole text.

    Atomic groups, because the leftmost place of each piece is always right: so nobody can make
    it backtrack.
    """
    if not wildcard:
        return f"^{literal(value)}\\z"
    pattern = Pattern(value, 0, None)
    middles = "".join(f"(?>.*?{literal(middle)})" for middle in pattern.middles)
    bytes_of(value)
    return f"(?s)^{literal(pattern.prefix)}{middles}.*{literal(pattern.suffix)}\\z"


def re2(value: str, *, wildcard: bool) -> str:
    """The same for Envoy, whose expressions match the whole text and never backtrack."""
    bytes_of(value)
    return ".*".join(_re2_literal(piece) for piece in (value.split("*") if wildcard else [value]))


def _re2_literal(text: str) -> str:
    # RE2 reads UTF-8: an escape is a character there, not a byte.
    return "".join(char if _PLAIN.fullmatch(char) else f"\\x{{{ord(char):x}}}" for char in text)


def re2_path(value: str, *, wildcard: bool) -> str:
    """The same for a path that Envoy has normalized: some characters stay escaped in it."""
    bytes_of(value)
    pieces = value.split("*") if wildcard else [value]
    return ".*".join("".join(map(_path_char, piece)) for piece in pieces)


def _path_char(char: str) -> str:
    if _PLAIN.fullmatch(char):
        return char
    escaped = "".join(f"%{byte:02x}" for byte in char.encode())
    return f"(?:{_re2_literal(char)}|(?i:{escaped}))"


def quoted(text: str) -> str:
    """A text as a double-quoted scalar of YAML."""
    bytes_of(text)
    return '"' + "".join(_yaml_char(char) for char in text) + '"'


def _yaml_char(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if " " <= char <= "~":
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
