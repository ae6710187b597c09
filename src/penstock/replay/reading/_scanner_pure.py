"""The scanner uncompiled. It behaves as `_scanner.pyx`, which explains it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.replay.reading._columns_pure import (
    count_of,
    gather_numbers,
    gather_words,
    is_sorted,
    not_before,
    order_of,
    shift_back,
    spread,
    translate,
)
from penstock.replay.reading._times_pure import NO_TIME, clf, decimal, iso
from penstock.replay.reading.kinds import (
    CLF,
    DURATION,
    EPOCH,
    ISO,
    LITERAL_MOST,
    NUMBER,
    OBJECT,
    PEER_PORT,
    REQUEST,
    SHOWN_MOST,
    SKIP,
    STEPS_MOST,
    TARGET,
    WORD,
)

__all__ = [
    "Interner", "Scanner", "count_of", "gather_numbers", "gather_words", "is_sorted", "not_before",
    "order_of", "shift_back", "spread", "translate",
]  # fmt: skip
_NAME_MOST, _DEPTH_MOST = 64, 4
Step = tuple[int, int, bytes, int, bytes, int]  # kind, column, text after, scale, name, parent


class Interner:
    """Texts to numbers, from 1 on in order of appearance."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._texts: list[bytes | None] = [None]
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._texts)

    def text(self, number: int) -> bytes | None:
        """The bytes of a number; None for 0."""
        if number < 0:
            raise IndexError(number)
        return self._texts[number]

    def number(self, text: bytes) -> int:
        """The number of a text, which is added if it is new."""
        if text in (b"", b"-"):
            return 0
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._texts)
            self._texts.append(text)
            self._bytes += len(text) + 120
        return number

    @property
    def bytes(self) -> int:
        """Memory in use, roughly."""
        return self._bytes


