"""From the columns of a log to the values of dimensions, each distinct request once.

A dimension is a function of a request. Which fields it reads is found out by watching it: as long
as it reads no others, its value depends on those alone, and is worked out once for each
combination of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from penstock.errors import PenstockError
from penstock.integrations.deciding.descriptors import Dimension
from penstock.integrations.deciding.identity import Trust
from penstock.integrations.deciding.paths import AmbiguousText
from penstock.integrations.deciding.request import Request
from penstock.replay.deciding._decider import map_values, pack, replaced
from penstock.replay.deciding.log_request import LogRequest, text_of
from penstock.replay.reading.blocks import Block, Interner
from penstock.replay.reading.requests import Requests
from penstock.rules.aliases import ADDRESSES


class FieldValues:
    """The values of a dimension that is a field as it stands."""

    def __init__(self, interner: Interner, kind: str, fallback: bytes | None) -> None:
        self.interner: Interner | None = interner
        self._kind = kind
        self.absent = 0 if fallback is None else interner.number(fallback)

    def text(self, number: int) -> str:
        text = text_of(self.interner.text(number), self._kind)  # type: ignore[union-attr]
        assert text is not None
        return text


class MadeValues:
    """The values of a dimension that is worked out."""

    interner: Interner | None = None

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts = [""]

    def number(self, value: object) -> int:
        if value is None:
            return 0
        text = str(value)
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._texts)
            self._texts.append(text)
        return number

    def text(self, number: int) -> str:
        return self._texts[number]


class FieldColumn:
    """A dimension that is a field as it stands: `DIMENSIONS` of address, method and user."""

    ambiguous = False

    def __init__(self, requests: Requests, field: str, fallback: bytes | None) -> None:
        self._at = requests.words.index(field)
        self.values = FieldValues(requests.interners[self._at], requests.kind, fallback)
        self._unix = requests.interners[self._at].number(b"unix:") if fallback else 0

    def of(self, block: Block) -> array[int]:
        column = block.words[self._at]
        if not self.values.absent:
            return column
        out: array[int] = array("i", bytes(4 * block.n))
        changed = replaced(column, block.n, 0, self._unix, self.values.absent, out)
        return out if changed else column

    def flags(self, block: Block) -> None:
        return None


class MadeColumn:
    """Any other dimension. ``flags`` are raised where it is an ambiguous path."""

    def __init__(
        self, requests: Requests, name: str, dimension: Dimension[Request], trust: Trust
    ) -> None:
        self._requests = requests
        self._name = name
        self._dimension = dimension
        self._trust = trust
        self.values = MadeValues()
        self._fields: list[int] = []
        self._table: array[int] = array("i")
        self._flags: array[int] = array("b")
        self._combinations: Any = None
        self._numbers: array[int] = array("i")
        self.ambiguous = False

    def of(self, block: Block) -> array[int]:
        while True:
            numbers, count = self._inputs(block)
            fields = list(self._fields)
            while len(self._table) < count and fields == self._fields:
                self._evaluate(len(self._table))
            if fields == self._fields:
                break
            # It read another field: begin again, by all of them.
            self._table, self._flags, self._combinations = array("i"), array("b"), None
        out: array[int] = array("i", bytes(4 * block.n))
        self._numbers = numbers
        map_values(numbers, block.n, self._table, out)
        return out

    def flags(self, block: Block) -> tuple[array[int], array[int]] | None:
        """For each request the number of its inputs, and the flags by such numbers."""
        return (self._numbers, self._flags) if self.ambiguous else None

    def _inputs(self, block: Block) -> tuple[array[int], int]:
        if not self._fields:
            return array("i", bytes(4 * block.n)), 1
        if len(self._fields) == 1:
            at = self._fields[0]
            return block.words[at], len(self._requests.interners[at])
        if self._combinations is None:
            self._combinations = Interner()
        out: array[int] = array("i", bytes(4 * block.n))
        pack([block.words[at] for at in self._fields], block.n, self._combinations, out)
        return out, len(self._combinations)

    def _evaluate(self, number: int) -> None:
        if len(self._fields) < 2:
            chosen = dict.fromkeys(self._fields, number)
        elif number == 0:
            chosen = dict.fromkeys(self._fields, 0)
        else:
            packed = array("i")
            packed.frombytes(self._combinations.text(number))
            chosen = dict(zip(self._fields, packed, strict=True))
        missing = False

        def read(name: str) -> str | None:
            nonlocal missing
            if name not in self._requests.words:
                return None
            at = self._requests.words.index(name)
            if at not in chosen:
                self._fields.append(at)
                chosen[at] = 0
                missing = True
                return None
            raw = self._requests.interners[at].text(chosen[at])
            return text_of(raw, self._requests.kind, latin=name == "target")

        request = LogRequest(read, self._trust)
        try:
            value = self._dimension(request)
        except PenstockError:
            raise
        except Exception as error:
            if missing:
                return
            raise PenstockError(
                f"the dimension {self._name!r} failed on a line of the log: {error!r}"
            ) from error
        if missing:
            return
        ambiguous = isinstance(value, AmbiguousText)
        self.ambiguous = self.ambiguous or ambiguous
        self._table.append(self.values.number(value))
        self._flags.append(1 if ambiguous else 0)


Column = FieldColumn | MadeColumn


def column_of(
    requests: Requests,
    name: str,
    dimension: Dimension[Request],
    trust: Trust,
    is_own: Callable[[str], bool],
) -> Column:
    """The column of a dimension. ``is_own`` says whether a name has the usual meaning."""
    if is_own(name):
        field, fallback = "", None
        if name in ADDRESSES and trust.nobody:
            field, fallback = "peer", b"unknown"
        elif name == "user":
            field = "user"
        if field and field in requests.words:
            return FieldColumn(requests, field, fallback)
    return MadeColumn(requests, name, dimension, trust)
