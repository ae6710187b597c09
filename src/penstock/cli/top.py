"""``penstock top``: a live view of a service: busiest rules and most refused keys."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn, TextIO

from penstock.cli.arguments import FAILED, Commands, complain
from penstock.cli.paint import Paint
from penstock.cli.top_source import ADMIN, TOKEN, AdminClient, AdminUnavailable, Look, token_of
from penstock.cli.top_view import ROWS, clean, fit, screen
from penstock.durations import SECOND, parse_duration
from penstock.errors import PenstockError

# The alternate screen, without a cursor; and back.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "top",
        help="watch a service: busiest rules, most refused keys",
        description="Shows the decisions of a service, live; Ctrl-C quits. If the output is not a"
        " terminal, prints a table every few seconds. Exit code 0: success; 1: no answer.",
    )
    add = parser.add_argument
    # fmt: off
    add("--admin", default=ADMIN, metavar="URL", help=f"the admin API (default: {ADMIN})")
    add("--token", metavar="TOKEN",
        help=f"the admin token; visible in the list of processes: prefer {TOKEN}")
    add("--token-file", metavar="FILE", help="a file whose first token is the admin token")
    add("--every", default="2s", metavar="TIME", help="how often to update (default: 2s)")
    add("--once", action="store_true", help="measure for this long, print one table and exit")
    add("--rows", type=int, default=ROWS, metavar="N",
        help=f"rows of each table, if the output is not a terminal (default: {ROWS})")
    # fmt: on
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        source = AdminClient(arguments.admin, token_of(arguments))
        every = parse_duration(arguments.every, "every") / SECOND
        if not 0.05 <= every <= 3600:
            raise ValueError("every must be from 50ms to an hour")
        if arguments.rows < 1:
            raise ValueError("rows must be at least 1")
    except (PenstockError, ValueError, OSError) as error:
        return complain("top", error)
    view = View(source, every, sys.stdout, arguments.rows)
    try:
        if not arguments.once and view.moves:
            view.live()
        return view.tables(once=arguments.once)
    except KeyboardInterrupt:
        return 0  # the usual way to quit
    except AdminUnavailable as error:
        return complain("top", error, FAILED)


class View:
    """Reads the admin API periodically and shows the result."""

    def __init__(self, source: AdminClient, every: float, out: TextIO, rows: int = ROWS) -> None:
        self._source = source
        self._rows = rows
        self._every = every
        self._out = out
        self._paint = Paint(out)
        self.moves = out.isatty() and os.environ.get("TERM") not in (None, "", "dumb")

    def tables(self, once: bool) -> int:
        """One table after the other, for pipes and files."""
        before = self._source.look()
        while True:
            time.sleep(self._every)
            now = self._source.look()
            width = shutil.get_terminal_size((100, 24)).columns
            lines = screen(before, now, self._paint, width, self._source.base, rows=self._rows)
            self._out.write("\n".join(line.rstrip() for line in lines) + "\n")
            self._out.flush()
            if once:
                return 0
            self._out.write("\n")
            before = now

    def live(self) -> NoReturn:
        """Run until Ctrl-C, on the alternate screen."""
        before = now = self._source.look()  # if that fails, there is nothing to show
        with self._own_screen():
            problem = ""
            while True:
                self._draw(before, now, problem)
                if signal.sigtimedwait({signal.SIGWINCH}, self._every):
                    continue  # resized: draw the same again
                try:
                    latest, problem = self._source.look(), ""
                except AdminUnavailable as error:
                    problem = str(error)
                else:
                    before, now = now, latest

    def _draw(self, before: Look, now: Look, problem: str) -> None:
        size = shutil.get_terminal_size()
        base, height = self._source.base, size.lines - 1
        lines = screen(before, now, self._paint, size.columns, base, height)
        if problem:
            lines[1:1] = [self._paint.red(fit(clean(problem), size.columns))]
            del lines[height:]
        body = "".join(f"{line}{_REST_OF_LINE}\n" for line in lines)
        last = self._paint.dim("Ctrl-C to quit")
        self._out.write(f"{_HOME}{body}{_REST_OF_SCREEN}{last}")
        self._out.flush()

    @contextlib.contextmanager
    def _own_screen(self) -> Iterator[None]:
        def stopped(*_: Any) -> None:
            raise KeyboardInterrupt

        # A resize is held until it is waited for: a handler could run at any moment, also when it
        # cannot wake us.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
        # However it ends, restore the terminal.
        before = signal.signal(signal.SIGTERM, stopped)
        self._out.write(_ENTER)
        try:
            yield
        finally:
            self._out.write(_LEAVE)
            self._out.flush()
            signal.signal(signal.SIGTERM, before)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
