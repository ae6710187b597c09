"""From a format and the fields that are wanted to the steps of a scanner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.replay.reading import kinds
from penstock.replay.reading.blocks import Interner
from penstock.replay.reading.formats import CSV, DURATIONS, JSON, TIMES, LogFormat

Step = tuple[int, int, bytes, int, bytes, int]
_SCALES = {"time_s": 10**9, "time_ms": 10**6, "time_us": 10**3, "time_ns": 1}
NUMBERS = ("status", "bytes", "duration")


@dataclass(slots=True)
class Program:
    """Steps for a `Scanner`. ``words`` and ``numbers`` name the columns that they fill."""

    how: str
    head: bytes
    words: list[str]
    numbers: list[str]
    steps: list[Step] = field(default_factory=list)

    def interner(self) -> Interner:
        return Interner()


def program(log_format: LogFormat, words: Iterable[str], numbers: Iterable[str] = ()) -> Program:
    """Read the time, and these fields as far as the format has them."""
    made = Program(log_format.kind, log_format.head, list(words), list(numbers))
    if log_format.kind == JSON:
        _json_steps(made, log_format)
    elif log_format.kind == CSV:
        for name in log_format.columns:
            made.steps.append(_step(made, log_format.names.get(name), b"", b"", 0))
    else:
        for part in log_format.parts:
            made.steps.append(_step(made, part.field, part.until, b"", 0))
        # What comes after the last field that is used need not be looked at. The line must
        # still have it: a line that was cut off is malformed.
    return made


def _json_steps(made: Program, log_format: LogFormat) -> None:
    objects: dict[str, int] = {"": 0}
    for name, what in log_format.names.items():
        step = _step(made, what, b"", b"", 0)
        if step[0] == kinds.SKIP:
            continue
        *above, last = name.split(".")
        # A name may have a point itself: such are found at the top.
        made.steps.append((*step[:4], name.encode(), 0))
        parent, path = 0, ""
        for part in above:
            path = f"{path}.{part}"
            if path not in objects:
                objects[path] = len(objects)
                made.steps.append((kinds.OBJECT, objects[path], b"", 0, part.encode(), parent))
            parent = objects[path]
        if above:
            made.steps.append((*step[:4], last.encode(), parent))


def _step(made: Program, what: str | None, until: bytes, name: bytes, parent: int) -> Step:
    def column(of: str) -> int:
        return made.words.index(of) if of in made.words else -1

    kind, at, scale = kinds.SKIP, -1, 0
    if what is None:
        pass
    elif what in TIMES:
        kind = {"time_clf": kinds.CLF, "time_iso": kinds.ISO}.get(what, kinds.EPOCH)
        scale = _SCALES.get(what, 0)
    elif what in DURATIONS:
        if "duration" in made.numbers:
            kind, at, scale = kinds.DURATION, made.numbers.index("duration"), DURATIONS[what]
    elif what in ("status", "bytes"):
        if what in made.numbers:
            kind, at = kinds.NUMBER, made.numbers.index(what)
    elif what == "request":
        if column("method") >= 0 or column("target") >= 0:
            kind, at, scale = kinds.REQUEST, column("method"), column("target")
    elif what == "target":
        kind, at = kinds.TARGET, column("target")
    elif what == "peer_port":
        kind, at = kinds.PEER_PORT, column("peer")
    else:
        kind, at = kinds.WORD, column(what)
    if at < 0 and kind in (kinds.TARGET, kinds.PEER_PORT, kinds.WORD):
        kind = kinds.SKIP
    return kind, at, until, scale, name, parent
