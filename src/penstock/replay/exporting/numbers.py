"""Numbers of limits in the terms of other programs, and what that changes.

A window of N in w becomes a bucket in two ways. In any time of less than w, a bucket with burst b
and rate r admits fewer than b + r w requests:

- burst N, rate N/w: nobody is refused whom a steady pace within the rule would suit; up to 2N - 1
  may come in some w
- never above: burst (N + 1) / 2, and the rest of N + 1 as the rate: at most N in any w
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import count

from penstock.durations import format_duration
from penstock.limits import Limit
from penstock.replay.exporting.escaping import comment
from penstock.replay.exporting.items import (
    APPROXIMATE,
    BUCKETS,
    ROUNDED,
    Item,
    Piece,
    together,
)

SECOND = 1_000_000_000
# A rate that is rounded down by more than this is an approximation.
MOST_ROUNDING = Fraction(1, 100)
# Where nobody said how many keys there are.
KEYS = 65_536
MOST_KEYS = 50_000_000
_ROOM = Fraction(5, 4)  # beyond the keys that were seen


@dataclass(frozen=True, slots=True)
class Choices:
    """``approximate`` permits what is not exact; ``never_above`` has it admit too few rather than
    too many. ``keys``: how many each rule has, by its id; ``ports``: those of the firewall."""

    approximate: bool = False
    never_above: bool = False
    keys: Mapping[str, int] | int | None = None
    ports: tuple[int, ...] = (80, 443)

    def room(self, item: Item) -> int:
        """For how many keys there must be room."""
        if not item.counted:
            return 1
        if self.keys is None:
            return KEYS
        count = self.keys if isinstance(self.keys, int) else self.keys.get(item.rule.id, 0)
        return min(MOST_KEYS, max(1024, -int(-count * _ROOM // 1)))


class Job:
    """All items of an export, and how they may be translated."""

    def __init__(self, items: list[Item], choices: Choices) -> None:
        self.items = items
        self.choices = choices
        self._numbers: dict[str, int] | None = None

    def meeting(self, item: Item) -> list[Item]:
        """The other items that a request may meet together with this one."""
        return [other for other in self.items if other is not item and together(other, item)]

    def number(self, item: Item) -> int:
        """A small number that no item has which a request may meet together with this one."""
        if self._numbers is None:
            self._numbers = {}
            for each in self.items:
                if each.closed:
                    continue  # it counts nothing
                taken = {self._numbers.get(other.name) for other in self.meeting(each)}
                self._numbers[each.name] = next(at for at in count() if at not in taken)
        return self._numbers[item.name]


class Inexact(Exception):
    """A limit that can be approximated only, and nobody permitted that."""


def rate(limit: Limit) -> Fraction:
    """Requests a second."""
    return Fraction(limit.amount * SECOND, limit.period_ns)


def shown_rate(value: Fraction) -> str:
    """Requests in a unit that makes it readable."""
    unit, name = 3600, "hour"
    if value * 60 >= 1:
        unit, name = (1, "second") if value >= 1 else (60, "minute")
    return f"{float(value * unit):.6g}/{name}"


def as_bucket(item: Item, choices: Choices) -> tuple[Limit, Piece]:
    """The bucket that stands for a limit."""
    limit, piece = item.limit, Piece(item, item.limit)
    share_note(piece)
    if limit.algorithm in BUCKETS:
        return limit, piece
    n, w = limit.amount, format_duration(limit.period_ns)
    if choices.never_above:
        burst = (n + 1) // 2
        bucket = Limit(n + 1 - burst, f"{limit.period_ns}ns", burst=burst)
        differ(
            piece,
            f"a bucket instead of a {limit.algorithm}: at most {n} in any {w}, as the rule, but"
            f" only {burst} of them at once",
        )
    else:
        bucket = Limit(n, f"{limit.period_ns}ns")
        differ(piece, f"a bucket instead of a {limit.algorithm}: up to {2 * n - 1} in some {w}")
    return bucket, piece


def share_note(piece: Piece) -> None:
    """Say what becomes of a limit that is meant for a shared store."""
    rule, limit = piece.item.rule, piece.item.limit
    if rule.lease or limit.on_failure is not None or limit.share is not None:
        differ(piece, "a limit for a shared store: here every instance admits all of it")


def together_note(piece: Piece, others: list[Item]) -> None:
    """Say that limits are not decided all or none."""
    if others:
        own = piece.item.rule
        names = [comment(other.rule.id) for other in others if other.rule is not own]
        if len(names) < len(others):
            names.insert(0, "its other limits")
        shown = ", ".join(dict.fromkeys(names))
        differ(
            piece,
            f"not decided together with {shown:.300}: a request that those refuse may be counted"
            " here",
        )


def differ(piece: Piece, how: str) -> None:
    piece.how = APPROXIMATE
    piece.error.append(how)


def round_rate(piece: Piece, wanted: Fraction, got: Fraction) -> None:
    """Say by how much a rate was rounded down."""
    if got == wanted:
        return
    part = 1 - got / wanted
    note = f"the rate is {shown_rate(got)}, {float(100 * part):.2g} % below {shown_rate(wanted)}"
    if part > MOST_ROUNDING:
        differ(piece, note)
    else:
        piece.error.append(note)
        if piece.how != APPROXIMATE:
            piece.how = ROUNDED


def check(piece: Piece, choices: Choices) -> None:
    if piece.how == APPROXIMATE and not choices.approximate:
        raise Inexact("; ".join(piece.error))


def notes(piece: Piece) -> list[str]:
    """The comments above an item."""
    mark = "APPROXIMATE: " if piece.how == APPROXIMATE else ""
    return [f"# {piece.item.title}", *(f"# {mark}{error}" for error in piece.error)]