class Scanner:
    """Reads lines of one format into blocks."""

    def __init__(
        self,
        how: str,
        head: bytes,
        steps: Sequence[Step],
        interners: list[Interner],
        numbers: int,
        separator: bytes,
        zone: int = 0,
    ) -> None:
        if len(steps) > STEPS_MOST:
            raise ValueError(f"a format has at most {STEPS_MOST} fields, not {len(steps)}")
        for _, _, literal, _, name, _ in steps:
            if len(literal) > LITERAL_MOST or len(name) > _NAME_MOST:
                raise ValueError(f"a text between fields has at most {LITERAL_MOST} characters")
        self._read = {"text": self._text, "json": self._json, "csv": self._csv}[how]
        self._head = head
        self._steps = list(steps)
        self._named = {(step[5], step[4]): step for step in reversed(self._steps)}
        self._interners = interners
        self._numbers = numbers
        self._separator = separator[0]
        self._zone = zone
        self.lines = 0
        self.malformed = 0
        self.shown: list[tuple[int, bytes]] = []

    def scan(self, data: bytes, start: int, block: Any) -> int:
        """Read whole lines from ``start`` until the data or the block ends."""
        data = bytes(data)
        room = len(block.times)
        at = start
        while at < len(data) and block.n < room:
            end = data.find(b"\n", at)
            if end < 0:
                break
            line = data[at:end]
            if line.endswith(b"\r"):
                line = line[:-1]
            at = end + 1
            self.lines += 1
            if not line:
                continue
            n = block.n
            for column in block.words:
                column[n] = 0
            for column in block.numbers:
                column[n] = -1
            block.times[n] = NO_TIME
            if self._read(line, block, n) and block.times[n] >= 0:
                block.n = n + 1
            else:
                self.malformed += 1
                if len(self.shown) < SHOWN_MOST:
                    self.shown.append((self.lines, line[:200]))
        return at

    def _text(self, line: bytes, block: Any, n: int) -> bool:
        if not line.startswith(self._head):
            return False
        at = len(self._head)
        for step in self._steps:
            until = step[2]
            if not until:
                end = len(line)
            else:
                end = line.find(until, at)
                while end >= 0 and until[0] == 34 and _escaped(line, at, end):
                    end = line.find(until, end + 1)
                if end < 0:
                    return False
            if step[0] != SKIP and not self._put(step, line[at:end], block, n):
                return False
            at = end + len(until)
        return True

    def _csv(self, line: bytes, block: Any, n: int) -> bool:
        at = 0
        for step in self._steps:
            if at > len(line):
                return False
            if line[at : at + 1] == b'"':
                at += 1
                end = line.find(b'"', at)
                while end >= 0 and line[end + 1 : end + 2] == b'"':
                    end = line.find(b'"', end + 2)
                if end < 0:
                    return False
                after = end + 1
                if after < len(line) and line[after] != self._separator:
                    return False
            else:
                end = line.find(self._separator, at)
                if end < 0:
                    end = len(line)
                after = end
            if step[0] != SKIP and not self._put(step, line[at:end], block, n):
                return False
            at = after + 1
        return True

    def _json(self, line: bytes, block: Any, n: int) -> bool:
        at, stop = _skip_space(line, 0), len(line)
        if line[at : at + 1] != b"{" or not line.endswith(b"}"):
            return False
        at += 1
        parents: list[int] = []
        parent = 0
        while True:
            while at < stop and line[at] in b" \t,":
                at += 1
            if at >= stop:
                return False
            if line[at] == 125:
                at += 1
                if not parents:
                    return _skip_space(line, at) == stop
                parent = parents.pop()
                continue
            if line[at] != 34:
                return False
            end = _quote_end(line, at + 1)
            if end < 0:
                return False
            step = self._named.get((parent, line[at + 1 : end]))
            at = _skip_space(line, end + 1)
            if line[at : at + 1] != b":":
                return False
            at = _skip_space(line, at + 1)
            if at >= stop:
                return False
            first = line[at]
            if step is not None and step[0] != OBJECT and first == 91:
                value = _skip_space(line, at + 1)
                if line[value : value + 1] == b'"':
                    end = _quote_end(line, value + 1)
                    if end < 0:
                        return False
                    if step[0] != SKIP and not self._put(step, line[value + 1 : end], block, n):
                        return False
                at = _skip_nested(line, at)
                if at < 0:
                    return False
            elif first in (123, 91):
                opened = step is not None and step[0] == OBJECT and first == 123
                if opened and len(parents) < _DEPTH_MOST:
                    assert step is not None
                    parents.append(parent)
                    parent = step[1]
                    at += 1
                else:
                    at = _skip_nested(line, at)
                    if at < 0:
                        return False
            else:
                if first == 34:
                    value = at + 1
                    end = _quote_end(line, value)
                    if end < 0:
                        return False
                    at = end + 1
                else:
                    value = end = at
                    while end < stop and line[end] not in b",} \t":
                        end += 1
                    if end == value:
                        return False
                    at = end
                    if line[value:end] == b"null":
                        continue
                if step is None or step[0] in (SKIP, OBJECT):
                    continue
                if not self._put(step, line[value:end], block, n):
                    return False

    def _put(self, step: Step, text: bytes, block: Any, n: int) -> bool:
        kind, column, _, scale, _, _ = step
        if kind == WORD:
            block.words[column][n] = self._interners[column].number(text)
        elif kind == REQUEST:
            method, space, rest = text.partition(b" ")
            if not space:
                return True
            if column >= 0:
                block.words[column][n] = self._interners[column].number(method)
            if scale >= 0:
                target, space, protocol = rest.rpartition(b" ")
                if not target or not space or not protocol.startswith(b"H"):
                    target = rest
                target = target.partition(b"?")[0]
                block.words[scale][n] = self._interners[scale].number(target)
        elif kind == TARGET:
            block.words[column][n] = self._interners[column].number(text.partition(b"?")[0])
        elif kind in (NUMBER, DURATION):
            if text in (b"", b"-"):
                return True
            value = decimal(text, 1 if kind == NUMBER else scale)
            if value < 0:
                return False
            block.numbers[column][n] = value
        elif kind == PEER_PORT:
            address, colon, _ = text.rpartition(b":")
            if not colon or not address or (b":" in address and not text.startswith(b"[")):
                address = text
            if address.startswith(b"[") and address.endswith(b"]") and len(address) > 1:
                address = address[1:-1]
            block.words[column][n] = self._interners[column].number(address)
        else:
            block.times[n] = self._time(kind, text, scale)
            return bool(block.times[n] >= 0)
        return True

    def _time(self, kind: int, text: bytes, scale: int) -> int:
        if kind == CLF:
            return clf(text, self._zone)
        if kind == ISO:
            return iso(text, self._zone)
        assert kind == EPOCH
        return decimal(text, scale)


def _escaped(line: bytes, start: int, quote: int) -> bool:
    backslashes = 0
    while quote > start and line[quote - 1] == 92:
        quote -= 1
        backslashes += 1
    return backslashes % 2 == 1


def _quote_end(line: bytes, start: int) -> int:
    end = line.find(b'"', start)
    while end >= 0 and _escaped(line, start, end):
        end = line.find(b'"', end + 1)
    return end


def _skip_space(line: bytes, at: int) -> int:
    while at < len(line) and line[at] in b" \t":
        at += 1
    return at


def _skip_nested(line: bytes, at: int) -> int:
    depth = 0
    while at < len(line):
        byte = line[at]
        if byte == 34:
            at = _quote_end(line, at + 1)
            if at < 0:
                return -1
        elif byte in b"{[":
            depth += 1
        elif byte in b"}]":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return -1
