"""Requests of log files: read, scanned, and put into the order of time."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from penstock._mode import REPLAY_COMPILED
from penstock.replay.reading import threads as threads_module
from penstock.replay.reading.blocks import Block, Interner, Scanner, shift_back
from penstock.replay.reading.files import LogFile, open_logs
from penstock.replay.reading.formats import LogError, LogFormat
from penstock.replay.reading.guessing import LINES, format_of
from penstock.replay.reading.ordering import SECOND, Ordering
from penstock.replay.reading.program import NUMBERS, program
from penstock.replay.reading.requests import Requests
from penstock.replay.reading.threads import ThreadedScanner

# How late a server may write a line, in seconds: as long as nginx buffers, or a request takes.
_LATE, _LATE_AT_END = 10, 60
_EVERYTHING = ("peer", "user", "method", "target", "host")
Progress = Callable[[int, int, int], None]  # lines, bytes read, bytes in all


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
