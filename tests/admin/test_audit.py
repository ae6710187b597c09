"""The record: every change, also those that were not made; and the file that it is in."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from admin.conftest import Site, Start
from penstock.admin.audit import AuditError, AuditLog
from penstock.admin.commands import Answer, Command
from penstock.admin.control import LocalControl
from penstock.admin.endpoints import ENDPOINTS
from penstock.testing import FakeClock
from penstock.wires.http.messages import HttpRequest

PAIR = {"key": "user", "value": "42"}
ENTRY = {"key": "ip", "entry": "192.0.2.1"}
# Action, method, path, body, before, after.
CHANGES: list[tuple[str, str, str, Any, Any, Any]] = [
    ("mode.set", "PUT", "/v1/mode", {"mode": "off"}, "enforce", "off"),
    ("mode.set", "PUT", "/v1/mode", {"mode": "shadow", "name": "by_hour"}, None, "shadow"),
    ("mode.clear", "DELETE", "/v1/mode?name=by_hour", None, "shadow", None),
    ("mode.clear", "DELETE", "/v1/mode", None, "off", "enforce"),
    ("override.set", "PUT", "/v1/overrides", {**PAIR, "factor": 2, "lasts": "1h"}, None,
     {**PAIR, "factor": 2, "limit": None, "left": 3600.0}),
    ("override.set", "PUT", "/v1/overrides", {**PAIR, "limit": "1/hour"},
     {**PAIR, "factor": 2, "limit": None, "left": 3600.0},
     {**PAIR, "factor": None, "limit": "1/hour", "left": None}),
    ("override.clear", "DELETE", "/v1/overrides?key=user&value=42", None,
     {**PAIR, "factor": None, "limit": "1/hour", "left": None}, None),
    ("allow.set", "PUT", "/v1/allow", ENTRY, None, {**ENTRY, "left": None}),
    ("allow.clear", "DELETE", "/v1/allow?key=ip&entry=192.0.2.1", None,
     {**ENTRY, "left": None}, None),
    ("deny.set", "PUT", "/v1/deny", {**ENTRY, "lasts": 5}, None, {**ENTRY, "left": 5.0}),
    ("deny.clear", "DELETE", "/v1/deny?key=ip&entry=192.0.2.1", None,
     {**ENTRY, "left": 5.0}, None),
    ("log.set", "PUT", "/v1/log", {**PAIR, "lasts": "10m"}, None, {**PAIR, "left": 600.0}),
    ("log.clear", "DELETE", "/v1/log?key=user&value=42", None, {**PAIR, "left": 600.0}, None),
    ("log_level.set", "PUT", "/v1/log-level", {"level": "error"}, "debug", "error"),
    ("rules.reload", "POST", "/v1/rules/reload", None, {"domains": ["api"], "rules": 4},
     {"domains": ["api"], "rules": 4}),
    ("counters.reset", "POST", "/v1/counters/reset", {"descriptors": [{"user": "1"}]}, ..., ...),
    ("counters.refund", "POST", "/v1/counters/refund", {"descriptors": [{"user": "1"}]}, ..., ...),
]  # fmt: skip


async def test_every_change_is_recorded(site: Site) -> None:
    await site.ask("PUT", "/v1/log-level", {"level": "debug"})
    site.audit_file.write_text("")
    for action, method, path, body, before, after in CHANGES:
        site.clock.set(1_704_067_200_000_001_000)
        done = await site.ask(method, path, body)
        assert done.status_code == 200, done.text
        line = site.audited()[-1]
        assert line["time"] == "2024-01-01T00:00:00.000001Z"
        assert (line["peer"], line["who"]) == ("127.0.0.1", "local")
        assert (line["action"], line["result"], line["status"]) == (action, "done", 200)
        if before is ...:
            assert line["before"][0]["rule"] == line["after"][0]["rule"] == "api/user"
        else:
            assert (line["before"], line["after"]) == (before, after)
        if isinstance(body, dict) and "descriptors" not in body:
            assert body.items() <= line["asked"].items()
    assert len(site.audited()) == len(CHANGES)
    # There is no history here to undo a change of, and no editor of rules: tests/running/e2e/
    # test_fleet.py and test_page_api.py do.
    assert {"change.undo", "rules.put", *(action for action, *_ in CHANGES)} == {
        each.action for each in ENDPOINTS
    } - {None}


async def test_looking_is_not_recorded(site: Site) -> None:
    for each in ENDPOINTS:
        if each.action is None and each.does != "log_in":
            await site.ask(each.method, each.path)
    assert site.audited() == []


async def test_a_line_is_a_line_whatever_was_sent(site: Site) -> None:
    for value in ("a\nb", "\u2028", "\x1b[31m", '"}\n{"who": "root"}'):
        body = json.dumps({"key": "user", "value": value, "factor": 2}).encode()
        await site.ask("PUT", "/v1/overrides", body)
    text = site.audit_file.read_text()
    assert len(text.splitlines()) == 4
    assert text.replace("\n", "").isprintable()


class Broken:
    """A control that fails, in one of several ways."""

    def __init__(self, inner: LocalControl, answers: list[Answer] | Exception) -> None:
        self._inner = inner
        self._answers = answers

    async def apply(self, command: Command) -> list[Answer]:
        if isinstance(self._answers, Exception):
            raise self._answers
        return self._answers

    async def ask(self, command: Command) -> Answer:
        return await self._inner.ask(command)


OK: Answer = {"ok": True, "result": None}
LATE: Answer = {"ok": False, "status": 504, "error": "worker 2 did not answer"}


@pytest.mark.parametrize(
    ("answers", "status", "error"),
    [
        ([OK, LATE], 500, "1 of 2 workers failed: worker 2 did not answer"),
        ([LATE, LATE], 504, "worker 2 did not answer"),
        ([LATE, {"ok": False, "status": 400, "error": "no"}], 500, "2 of 2 workers"),
        ([], 500, "no worker is running"),
        (RuntimeError("lost"), 500, "internal error: see the log"),
    ],
)
async def test_a_change_that_fails_is_recorded(
    start: Start, answers: Any, status: int, error: str
) -> None:
    site = await start()
    site.api._handlers._control = Broken(LocalControl(site.gate), answers)
    done = await site.ask("PUT", "/v1/mode", {"mode": "off"})
    assert (done.status_code, error in done.json()["error"]) == (status, True)
    (line,) = site.audited()
    assert (line["result"], line["status"]) == ("failed", status)
    assert line["asked"] == {"mode": "off"}


async def test_a_change_goes_on_to_its_end_when_the_caller_hangs_up(start: Start) -> None:
    site = await start()
    begun, go = asyncio.Event(), asyncio.Event()

    class Slow(LocalControl):
        async def apply(self, command: Command) -> list[Answer]:
            begun.set()
            await go.wait()
            return await super().apply(command)

    site.api._handlers._control = Slow(site.gate)
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    body = b'{"mode": "off"}'
    writer.write(
        b"PUT /v1/mode HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
        % (len(body), body)
    )
    await begun.wait()
    # With a reset: else it might only have said all that it wants to say.
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    while site.server._http.connections:
        await asyncio.sleep(0.001)
    go.set()
    await site.api.settle()
    assert site.gate.switches.state().mode == "off"
    assert site.audited()[0]["result"] == "done"
    del reader


async def test_changes_are_made_one_after_the_other(start: Start) -> None:
    site = await start()
    at_once = 0
    most = 0

    class Counting(LocalControl):
        async def apply(self, command: Command) -> list[Answer]:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0.005)
            at_once -= 1
            return await super().apply(command)

    site.api._handlers._control = Counting(site.gate)
    modes = ["off", "shadow", "enforce"] * 3
    await asyncio.gather(*[site.ask("PUT", "/v1/mode", {"mode": mode}) for mode in modes])
    assert most == 1
    lines = site.audited()
    assert [line["before"] for line in lines[1:]] == [line["after"] for line in lines[:-1]]


@pytest.mark.parametrize("sync", [False, True])
async def test_what_cannot_be_recorded_is_said(
    start: Start, sync: bool, caplog: pytest.LogCaptureFixture
) -> None:
    site = await start(sync=sync)
    if not os.access("/dev/full", os.W_OK):
        pytest.skip("there is no /dev/full")
    site.api.audit.close()
    site.api.audit = AuditLog("/dev/full", sync=sync, clock=site.clock)
    done = await site.ask("PUT", "/v1/mode", {"mode": "off"})
    assert done.status_code == 500
    assert done.json()["error"].startswith("the change was made, but cannot write to the audit log")
    # Then the log has it.
    record = next(r for r in caplog.records if r.name == "penstock.audit")
    assert record.fields["audit"]["after"] == "off"  # type: ignore[attr-defined]
    refused = await site.ask("PUT", "/v1/mode", {"mode": "on"})
    assert refused.status_code == 400


# The file ----------------------------------------------------------------------------------


def test_it_appends_and_reopens(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    file.write_text('{"old": 1}\n')
    log = AuditLog(file, sync=True, clock=FakeClock())
    log.write({"n": 1})
    file.rename(tmp_path / "audit.log.1")
    log.write({"n": 2})  # still to the old one
    log.reopen()
    log.write({"n": 3})
    log.close()
    old = [json.loads(line) for line in (tmp_path / "audit.log.1").read_text().splitlines()]
    assert [line.get("n") for line in old] == [None, 1, 2]
    assert json.loads(file.read_text())["n"] == 3


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    log.close()
    assert (tmp_path / "audit.log").stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match=r"cannot open the audit log .*: Is a directory"):
        AuditLog(tmp_path)


def test_a_closed_one_says_so(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    log.close()
    log.close()
    with pytest.raises(AuditError, match="the log is closed"):
        log.write({"n": 1})


def test_if_the_new_file_cannot_be_opened_the_old_one_stays(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    log = AuditLog(folder / "audit.log")
    folder.rename(tmp_path / "moved")
    with pytest.raises(AuditError):
        log.reopen()
    log.write({"n": 1})
    log.close()
    assert "n" in (tmp_path / "moved" / "audit.log").read_text()


def test_processes_may_share_the_file(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    program = (
        "import sys; from penstock.admin.audit import AuditLog\n"
        "log = AuditLog(sys.argv[1])\n"
        "for n in range(300): log.write({'who': sys.argv[2], 'n': n, 'x': 'y' * 3000})\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, str(file), name]) for name in "ab"]
    assert [each.wait(60) for each in running] == [0, 0]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for name in "ab":
        assert [line["n"] for line in lines if line["who"] == name] == list(range(300))


def test_without_a_file_it_goes_to_the_log_whatever_the_level(
    our_loggers: None, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("penstock").setLevel(logging.ERROR)
    AuditLog(clock=FakeClock()).write({"action": "mode.set", "who": "ops"})
    (record,) = caplog.records
    assert record.getMessage() == "mode.set"
    assert record.fields["audit"]["who"] == "ops"  # type: ignore[attr-defined]


async def test_strangers_cannot_fill_the_disk(site: Site) -> None:
    """However many addresses they have."""
    for n in range(2_000):
        request = HttpRequest(f"198.51.{n // 250}.{n % 250}")
        answer = site.api(request)
        assert answer.status == 401  # type: ignore[union-attr]
    assert len(site.audited()) == 600
    site.clock.advance(60)
    site.api(HttpRequest("203.0.113.1"))
    assert site.audited()[-1]["left_out"] == 1_400


async def test_a_busy_port_is_a_clear_error(start: Start) -> None:
    site = await start()
    with pytest.raises(ValueError, match=r"cannot listen on 127\.0\.0\.1"):
        await site.server.listen(("127.0.0.1", site.port))
    with socket.create_connection(("127.0.0.1", site.port)):
        pass
