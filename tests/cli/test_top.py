"""`penstock top`: rates, and how they look."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from penstock.cli import main
from penstock.cli.paint import Paint
from penstock.cli.top_source import (
    AdminClient,
    AdminUnavailable,
    HolderRow,
    LeasedKeyRow,
    Look,
    key_rows,
    local_share,
    look_of,
    rule_rows,
)
from penstock.cli.top_view import cells, clean, duration, fit, screen

PENSTOCK = [sys.executable, "-m", "penstock"]


class Admin:
    """An admin API that counts up at every look: 10 allowed and 5 refused in a second."""

    def __init__(self) -> None:
        self.looks = 0
        self.token: str | None = None
        self.down = False
        self.asked: list[str] = []

    def answer(self, path: str) -> tuple[int, Any]:
        self.asked.append(path)
        if path.startswith("/v1/top"):
            self.looks += 1
            n = self.looks
            return 200, {
                "at": 1000.0 + n,
                "rules": [
                    {"rule": "api/user", "allowed": 8 * n, "refused": 5 * n, "near_limit": 2 * n},
                    {"rule": "api/idle", "allowed": 90, "refused": 0, "near_limit": 0},
                ],
                "keys": [
                    {"key": "api/user user=\x1b[31mmallory", "refused": 4 * n, "error": 0},
                    {"key": "api/user user=eve", "refused": n + 10, "error": 10},
                ],
            }
        if path == "/v1/version":
            about = {"version": "1.2", "uptime": 3725.0, "workers": 2, "rules": 2}
            return 200, {**about, "store": "memory"}
        up = {"service": "up", "store": "down" if self.down else "up"}
        return 503 if self.down else 200, {"healthy": not self.down, "components": up}


@contextlib.contextmanager
def admin_api() -> Iterator[tuple[Admin, str]]:
    admin = Admin()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if admin.token and self.headers.get("Authorization") != f"Bearer {admin.token}":
                status, content = 401, {"error": "a token is required"}
            else:
                status, content = admin.answer(self.path)
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield admin, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def look(at: float, rules: dict[str, dict[str, int]], **keys: tuple[int, int]) -> Look:
    return Look(at, rules, keys)


# Rates -------------------------------------------------------------------------------------


def test_a_rate_is_the_difference_of_two_looks() -> None:
    before = look(10, {"a": {"allowed": 100, "refused": 10, "near_limit": 4}}, k=(10, 0))
    now = look(
        12,
        {
            "a": {"allowed": 120, "refused": 16, "near_limit": 8},
            "new": {"allowed": 40, "refused": 0, "near_limit": 0},
        },
        k=(16, 0),
        first=(7, 5),
    )
    busiest, second = rule_rows(before, now)
    assert (busiest.rule, busiest.allowed) == ("new", 20)
    # What was near the limit went ahead.
    assert (second.allowed, second.refused, second.near) == (12, 3, 2)
    assert (second.total_allowed, second.total_refused) == (128, 16)
    # Of a key that was not there before, only what is sure.
    assert [(row.key, row.refused) for row in key_rows(before, now)] == [("k", 3), ("first", 1)]


def test_a_service_that_started_anew_counts_from_nothing() -> None:
    before = look(10, {"a": {"allowed": 1000, "refused": 0}})
    now = look(12, {"a": {"allowed": 6, "refused": 0}})
    assert rule_rows(before, now)[0].allowed == 3


def test_without_time_there_is_no_rate() -> None:
    same = look(10, {"a": {"allowed": 1000, "refused": 0}}, k=(3, 0))
    assert rule_rows(same, same)[0].rate == 0
    assert key_rows(same, same)[0].refused == 0


@pytest.mark.parametrize("top", [{}, {"at": 1}, {"at": "x", "rules": [], "keys": []}, [], None])
def test_what_is_no_answer_is_said(top: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        look_of(top, {}, {})


# How it looks ------------------------------------------------------------------------------


def many(n: int, at: float) -> Look:
    count = int(at)
    return Look(
        at,
        {f"api/rule-{i}": {"allowed": count * i, "refused": count * i} for i in range(n)},
        {f"api/user user=客户{i}\x07": (count * i, 0) for i in range(n)},
        {"version": "1", "uptime": 5, "workers": 1, "rules": n, "store": "memory"},
        {"store": "up"},
    )


@pytest.mark.parametrize("width", [40, 41, 60, 80, 100, 200])
@pytest.mark.parametrize("height", [6, 10, 24, 50])
def test_it_fits_on_any_screen(width: int, height: int) -> None:
    lines = screen(many(30, 1), many(30, 3), Paint(io.StringIO()), width, "http://a:1", height)
    assert len(lines) <= height
    for line in lines:
        assert sum(cells(char) for char in line) <= width
        assert line.isprintable()


def test_a_table_leaves_room_that_it_does_not_need() -> None:
    plain = Paint(io.StringIO())
    short = Look(3, {"api/one": {"allowed": 5, "refused": 0}}, many(30, 3).keys)
    lines = screen(short, short, plain, 80, "http://a", 24)
    assert len(lines) == 24
    assert sum("user=" in line for line in lines) == 16


def test_the_first_look_says_that_there_is_nothing_yet() -> None:
    nothing = Look(1, {}, {})
    text = "\n".join(screen(nothing, nothing, Paint(io.StringIO()), 80, "http://a:6070"))
    assert "no requests yet" in text
    assert "no refusals yet" in text


def test_leases_have_a_line_of_their_own() -> None:
    figures = {"keys": 3, "units": 4567, "decided_here": 100, "decided_directly": 100}
    before = Look(1, {}, {}, leases=figures)
    now = Look(2, {}, {}, leases={**figures, "decided_here": 1099, "decided_directly": 101})
    line = screen(before, now, Paint(io.StringIO()), 80, "http://a:6070", 10)[3]
    assert line == "3 leases  4,567 units held  99.9% decided locally"
    assert local_share(now, now) is None  # nothing was decided meanwhile
    assert "lease" not in "\n".join(screen(many(1, 1), many(1, 2), Paint(io.StringIO()), 80, ""))


@pytest.mark.parametrize("height", [6, 10, 24])
def test_leases_leave_room_for_the_tables(height: int) -> None:
    now = dataclasses.replace(many(30, 3), leases={"keys": 1, "units": 2})
    lines = screen(now, now, Paint(io.StringIO()), 80, "http://a", height)
    assert len(lines) <= height
    assert sum("rule-" in line for line in lines) >= (height - 8) // 2


LEASED = [
    LeasedKeyRow("api|tenant=acme", "1000/second", 230, 1800, [
        HolderRow("edge-1:7:aa", 200, 1500), HolderRow("edge-2:9:bb", 30, 300),
    ]),
    LeasedKeyRow("api|tenant=big", "10/second", 20, 90, [
        HolderRow(f"edge-{number}:1:cc", 2, 9) for number in range(10)
    ]),
]  # fmt: skip


def test_leased_keys_show_who_holds_how_much() -> None:
    now = dataclasses.replace(many(1, 1), leases={"keys": 2, "units": 250}, leased_keys=LEASED)
    lines = screen(many(1, 1), now, Paint(io.StringIO()), 70, "http://x")
    at = next(at for at, line in enumerate(lines) if line.startswith("LEASED KEY"))
    assert [re.sub(" +", " ", line.rstrip()) for line in lines[at : at + 4]] == [
        "LEASED KEY units held asked/s",
        " api|tenant=acme 1000/second 230 1,800",
        " edge-1:7:aa 200 1,500",
        " edge-2:9:bb 30 300",
    ]
    assert lines[at + 2].startswith("    edge-1")
    # Not more lines for one key than people read.
    assert re.search(r"\n +2 others +4 +18\n", "\n".join(lines))
    assert "LEASED" not in "\n".join(screen(now, many(1, 1), Paint(io.StringIO()), 70, ""))


@pytest.mark.parametrize("height", [12, 24, 40])
def test_leased_keys_fit_the_screen(height: int) -> None:
    now = dataclasses.replace(
        many(30, 30), leases={"keys": 40, "units": 2}, leased_keys=LEASED[:1] * 20
    )
    lines = screen(now, now, Paint(io.StringIO()), 80, "http://x", height)
    assert len(lines) <= height
    assert any(line.startswith("REFUSED KEY") for line in lines)
    if height >= 24:
        assert any(re.match(r"LEASED KEY \(\d of 20\)", line) for line in lines)


def test_what_others_chose_cannot_touch_the_terminal() -> None:
    assert clean("a\x1b[2Jb\n\u202e") == "a\\x1b[2Jb\\x0a\\x202e"


@pytest.mark.parametrize(
    ("text", "width", "fitted"),
    [
        ("abc", 5, "abc  "), ("abcde", 5, "abcde"), ("abcdef", 5, "abcd~"), ("", 3, "   "),
        ("客户", 4, "客户"), ("客户端", 5, "客户~"), ("客户端", 4, "客~ "), ("abc", 0, ""),
    ],
)  # fmt: skip
def test_texts_are_cut_and_filled(text: str, width: int, fitted: str) -> None:
    assert fit(text, width) == fitted


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.5, "0s"), (59, "59s"), (61, "1m 1s"), (3725, "1h 2m"), (90_000, "1d 1h")],
)
def test_durations(seconds: float, told: str) -> None:
    assert duration(seconds) == told


# The command -------------------------------------------------------------------------------


def test_once_prints_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    with admin_api() as (_, url):
        assert main(["top", "--admin", url, "--once", "--every", "50ms"]) == 0
    out = capsys.readouterr().out
    assert "up 1h 2m  2 workers  2 rules  penstock 1.2" in out
    assert "15 a second:  10 allowed  5 refused (33.3%)  2 near a limit" in out
    assert re.search(r"api/user +10 +5.0 +2.0 +33.3% +30\n", out)
    assert re.search(r"user=\\x1b\[31mmallory +4.0 +8\n", out)
    assert re.search(r"user=eve +1.0 +2\+\n", out)  # at least
    assert "\x1b" not in out


def test_what_is_down_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with admin_api() as (admin, url):
        admin.down = True
        assert main(["top", "--admin", url, "--once", "--every", "50ms"]) == 0
    assert "store down" in capsys.readouterr().out


def test_rows(capsys: pytest.CaptureFixture[str]) -> None:
    with admin_api() as (_, url):
        main(["top", "--admin", url, "--once", "--every", "50ms", "--rows", "1"])
    out = capsys.readouterr().out
    assert "RULE (1 of 2)" in out
    assert "api/idle" not in out


def test_a_token(capsys: pytest.CaptureFixture[str], monkeypatch: Any, tmp_path: Any) -> None:
    arguments = ["top", "--once", "--every", "50ms", "--admin"]
    token = "0123456789abcdef0123456789abcdef"
    with admin_api() as (admin, url):
        admin.token = token
        assert main([*arguments, url]) == 1
        assert "PENSTOCK_ADMIN_TOKEN" in capsys.readouterr().err
        assert main([*arguments, url, "--token", token]) == 0
        (tmp_path / "tokens").write_text(f"# mine\nops: {token}\n")
        assert main([*arguments, url, "--token-file", str(tmp_path / "tokens")]) == 0
        monkeypatch.setenv("PENSTOCK_ADMIN_TOKEN", token)
        assert main([*arguments, url]) == 0


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    with admin_api() as (_, url):
        pass
    assert main(["top", "--admin", url, "--once"]) == 1
    assert "Is penstock serve running there?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", [["--admin", "ftp://a"], ["--every", "soon"], ["--every", "1us"], ["--rows", "0"],
              ["--token-file", "/nowhere"], ["--token", "a\nb"]],
)  # fmt: skip
def test_bad_arguments(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", *wrong]) == 2
    assert capsys.readouterr().err.startswith("penstock top: ")


def test_somebody_else_is_there() -> None:
    with admin_api() as (admin, url):
        admin.answer = lambda path: (200, ["not", "this"])  # type: ignore[method-assign]
        with pytest.raises(AdminUnavailable, match="unexpected answer"):
            AdminClient(url).look()
        admin.answer = lambda path: (404, {"error": "nothing here"})  # type: ignore[method-assign]
        with pytest.raises(AdminUnavailable, match="nothing here"):
            AdminClient(url).look()


def test_a_pipe_gets_table_after_table() -> None:
    with admin_api() as (_, url):
        command = [*PENSTOCK, "top", "--admin", url, "--every", "50ms"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            seen = 0
            while seen < 3:
                seen += process.stdout.readline().startswith("penstock top")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0


class Terminal:
    """A command in a terminal of a size."""

    def __init__(self, command: list[str], rows: int, columns: int) -> None:
        self._own, other = pty.openpty()
        self.resize(rows, columns)
        environment = {**os.environ, "TERM": "xterm"}
        environment.pop("COLUMNS", None)
        environment.pop("LINES", None)
        self.process = subprocess.Popen(
            command, stdin=other, stdout=other, stderr=other, env=environment,
            start_new_session=True,
        )  # fmt: skip
        os.close(other)
        self.seen = ""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._own, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, text: str) -> str:
        """What comes, up to this text; forgets it."""
        end = time.monotonic() + 60
        while text not in self.seen:
            assert time.monotonic() < end, f"no {text!r} in {self.seen!r}"
            if select.select([self._own], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):  # at its end
                    self.seen += os.read(self._own, 65_536).decode()
        found, _, self.seen = self.seen.partition(text)
        return found

    def close(self) -> None:
        os.close(self._own)
        self.process.kill()
        self.process.wait()


def test_a_terminal_is_drawn_on_resized_and_left_clean() -> None:
    with admin_api() as (admin, url):
        terminal = Terminal([*PENSTOCK, "top", "--admin", url, "--every", "10s"], 24, 100)
        try:
            terminal.until("\x1b[?1049h\x1b[?25l")
            first = terminal.until("Ctrl-C to quit")
            assert "near/s" in first
            looks = admin.looks
            terminal.resize(24, 45)
            terminal.process.send_signal(signal.SIGWINCH)
            again = terminal.until("Ctrl-C to quit")
            assert "near/s" not in again  # it is drawn at once, for the new size
            assert admin.looks == looks
            terminal.process.send_signal(signal.SIGINT)
            terminal.until("\x1b[?25h\x1b[?1049l")
            assert terminal.process.wait(60) == 0
        finally:
            terminal.close()


def test_a_terminal_that_is_resized_without_end_is_drawn_on() -> None:
    """A change of size may come at any moment, also when the last one has just been drawn."""
    with admin_api() as (_, url):
        terminal = Terminal([*PENSTOCK, "top", "--admin", url, "--every", "10s"], 24, 100)
        try:
            for _ in range(2000):
                terminal.until("Ctrl-C to quit")
                terminal.process.send_signal(signal.SIGWINCH)
        finally:
            terminal.close()


def test_a_service_that_goes_away_is_waited_for() -> None:
    with admin_api() as (admin, url):
        terminal = Terminal([*PENSTOCK, "top", "--admin", url, "--every", "100ms"], 24, 100)
        try:
            terminal.until("Ctrl-C to quit")
            admin.token = "none that it has"
            assert "api/user" in terminal.until("denied access") + terminal.until("Ctrl-C")
            admin.token = None
            for _ in range(20):
                if "denied access" not in terminal.until("Ctrl-C"):
                    break
            else:
                pytest.fail("it did not come back")
            terminal.process.terminate()
            terminal.until("\x1b[?25h\x1b[?1049l")
            assert terminal.process.wait(60) == 0
        finally:
            terminal.close()
