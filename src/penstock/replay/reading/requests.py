"""Requests: what is replayed, from logs or from Python, as blocks in the order of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from penstock.replay.reading.blocks import BLOCK, Block, Interner
from penstock.replay.reading.formats import LogError
from penstock.replay.reading.ordering import SECOND
from penstock.replay.reading.program import NUMBERS

# How late a server may write a line, in seconds: as long as nginx buffers, or a request takes.
_LATE, _LATE_AT_END = 10, 60
_EVERYTHING = ("peer", "user", "method", "target", "host")
Progress = Callable[[int, int, int], None]  # lines, bytes read, bytes in all


class Requests:
    """Requests in the order of time, to be replayed once.

    ``words`` names the columns of texts, which are numbers of ``interners``. ``notes`` are
    sentences for people about what was read. Make one by `read_log` or `Requests.of`.
    """

    def __init__(self, words: Sequence[str], numbers: Sequence[str] = ()) -> None:
        self.words = list(words)
        self.numbers = list(numbers)
        self.interners = [Interner() for _ in self.words]
        self.kind = "records"  # or that of a LogFormat: how texts are escaped
        self.notes: list[str] = []
        self.whole_seconds = False
        self.lines = 0
        self.malformed = 0
        self.late = 0

    @property
    def fields(self) -> list[str]:
        """The names of the texts that these requests have."""
        return list(self.words)

    @property
    def bytes(self) -> int:
        """Memory for the distinct texts."""
        return sum(interner.bytes for interner in self.interners)

    def want(self, words: Iterable[str] | None, numbers: Iterable[str] = ()) -> None:
        """Say which fields are used; others need not be read. None stands for all."""

    def blocks(self) -> Iterator[Block]:
        raise NotImplementedError

    @staticmethod
    def of(records: Iterable[Mapping[str, Any]]) -> Requests:
        """From mappings: ``{"time": 1700000000.5, "remote_address": "192.0.2.1", "path": "/"}``.

        ``time`` is a `datetime` or seconds since 1970. Other names are those of dimensions
        (``remote_address``, ``user``, ``method``, ``path``, ``host``, ``header:NAME``,
        ``cookie:NAME``), ``status``, ``bytes`` and ``duration`` (seconds).
        """
        return _Records(records)


_NAMES = {"remote_address": "peer", "ip": "peer", "path": "target"}


class _Records(Requests):
    def __init__(self, records: Iterable[Mapping[str, Any]]) -> None:
        self._records = list(records)
        names = dict.fromkeys(name for record in self._records for name in record)
        known = ("peer", "user", "method", "target", "host")
        words: dict[str, str] = {}
        for name in names:
            if name == "time" or name in NUMBERS:
                continue
            field = _NAMES.get(name, name)
            if field not in known and not field.startswith(("header:", "cookie:", "field:")):
                field = f"field:{name}"
            words[name] = field
        super().__init__(list(dict.fromkeys(words.values())), NUMBERS)
        self._columns = words

    def blocks(self) -> Iterator[Block]:
        times = [_time_of(record) for record in self._records]
        order = sorted(range(len(times)), key=times.__getitem__)
        for start in range(0, len(order), BLOCK):
            block = Block(len(self.words), len(self.numbers))
            for index in order[start : start + BLOCK]:
                self._put(block, times[index], self._records[index])
            self.lines += block.n
            yield block

    def _put(self, block: Block, time: int, record: Mapping[str, Any]) -> None:
        n = block.n
        block.times[n] = time
        for column in block.words:
            column[n] = 0
        for name, field in self._columns.items():
            value = record.get(name)
            if value is not None:
                at = self.words.index(field)
                text = str(value)
                if field == "target":
                    text = text.partition("?")[0]
                block.words[at][n] = self.interners[at].number(
                    text.encode("utf-8", "surrogatepass")
                )
        for at, name in enumerate(self.numbers):
            value = record.get(name)
            scale = SECOND if name == "duration" else 1
            block.numbers[at][n] = -1 if value is None else round(value * scale)
        block.n = n + 1


def _time_of(record: Mapping[str, Any]) -> int:
    time = record.get("time")
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise LogError(f"the time {time} has no zone: write tzinfo=UTC")
        return int(time.timestamp()) * SECOND + time.microsecond * 1000
    if isinstance(time, bool) or not isinstance(time, int | float):
        raise LogError(f"a request has a 'time', in seconds since 1970; this one has {time!r:.60}")
    nanoseconds = time * SECOND if isinstance(time, int) else round(time * SECOND)
    if not 0 <= nanoseconds < 1 << 62:
        raise LogError(f"the time {time!r} is in seconds since 1970")
    return nanoseconds
