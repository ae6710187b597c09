"""``penstock demo``: the same bursty traffic against every algorithm, drawn as it happens.

All decisions are made first, in virtual time; drawing them is a second step. So the
picture is always the same, and a pipe gets it at once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO

from penstock.cli.arguments import Commands
from penstock.limit_options import DEFAULT_CELLS
from penstock.limiter import Limiter
from penstock.limits import Limit
from penstock.stores.memory import MemoryStore
from penstock.testing.clock import FakeClock

AMOUNT = 5
PERIOD = 60
# Seconds per column of the chart; a column has at most one request.
TICK = 4
TICKS = 60
# A trickle, then a burst on each side of 2:00, where a fixed window restarts, and a
# trickle again.
ARRIVALS = (1, 5, 8, 11, *range(24, 36), 44, 48, 53, 57)

# About five seconds for the whole chart.
FRAME_SECONDS = 0.08
INDENT = 2
LABEL = 16
WIDTH = INDENT + LABEL + TICKS

EACH = PERIOD // AMOUNT
IN_SHORT = {
    "token_bucket": f"{AMOUNT} at once, then one every {EACH} s",
    "fixed_window": "starts again at each full minute",
    "sliding_window": f"the last minute, in {DEFAULT_CELLS} cells",
    "sliding_log": "the last minute, to the nanosecond",
    "leaky_bucket": f"a line of {AMOUNT}, one goes every {EACH} s",
}
CLOSING = f"""\
More than {AMOUNT} in 60 s is not an error: a full bucket lets its burst through and
refills meanwhile, and two fixed windows meet at 2:00. Where that matters, use
a sliding log or window, or a bucket with a smaller burst. In your own code:

    from penstock import Limiter
    Limiter("{AMOUNT}/minute sliding_log").hit("somebody")"""

IDLE, ARRIVED, ALLOWED, QUEUED, REFUSED = range(5)
UNICODE_MARKS = ("·", "│", "●", "○", "×")  # noqa: RUF001  # a cross that every font has
ASCII_MARKS = (".", "|", "@", "o", "x")
DIM, RED, GREEN, YELLOW, BOLD = "2", "31", "32", "33", "1"
MARK_COLOURS = (DIM, BOLD, GREEN, YELLOW, RED)


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "demo",
        help="show the algorithms at work in the terminal",
        description="Shows how each algorithm handles the same bursty traffic, in virtual time:"
        " four minutes pass in five seconds, or at once if the output is not a terminal.",
    )
    parser.set_defaults(run=run)


@dataclass
class Lane:
    """The decisions of one algorithm, column by column."""

    name: str
    marks: list[int] = field(default_factory=lambda: [IDLE] * TICKS)
    admitted_at: list[float] = field(default_factory=list)  # seconds, with the wait in a queue

    def most_in_a_period(self) -> int:
        """The most requests in any period. It is enough to try those that begin with a request."""
        times = self.admitted_at
        return max(sum(start <= at < start + PERIOD for at in times) for start in times)


def play(algorithm: str) -> Lane:
    """Send the traffic through one limit, on a clock of its own."""
    clock = FakeClock()
    limit = Limit(AMOUNT, PERIOD, algorithm=algorithm)
    limiter = Limiter(limit, store=MemoryStore(clock=clock), enabled=True)
    lane = Lane(algorithm)
    now = 0
    for tick in ARRIVALS:
        clock.advance(tick * TICK - now)
        now = tick * TICK
        decision = limiter.hit("somebody")
        if decision:
            lane.admitted_at.append(now + decision.delay)
        lane.marks[tick] = REFUSED if not decision else QUEUED if decision.delay else ALLOWED
    return lane


def chart(lanes: Sequence[Lane]) -> list[Lane]:
    """The lines to draw: the requests, each algorithm, and the output of a queue."""
    lines = [Lane("requests")]
    for tick in ARRIVALS:
        lines[0].marks[tick] = ARRIVED
    for lane in lanes:
        lines.append(lane)
        if QUEUED in lane.marks:
            lines.append(Lane("  goes ahead"))
            for at in lane.admitted_at:
                lines[-1].marks[int(at) // TICK] = ALLOWED
    return lines


class Screen:
    """The output, and what it can show."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        size = shutil.get_terminal_size()
        terminal = out.isatty() and os.environ.get("TERM") != "dumb"
        self._colours = terminal and not os.environ.get("NO_COLOR")
        # Lines that wrap or have scrolled away cannot be redrawn.
        self.moves = terminal and size.columns >= WIDTH and size.lines > len(IN_SHORT) + 2
        self.marks = UNICODE_MARKS if self._shows("".join(UNICODE_MARKS)) else ASCII_MARKS

    def _shows(self, text: str) -> bool:
        try:
            text.encode(self._out.encoding or "ascii")
        except UnicodeEncodeError:
            return False
        return True

    def paint(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colours else text

    def mark(self, kind: int) -> str:
        return self.paint(self.marks[kind], MARK_COLOURS[kind])

    def line(self, text: str = "") -> None:
        self._out.write(f"{' ' * INDENT}{text}".rstrip() + "\n")

    def draw(self, lines: Sequence[Lane], ticks: int) -> None:
        """The chart up to a given time."""
        for line in lines:
            marks = "".join(self.mark(kind) for kind in line.marks[:ticks])
            self.line(f"{line.name:<{LABEL}}{marks}")

    def animate(self, lines: Sequence[Lane]) -> None:
        """The growing chart; it ends as `draw` shows it."""
        self._out.write("\x1b[?25l")  # no cursor while it moves
        try:
            for ticks in range(TICKS + 1):
                if ticks:
                    self._out.write(f"\x1b[{len(lines)}A")
                self.draw(lines, ticks)
                self._out.flush()
                time.sleep(FRAME_SECONDS)
        finally:
            self._out.write("\x1b[?25h")
            self._out.flush()


def table(screen: Screen, lanes: Sequence[Lane]) -> None:
    """How many were admitted, and the most in one period."""
    head = f"{'':<{LABEL}}{'admitted':>10}{'most in 60 s':>15}   in short"
    screen.line(screen.paint(head, BOLD))
    for lane in lanes:
        most = lane.most_in_a_period()
        colour = GREEN if most <= AMOUNT else YELLOW if most < 2 * AMOUNT else RED
        admitted = f"{len(lane.admitted_at)} of {len(ARRIVALS)}"
        screen.line(
            f"{lane.name:<{LABEL}}{admitted:>10}{screen.paint(f'{most:>15}', colour)}"
            f"   {IN_SHORT[lane.name]}"
        )


def run(arguments: argparse.Namespace) -> int:
    screen = Screen(sys.stdout)
    lanes = [play(algorithm) for algorithm in IN_SHORT]
    lines = chart(lanes)
    screen.line()
    screen.line(
        screen.paint(f"A limit of {AMOUNT} a minute, enforced by five algorithms.", BOLD)
        + f" The same {len(ARRIVALS)} requests each time:"
    )
    screen.line("a trickle, a burst on each side of 2:00, a trickle again.")
    screen.line()
    minutes = (f"{minute}:00" for minute in range(TICKS * TICK // PERIOD))
    screen.line(" " * LABEL + "".join(f"{minute:<{PERIOD // TICK}}" for minute in minutes))
    if screen.moves:
        screen.animate(lines)
    else:
        screen.draw(lines, TICKS)
    screen.line()
    screen.line(
        " " * LABEL
        + f"{screen.mark(ALLOWED)} goes ahead   {screen.mark(QUEUED)} waits for its turn"
        + f"   {screen.mark(REFUSED)} refused"
    )
    screen.line()
    table(screen, lanes)
    screen.line()
    for text in CLOSING.splitlines():
        screen.line(text)
    screen.line()
    return 0
