"""A strict parser for lists of RFC 9651, the syntax of ``RateLimit`` and ``RateLimit-Policy``.

::

    list   = member *( OWS "," OWS member )
    member = ( item | "(" items ")" ) parameters
    item   = integer | decimal | string | token | bytes | boolean | date | display string

A field that breaks the grammar anywhere is ignored, as the RFC requires: `read_list` returns
None. It never raises, whatever a server sends.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

# No field that we read has a reason to be longer.
LONGEST = 8192

_OWS = re.compile(r"[ \t]*")
_SP = re.compile(r" *")
_KEY = re.compile(r"[a-z*][a-z0-9_.*-]*")
_BARE = re.compile(
    r"""
      (?P<decimal> -?[0-9]{1,12}\.[0-9]{1,3} ) (?![0-9])
    | (?P<integer> -?[0-9]{1,15} ) (?![0-9.])
    | "(?P<string> (?: [ !#-\[\]-~] | \\["\\] )* )"
    | (?P<token> [A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]* )
    | :(?P<bytes> [A-Za-z0-9+/=]* ):
    | \?(?P<boolean> [01] )
    | @(?P<date> -?[0-9]{1,15} ) (?![0-9.])
    | %"(?P<display> (?: [ !#$&-~] | %[0-9a-f]{2} )* )"
    """.replace("[ !", "[\\ !"),
    re.VERBOSE,
)
_ESCAPED = re.compile(r'\\(["\\])')

Bare = int | float | str | bytes | bool


class Token(str):
    """A word without quotes."""

    __slots__ = ()


class Date(int):
    """Seconds since 1970."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Item:
    """A value and its parameters; of an inner list, the value is a list of items."""

    value: Bare | list[Item]
    parameters: dict[str, Bare] = field(default_factory=dict)


class _Broken(Exception):
    pass


def read_list(text: str) -> list[Item] | None:
    """The members of a list, or None if it is not one."""
    if len(text) > LONGEST:
        return None
    try:
        return _Reader(text.strip(" ")).members()
    except _Broken:
        return None


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def members(self) -> list[Item]:
        members: list[Item] = []
        while self._at < len(self._text):
            members.append(self._inner() if self._next("(") else self._item())
            self._skip(_OWS)
            if self._at == len(self._text):
                break
            if not self._next(","):
                raise _Broken
            self._skip(_OWS)
            if self._at == len(self._text):
                raise _Broken
        return members

    def _inner(self) -> Item:
        items: list[Item] = []
        while True:
            self._skip(_SP)
            if self._next(")"):
                return Item(items, self._parameters())
            items.append(self._item())
            if self._text[self._at : self._at + 1] not in (" ", ")"):
                raise _Broken

    def _item(self) -> Item:
        return Item(self._bare(), self._parameters())

    def _parameters(self) -> dict[str, Bare]:
        parameters: dict[str, Bare] = {}
        while self._next(";"):
            self._skip(_SP)
            key = self._skip(_KEY)
            parameters.pop(key, None)  # the last one applies, at its own position
            parameters[key] = self._bare() if self._next("=") else True
        return parameters

    def _bare(self) -> Bare:
        match = _BARE.match(self._text, self._at)
        if match is None:
            raise _Broken
        self._at = match.end()
        kind = match.lastgroup
        assert kind is not None  # one of the alternatives matched, and each has a name
        return _value(kind, match[kind])

    def _next(self, char: str) -> bool:
        if self._text[self._at : self._at + 1] != char:
            return False
        self._at += 1
        return True

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise _Broken
        self._at = match.end()
        return match[0]


def _value(kind: str, text: str) -> Bare:
    match kind:
        case "integer":
            return int(text)
        case "decimal":
            return float(text)
        case "string":
            return _ESCAPED.sub(r"\1", text)
        case "token":
            return Token(text)
        case "boolean":
            return text == "1"
        case "date":
            return Date(text)
    try:
        if kind == "bytes":
            return base64.b64decode(text, validate=True)
        return unquote_to_bytes(text).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        raise _Broken from None
