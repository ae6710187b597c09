"""History: what each rule decided, by second for 15 minutes and by minute for 24 hours.

::

    counts of all workers, once a second ── Totals ── what this second added ── History
                                                                                ├── seconds: 900
                                                                                └── minutes: 1440

A slot that nobody observed, because the service was down, is a gap and not a zero. If the clock
steps back, what comes is added to the newest slot until the clock has caught up. A rule needs
some 47 kB once it has decided anything; at most ``most_rules`` are kept.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.metrics.families import OTHER

# What a slot counts. All but the last exclude each other.
SERIES = ("allowed", "near_limit", "refused", "shadowed", "degraded")
ALLOWED, NEAR_LIMIT, REFUSED, SHADOWED, DEGRADED = range(len(SERIES))
SECONDS, MINUTES = 900, 1440
MOST_RULES = 1_000
# Refusals that are further apart than this are not one episode.
EPISODE = 60
_MAGIC = b"penstock-history 1\n"
_WIDTH = len(SERIES)
_LARGEST_FILE = 256 * 1024 * 1024

Counts = Sequence[int]


class Totals:
    """Turns counts that only grow, one set for each worker, into what was added since."""

    def __init__(self) -> None:
        self._last: dict[str, Mapping[str, Counts]] = {}

    def added(self, worker: str, counts: Mapping[str, Counts]) -> dict[str, list[int]]:
        """What a worker counted since the last call. One that was restarted counts from zero."""
        last = self._last.get(worker)
        self._last[worker] = counts
        if last is None:
            last = {}
        out: dict[str, list[int]] = {}
        for rule, now in counts.items():
            before = last.get(rule)
            if before is None or any(a < b for a, b in zip(now, before, strict=True)):
                delta = list(now)
            else:
                delta = [a - b for a, b in zip(now, before, strict=True)]
            if any(delta):
                out[rule] = delta
        return out

    def begin(self, worker: str, counts: Mapping[str, Counts]) -> None:
        """What a worker had counted before anybody observed it."""
        self._last[worker] = counts


@dataclass(frozen=True, slots=True)
class Series:
    """Counts of ``width`` seconds each, from ``start`` on; None where nobody observed."""

    start: int
    width: int
    counts: dict[str, list[int | None]]


class Ring:
    """The newest ``slots`` slots of ``width`` seconds. Rules above the most are ``other``."""

    def __init__(self, width: int, slots: int, most_rules: int = MOST_RULES) -> None:
        self.width = width
        self.slots = slots
        self._most_rules = most_rules
        self.newest = -1  # the time of the newest slot, in widths since 1970
        self._observed = bytearray(slots)
        self._rows: dict[str, array[int]] = {}

    def advance(self, at: int) -> None:
        """Begin the slot of a time in seconds; those in between are gaps."""
        index = at // self.width
        if index > self.newest:
            empty = array("I", bytes(4 * _WIDTH))
            for missing in range(max(self.newest + 1, index - self.slots + 1), index + 1):
                slot = missing % self.slots
                self._observed[slot] = 0
                for row in self._rows.values():
                    row[slot * _WIDTH : (slot + 1) * _WIDTH] = empty
            self.newest = index
        self._observed[self.newest % self.slots] = 1

    def add(self, rule: str, counts: Counts) -> None:
        """To the newest slot."""
        row = self._rows.get(rule) or self._new_row(rule)
        base = (self.newest % self.slots) * _WIDTH
        for series, count in enumerate(counts):
            row[base + series] = min(row[base + series] + count, 0xFFFFFFFF)

    def _new_row(self, rule: str) -> array[int]:
        if len(self._rows.keys() - {OTHER}) >= self._most_rules:
            rule = OTHER
        return self._rows.setdefault(rule, array("I", bytes(4 * _WIDTH * self.slots)))

    def keep(self, rules: Iterable[str]) -> None:
        """Forget all other rules."""
        kept = set(rules)
        self._rows = {rule: row for rule, row in self._rows.items() if rule in kept}

    def read(self, rule: str, span: int) -> Series:
        """The last ``span`` slots of a rule, oldest first."""
        first = self.newest - span + 1
        row = self._rows.get(rule)
        counts: dict[str, list[int | None]] = {name: [] for name in SERIES}
        for index in range(first, self.newest + 1):
            slot = index % self.slots
            seen = index >= 0 and self._observed[slot]
            for series, name in enumerate(SERIES):
                value = 0 if row is None else row[slot * _WIDTH + series]
                counts[name].append(value if seen else None)
        return Series(first * self.width, self.width, counts)

    def sums(self, rule: str, span: int, parts: int = 1) -> list[list[int]]:
        """The last ``span`` slots in equal parts, oldest first: a sum of each series."""
        row = self._rows.get(rule)
        length = span // parts
        out = [[0] * _WIDTH for _ in range(parts)]
        if row is None or self.newest < 0:
            return out
        first = self.newest - length * parts + 1
        for number, part in enumerate(out):
            for index in range(first + number * length, first + (number + 1) * length):
                base = (index % self.slots) * _WIDTH
                if index >= 0 and row[base : base + _WIDTH].count(0) != _WIDTH:
                    for series in range(_WIDTH):
                        part[series] += row[base + series]
        return out

    def since(self, rule: str, series: int, gap: int) -> int | None:
        """When the present episode began, in seconds: counts at most ``gap`` slots apart."""
        row = self._rows.get(rule)
        if row is None:
            return None
        began, quiet = None, 0
        for index in range(self.newest, self.newest - self.slots, -1):
            if row[(index % self.slots) * _WIDTH + series]:
                began, quiet = index, 0
            else:
                quiet += 1
                if quiet > gap:
                    break
        return None if began is None else began * self.width

    @property
    def rules(self) -> list[str]:
        return list(self._rows)

    # On disk ------------------------------------------------------------------------------

    def head(self) -> dict[str, object]:
        return {"width": self.width, "slots": self.slots, "newest": self.newest}

    def body(self, rules: Sequence[str]) -> bytes:
        empty = bytes(4 * _WIDTH * self.slots)
        rows = [self._rows[rule].tobytes() if rule in self._rows else empty for rule in rules]
        return bytes(self._observed) + b"".join(rows)

    def load(self, newest: int, rules: Sequence[str], data: bytes) -> bytes:
        """Take over what `body` wrote; what follows it in ``data``."""
        size = 4 * _WIDTH * self.slots
        end = self.slots + size * len(rules)
        if len(data) < end:
            raise ValueError("it is too short")
        self.newest = newest
        self._observed = bytearray(data[: self.slots])
        for number, rule in enumerate(rules):
            row = array("I")
            row.frombytes(data[self.slots + number * size : self.slots + (number + 1) * size])
            if any(row):
                self._rows[rule] = row
        return data[end:]


class History:
    """Must be used by one thread. ``at`` is always whole seconds since 1970."""

    def __init__(self, most_rules: int = MOST_RULES) -> None:
        self._most_rules = most_rules
        self.seconds = Ring(1, SECONDS, most_rules)
        self.minutes = Ring(60, MINUTES, most_rules)

    def add(self, at: int, counts: Mapping[str, Counts]) -> None:
        """What all rules counted in the second that ends at ``at``."""
        for ring in (self.seconds, self.minutes):
            ring.advance(at)
            for rule, each in counts.items():
                ring.add(rule, each)

    def keep(self, rules: Iterable[str]) -> None:
        """Forget rules that no longer exist, to make room for others."""
        kept = {*rules, OTHER}
        for ring in (self.seconds, self.minutes):
            ring.keep(kept)

    def dump(self) -> bytes:
        rules = sorted({*self.seconds.rules, *self.minutes.rules})
        rings = (self.seconds, self.minutes)
        head = json.dumps({"rules": rules, "rings": [ring.head() for ring in rings]}).encode()
        body = b"".join(ring.body(rules) for ring in rings)
        return _MAGIC + zlib.compress(head + b"\n" + body, 1)

    def load(self, data: bytes) -> None:
        """Take over a `dump`; ValueError if it is none, and then nothing is changed."""
        if not data.startswith(_MAGIC):
            raise ValueError("it is not a history of Penstock, or of another version")
        try:
            unpacker = zlib.decompressobj()
            whole = unpacker.decompress(data[len(_MAGIC) :], _LARGEST_FILE)
            if not unpacker.eof:
                raise ValueError("it is cut off, or too large")
            head, _, body = whole.partition(b"\n")
            fields = json.loads(head)
            rules = [str(rule) for rule in fields["rules"]][: self._most_rules + 1]
            if len(rules) != len(fields["rules"]):
                raise ValueError("it has too many rules")
            most = self._most_rules
            rings = [Ring(1, SECONDS, most), Ring(60, MINUTES, most)]
            for ring, row in zip(rings, fields["rings"], strict=True):
                if (row["width"], row["slots"]) != (ring.width, ring.slots):
                    raise ValueError("its spans are others")
                body = ring.load(int(row["newest"]), rules, body)
        except (zlib.error, LookupError, TypeError, RecursionError) as error:
            raise ValueError(f"it is damaged: {error!r:.100}") from None
        self.seconds, self.minutes = rings
