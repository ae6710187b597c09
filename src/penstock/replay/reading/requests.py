"""Requests: what is replayed, from logs or from Python, as blocks in the order of time."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from penstock._mode import REPLAY_COMPILED
from penstock.replay.reading import threads as threads_module
from penstock.replay.reading.blocks import BLOCK, Block, Interner, Scanner, shift_back
from penstock.replay.reading.files import LogFile, open_logs
from penstock.replay.reading.formats import LogError, LogFormat
from penstock.replay.reading.guessing import LINES, format_of
from penstock.replay.reading.ordering import SECOND, Ordering
from penstock.replay.reading.program import NUMBERS, program
from penstock.replay.reading.threads import ThreadedScanner

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


class LogRequests(Requests):
    """The requests of log files."""

    def __init__(
        self,
        files: Sequence[LogFile],
        log_format: str = "",
        fields: Mapping[str, str] | None = None,
        *,
        zone: float = 0,
        strict: bool = False,
        threads: int = 1,
        progress: Progress | None = None,
    ) -> None:
        self.files = list(files)
        self.threads = threads if REPLAY_COMPILED else 1
        self._strict = strict
        self._progress = progress
        self._zone = round(zone * 3600) * SECOND
        self.shown: list[tuple[str, int, bytes]] = []
        self.formats: list[LogFormat] = []
        self._heads: list[tuple[Iterator[memoryview], bytes]] = []
        for file in self.files:
            chunks = (
                file.chunks()
                if self.threads == 1
                else file.chunks(self.threads + 2, threads_module.CHUNK)
            )
            first = bytes(next(chunks, b""))
            try:
                self.formats.append(format_of(first.splitlines()[:LINES], log_format, fields))
            except LogError as error:
                raise LogError(f"{file.name}: {error}") from None
            self._heads.append((chunks, first))
        known = dict.fromkeys(field for each in self.formats for field in _words(each))
        super().__init__(list(known), NUMBERS)
        self.kind = self.formats[0].kind
        self._has_duration = any(each.duration for each in self.formats)
        for file, each in zip(self.files, self.formats, strict=True):
            note = f"{file.name}: read as {each.describe()}"
            if note not in self.notes:
                self.notes.append(note)

    def want(self, words: Iterable[str] | None, numbers: Iterable[str] = ()) -> None:
        if words is None:
            return
        wanted = set(words)
        self.words = [word for word in self.words if word in wanted]
        self.interners = self.interners[: len(self.words)]
        self.numbers = [name for name in NUMBERS if name in set(numbers)]
        if any(each.logged_at_end for each in self.formats) and "duration" not in self.numbers:
            self.numbers.append("duration")

    def blocks(self) -> Iterator[Block]:
        readers = [
            _Reader(self, at, chunks, first) for at, (chunks, first) in enumerate(self._heads)
        ]
        self.whole_seconds = all(each.time == "time_clf" for each in self.formats)
        whole = self.whole_seconds and not any(reader.has_fraction() for reader in readers)
        self.whole_seconds = whole
        ordering = Ordering(readers, self._new_block, spread_seconds=whole)
        try:
            for block in ordering.blocks():
                yield block
                if self._progress is not None:
                    position = sum(file.position for file in self.files)
                    size = sum(file.size for file in self.files)
                    self._progress(self.lines, position, size)
        finally:
            self.late = ordering.late
            for reader in readers:
                reader.close()
            for file in self.files:
                file.close()

    def _new_block(self) -> Block:
        return Block(len(self.words), len(self.numbers))

    def count(self, reader: _Reader, lines: int, malformed: int) -> None:
        self.lines += lines
        self.malformed += malformed
        if malformed:
            file = self.files[reader.at]
            for line, text in reader.scanner.shown[len(reader.told) :]:
                reader.told.append(line)
                if len(self.shown) < 5:
                    self.shown.append((file.name, line, text))
            if self._strict and self.shown:
                name, line, text = self.shown[0]
                raise LogError(
                    f"{name}:{line}: this is no line of {self.formats[reader.at].name}:"
                    f" {text[:100].decode('utf-8', 'replace')!r}"
                )


class _Reader:
    """Reads one file into blocks."""

    def __init__(
        self, requests: LogRequests, at: int, chunks: Iterator[memoryview], first: bytes
    ) -> None:
        self.at = at
        self.told: list[int] = []
        self._requests = requests
        self._format = requests.formats[at]
        self._first = first
        self._chunks = chain([first] if first else [], chunks)
        self._lines_of = self._without_header()
        self._data: Any = b""
        self._start = 0
        self._lines = self._malformed = 0
        self._skip_header = self._format.kind == "csv" and self._format.header
        numbers = len(requests.numbers)
        made = program(self._format, requests.words, requests.numbers)

        def scanner(interners: list[Interner]) -> Scanner:
            return Scanner(
                made.how, made.head, made.steps, interners, numbers, self._format.separator,
                requests._zone,
            )  # fmt: skip

        self._threads: ThreadedScanner | None = None
        self.scanner: Scanner | ThreadedScanner
        if requests.threads > 1:
            self._threads = ThreadedScanner(
                requests.threads, scanner, requests.interners, numbers, self._without_header()
            )
            self.scanner = self._threads
        else:
            self._one = self.scanner = scanner(requests.interners)
        self._shift = (
            requests.numbers.index("duration")
            if self._format.logged_at_end
            and self._format.duration
            and "duration" in requests.numbers
            else -1
        )
        self.newest = 0
        self.horizon = (_LATE_AT_END if self._shift >= 0 else _LATE) * SECOND

    def has_fraction(self) -> bool:
        """Whether the times of its first lines are finer than a second."""
        block = Block(len(self._requests.words), len(self._requests.numbers), 64)
        scratch = Scanner(
            "text", self._format.head, program(self._format, []).steps, [], 0, b",", 0
        )
        scratch.scan(self._first, 0, block)
        return any(time % SECOND for time in block.times[: block.n])

    def read(self, block: Block) -> bool:
        """Add requests to a block until it is full; whether there were any."""
        start = block.n
        if self._threads is not None:
            self._threads.fill(block)
        else:
            self._scan(block)
        self._requests.count(
            self, self.scanner.lines - self._lines, self.scanner.malformed - self._malformed
        )
        self._lines, self._malformed = self.scanner.lines, self.scanner.malformed
        if block.n == start:
            return False
        times: array[int] = block.times
        few = block.n - start < 1000
        self.newest = max(self.newest, max(times[start : block.n]) if few else times[block.n - 1])
        if self._shift >= 0:
            shift_back(times, block.numbers[self._shift], start, block.n)
        return True

    def close(self) -> None:
        if self._threads is not None:
            self._threads.close()

    def _scan(self, block: Block) -> None:
        chunks = self._lines_of
        while block.n < len(block.times):
            if self._start >= len(self._data):
                chunk = next(chunks, None)
                if chunk is None:
                    break
                self._data, self._start = chunk, 0
            self._start = self._one.scan(self._data, self._start, block)

    def _without_header(self) -> Iterator[Any]:
        chunk: Any
        for chunk in self._chunks:
            if self._skip_header:
                self._skip_header = False
                chunk = memoryview(chunk)[bytes(chunk).find(b"\n") + 1 :]
            if len(chunk):
                yield chunk


def _words(log_format: LogFormat) -> list[str]:
    """The columns of texts that a format can fill."""
    out: list[str] = []
    for field in log_format.fields:
        if field == "request":
            out += ["method", "target"]
        elif field == "peer_port":
            out.append("peer")
        elif not field.startswith(("time_", "duration_")) and field not in ("status", "bytes"):
            out.append(field)
    return list(dict.fromkeys(out))


def read_log(
    *names: str | Path,
    format: str = "",
    fields: Mapping[str, str] | None = None,
    zone: float = 0,
    strict: bool = False,
    threads: int = 1,
    progress: Progress | None = None,
) -> Requests:
    """The requests of log files, merged by time. ``-`` is standard input.

    ``format``: by default, it is guessed from the first lines. ``fields`` says what the names in
    JSON or CSV mean: ``{"user": "account_id"}``. ``zone``: hours east of UTC, for times that do
    not say. ``strict``: a line that cannot be read raises `LogError`. ``threads`` scan lines, where
    Penstock is compiled.
    """
    if not names:
        raise LogError("name at least one log, or - for standard input")
    if not 1 <= threads <= 64:
        raise LogError(f"threads is a number from 1 to 64, not {threads}")
    return LogRequests(
        open_logs(names), format, fields, zone=zone, strict=strict, threads=threads,
        progress=progress,
    )  # fmt: skip
