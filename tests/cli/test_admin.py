"""``penstock admin``: every verb, against a real service and through the store of a fleet."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml")
pytest.importorskip("httptools")

from penstock.admin.endpoints import ENDPOINTS
from penstock.cli import main
from penstock.cli.admin import asking
from penstock.cli.top_source import AdminClient
from running.e2e.running import Penstock, new_folder, remove_folders
from stores.redis_server import wait_until

RULES = """
domain: api
descriptors:
  - {key: user, limits: 2/hour}
  - key: tenant
    descriptors:
      - {key: path, limits: 1/hour}
  - {key: tried, limits: 5/hour, shadow_mode: true}
"""

Run = Callable[..., str]


class Service:
    def __init__(self, folder: Path) -> None:
        self.rules = folder / "api.yaml"
        self.rules.write_text(RULES)
        self.control = f"file:{folder / 'control.db'}"
        assert main(["rules", "push", str(self.rules), "--to", self.control]) == 0
        self.penstock = Penstock(None, "--control", self.control, "--instance", "i1")
        self.penstock.wait()


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    service = Service(new_folder())
    try:
        yield service
    finally:
        service.penstock.end()
        remove_folders()


@pytest.fixture
def run(service: Service, capsys: pytest.CaptureFixture[str]) -> Run:
    """A verb, at the instance or through the store; what it prints."""

    def run(*words: str, code: int = 0, store: bool = False) -> str:
        where = ["--control", service.control] if store else ["--admin", service.penstock.admin]
        capsys.readouterr()
        try:
            ended = main(["admin", *words, *where])
        except SystemExit as error:
            ended = int(str(error.code))
        printed = capsys.readouterr()
        assert ended == code, f"{words}: {ended}\n{printed.out}{printed.err}"
        return printed.out + printed.err

    return run


@pytest.fixture(autouse=True)
def nothing_switched(service: Service) -> Iterator[None]:
    yield
    switches = service.penstock.told("/v1/switches")
    for each in switches["overrides"]:
        service.penstock.told(f"/v1/overrides?key={each['key']}&value={each['value']}", "DELETE")
    for each in switches["logged"]:
        service.penstock.told(f"/v1/log?key={each['key']}&value={each['value']}", "DELETE")
    for which in ("allow", "deny"):
        for each in switches[which]:
            service.penstock.told(f"/v1/{which}?key={each['key']}&entry={each['entry']}", "DELETE")
    for name in switches["modes"]:
        service.penstock.told(f"/v1/mode?name={name}", "DELETE")
    if switches["mode"] != "enforce":
        service.penstock.told("/v1/mode", "DELETE")


def soon(met: Callable[[], object], what: str) -> None:
    wait_until(lambda: bool(met()), what, 60.0)


def last(run: Run) -> dict[str, Any]:
    """The last change."""
    row: dict[str, Any] = json.loads(run("changes", "--limit", "1", "--json"))["changes"][0]
    return row


VERBS = [
    *("who user=1", "limits", "health", "instances", "switches", "changes", "top -n 3", "version"),
    *("store", "leases", "quotas", "log-level", "log-level info", "get /rlconfig", "get /metrics"),
    *("get /stats", "get /", "get /openapi.json", "get /healthcheck", "get /v1/overview"),
    *("get /v1/history", "get /v1/session", "get /v1/rules/files"),
    *("override set user=1 x2 --for 1h", "override list", "override undo user=1"),
    *("switch api/user shadow --for 1h", "switch api/user on", "switch all off --for 1h"),
    *("switch all on", "allow add ip=192.0.2.1 --for 1h", "allow list"),
    *("allow remove ip=192.0.2.1", "deny add ip=192.0.2.0/24", "deny list"),
    *("deny remove ip=192.0.2.0/24", "counters user=1", "reset user=1", "refund user=1 --hits 1"),
    *("log on --match user=1 --for 1m", "log show", "log off --match user=1"),
]  # fmt: skip


def test_there_is_a_verb_for_every_endpoint(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = set()
    send = AdminClient._send

    def note(client: AdminClient, path: str, method: str = "GET", body: Any = None) -> bytes:
        asked.add((method, path.partition("?")[0]))
        return send(client, path, method, body)

    monkeypatch.setattr(AdminClient, "_send", note)
    for verb in VERBS:
        run(*verb.split())
    run("override", "set", "user=5", "1/hour")
    run("undo", str(last(run)["number"]))
    assert "come from the store" in run("reload", code=1)
    # For browsers; `penstock rules`, `simulate` and `quota` are for terminals.
    others = {"log_in", "log_out", "try_rules", "put_rule_files", "balance"}
    assert asked == {(each.method, each.path) for each in ENDPOINTS if each.does not in others}


def test_json_everywhere(run: Run) -> None:
    for verb in VERBS:
        if not verb.startswith("get "):
            json.loads(run(*verb.split(), "--json"))


def test_who_says_since_when_and_why_whatever_it_comes_with(service: Service, run: Run) -> None:
    for path in ("/a", "/a", "/b"):
        service.penstock.check({"tenant": "acme", "path": path})
    out = run("who", "tenant=acme")
    assert re.search(
        r"api/tenant/path +tenant=acme path=/a +1/hour +refused for (1h|59m\S*) +\d\d-\d\d \S+ +1"
        r" +limit +on$", out, re.M,
    ), out  # fmt: skip
    assert "path=/b" not in out
    assert re.search(r"path=/b +1/hour +refused for", run("who", "tenant=acme", "path=/b"))
    assert "needs path" in run("who", "tenant=other")
    assert "no rule has the key 'tennant' (did you mean 'tenant'?)" in run(
        "who", "tennant=acme", code=1
    )


def test_decisions_live(service: Service, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    out = run("log", "on", "--match", "user=live", "--for", "5m", "--why", "ticket 9")
    assert "decisions on requests with user=live are logged for 5m" in out
    for _ in range(3):
        service.penstock.check({"user": "live"})
        service.penstock.check({"user": "other"})
    service.penstock.said(r"penstock.decisions refused .*user=live")
    out = run("log", "show")
    assert re.search(r"user=live +\dm\S* +local +ticket 9", out)
    assert len(re.findall(r"allowed  user=live  api/user  2/hour, \d left", out)) == 2
    assert len(re.findall(r"refused  user=live  api/user  2/hour, 0 left  again in \d+m", out)) == 1
    assert "other" not in out
    assert "log/user=live" in run("changes")

    # Until it ends.
    def end(clock: Any, seconds: float) -> None:
        service.penstock.told("/v1/log?key=user&value=live", "DELETE")

    from penstock.clock import MonotonicClock

    monkeypatch.setattr(MonotonicClock, "sleep", end)
    followed = run("log", "on", "--match", "user=live", "--for", "5m", "--follow", "--json")
    rows = [json.loads(line) for line in followed.splitlines()][1:]
    assert [row["decision"] for row in rows] == ["allowed", "allowed", "refused"]
    assert "nothing was logged" in run("log", "off")
    assert "did you mean 'user'" in run("log", "on", "--match", "usr=1", code=1)
    assert "at most 24h" in run("log", "on", "--match", "user=1", "--for", "2d", code=1)


def test_the_reason_of_every_change_is_kept(run: Run) -> None:
    for verb in (
        "override set user=7 x2", "override undo user=7", "switch api/user off",
        "switch api/user on", "switch all off", "switch all on", "allow add ip=a",
        "allow remove ip=a", "log on --match user=7", "log off",
    ):  # fmt: skip
        run(*verb.split(), "--why", f"because of {verb}")
        assert last(run)["why"] == f"because of {verb}"


def test_switches_and_changes_say_how_long_who_and_how_to_undo(run: Run) -> None:
    run("switch", "all", "off", "--for", "10m", "--why", "kill switch")
    run("switch", "api/user", "shadow", "--for", "2h")
    run("override", "set", "user=7", "6/hour", "--for", "1h", "--why", "ticket 7")
    out = run("switches")
    assert re.search(r"^all +off +(10m|9m5\ds) +local +\S+ \S+ +kill switch$", out, re.M), out
    assert re.search(r"^api/user +shadow +(2h|1h59m) +local", out, re.M)
    assert re.search(r"^user=7 +6/hour +(1h|59m5\ds) +local +\S+ \S+ +ticket 7$", out, re.M)
    assert re.search(r"user=7 +6/hour +\S+ +local .* ticket 7", run("override", "list"))
    number = last(run)["number"]
    out = run("changes")
    assert re.search(rf"{number} .* override/user=7 +- +6/hour for 1h +undo {number} +ticket", out)
    assert f"change {number} is taken back: 6/hour is removed" in run("undo", str(number))
    assert re.search(rf"^{number} .* 6/hour for 1h +- +ticket 7$", run("changes"), re.M)
    assert "changed again since" in run("undo", str(number), code=1)


def test_a_switch_says_what_is_in_force(run: Run) -> None:
    assert run("switch", "api/user", "off", "--for", "1h") == "api/user is off for 1h\n"
    assert run("switch", "api/user", "on") == "api/user is on\n"
    assert "api/tried is in shadow mode by its file" in run(
        "switch", "api/tried", "on", "--for", "1h", code=1
    )
    assert "it is in shadow mode by its file" in run("switch", "api/tried", "on", code=1)
    run("switch", "api/tried", "off")
    assert run("switch", "api/tried", "on") == "api/tried is shadow\n"
    assert "api/user is not switched" in run("switch", "api/user", "on", code=1)
    assert "did you mean 'api/user'" in run("switch", "api/usr", "off", code=1)
    assert "did you mean 'off'" in run("switch", "api/user", "of", code=2)


def test_of_two_operators_the_second_is_told(run: Run) -> None:
    run("override", "set", "user=8", "x2", "--expect", "0")
    out = run("override", "set", "user=8", "x3", "--expect", "0", code=1)
    assert "override/user=8 is at change" in out
    run("override", "undo", "user=8", "--expect", str(last(run)["number"]))


def test_messages_name_the_whole_verb(run: Run) -> None:
    wrong = run("override", "set", "user=1", "xx", code=2)
    assert wrong.startswith("penstock admin override set: a limit is like 100/minute, or x10")
    assert run("override", "undo", "user=nobody", code=1).startswith(
        "penstock admin override undo:"
    )
    assert "a pair is KEY=VALUE" in run("who", "user", code=2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("admin whoo", "penstock admin: error: unknown verb 'whoo' (did you mean 'who'?)"),
        ("admin override sett", "unknown verb 'sett' (did you mean 'set'?)"),
        ("admin log ofn", "unknown verb 'ofn' (did you mean 'on'?)"),
        ("admin log-level debgu", "invalid choice: 'debgu' (did you mean 'debug'?)"),
        ("rules pussh", "penstock rules: error: unknown verb 'pussh' (did you mean 'push'?)"),
        ("quota opne", "penstock quota: error: unknown verb 'opne' (did you mean 'open'?)"),
    ],
)
def test_the_verb_that_was_meant(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_colours_in_a_terminal_only(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("switch", "api/user", "off", "--for", "1h")
    assert "\x1b" not in run("limits")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(asking.Paint, "__init__", lambda self, out: setattr(self, "_on", True))
    out = run("limits")
    assert re.search("api/user +2/hour +\x1b\\[31moff +\x1b\\[0m", out), out
    assert "\x1b[33mshadow" in out
    assert "\x1b[32mon" in out
    assert "\x1b" not in run("limits", "--json")


def test_a_terminal_gets_no_control_characters(service: Service, run: Run) -> None:
    service.penstock.told("/v1/overrides", "PUT", key="user", value="\x1b[2J" + "x" * 200, factor=2)
    out = run("override", "list")
    assert "\x1b" not in out
    assert "user=?[2Jxxx" in out
    assert "..." in out
    service.penstock.told(f"/v1/overrides?key=user&value=%1b[2J{'x' * 200}", "DELETE")


def test_a_long_rejection_is_shown_whole() -> None:
    class Arguments:
        json, control = False, ""

    long = "problem " * 50 + "set x there"
    asked = asking.Asked(None, Arguments())  # type: ignore[arg-type]  # only its table is needed
    assert asked.table(("PART", "STATE"), [("rejected", long)])[1].endswith("set x there")


def test_through_the_store(service: Service, run: Run) -> None:
    """The same checks, without an instance; and the instance has it in force."""
    out = run("override", "set", "user=9", "x3", "--for", "1h", "--why", "ticket", store=True)
    assert out == "user=9: x3 is set for the fleet for 1h\n"
    assert re.search(r"user=9 +x3 +\S+ +\S+ +\S+ \S+ +ticket", run("override", "list", store=True))
    soon(lambda: "user=9" in run("override", "list"), "the override at the instance")
    assert "did you mean 'user'" in run("override", "set", "usr=9", "x3", code=1, store=True)
    assert "did you mean 'api/user'" in run("switch", "api/usr", "off", code=1, store=True)
    assert run("switch", "api/user", "off", "--for", "1h", store=True) == "api/user is off for 1h\n"
    assert re.search(r"api/user +2/hour +off +1", run("limits", store=True))
    soon(lambda: re.search(r"api/user +2/hour +off +1", run("limits")), "the switch")
    run("deny", "add", "ip=192.0.2.7", store=True)
    soon(lambda: "192.0.2.7" in run("deny", "list"), "the entry")
    run("log", "on", "--match", "user=9", store=True)
    assert "user=9" in run("log", "show", store=True)
    changes = run("changes", store=True)
    assert changes == run("changes")
    number = last(run)["number"]
    assert f"change {number} is taken back" in run("undo", str(number), store=True)
    soon(lambda: "user=9" not in run("log", "show"), "the undo")
    assert re.search(r"i1 +up +set 1 +1", run("health", store=True))
    assert run("instances") == run("instances", store=True)
    for verb in ("who user=9", "top", "counters user=9", "reload", "log-level", "version"):
        assert "ask an instance, with --admin URL" in run(*verb.split(), code=1, store=True)
    assert "--follow asks an instance" in run(
        "log", "on", "--match", "user=9", "--follow", code=2, store=True
    )
    answer = json.loads(run("override", "undo", "user=9", "--json", store=True))
    assert (answer["before"]["factor"], answer["after"]) == (3.0, None)
    assert "workers" not in answer


def test_a_store_without_rules_cannot_check(run: Run, tmp_path: Path) -> None:
    control = f"file:{tmp_path / 'empty.db'}"
    assert main(["admin", "override", "set", "user=1", "x2", "--control", control]) == 1
    assert main(["admin", "switch", "all", "off", "--for", "1m", "--control", control]) == 0
    assert main(["admin", "health", "--control", control]) == 1, "no instance has reported"


@pytest.mark.parametrize("verb", ["changes", "switches", "limits"])
def test_a_store_that_is_away(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("redis")
    assert main(["admin", verb, "--control", "redis://127.0.0.1:1/0"]) == 1
    assert "the control store is away" in capsys.readouterr().err
    assert "Traceback" not in capsys.readouterr().err


# penstock rules ----------------------------------------------------------------------------


def test_json_of_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    control, rules = f"file:{tmp_path / 'control.db'}", tmp_path / "api.yaml"
    rules.write_text(RULES)

    def ask(*words: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert main(["rules", *words, "--to", control, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    assert ask("push", str(rules), "--dry-run") == {"changed": False, "summary": "api.yaml added"}
    pushed = {"number": 1, "changed": True, "summary": "api.yaml added"}
    assert ask("push", str(rules)) == pushed
    assert ask("push", str(rules)) == {**pushed, "changed": False}
    nobody = {"in_force": 0, "rejected": {}, "waiting": {}}
    waited = ask("push", str(rules), "--wait", "--timeout", "1ms", code=1)
    assert waited["instances"] == nobody
    assert ask("pull", str(tmp_path / "pulled")) == {"number": 1, "files": ["api.yaml"]}
    assert ask("diff", str(rules)) == {"different": False, "files": {}}
    rules.write_text(RULES.replace("2/hour", "3/hour"))
    different = ask("diff", str(rules), code=1)
    assert "+  - {key: user, limits: 3/hour}" in different["files"]["api.yaml"]
    ask("push", str(rules), "--why", "more")
    assert [row["number"] for row in ask("history")] == [2, 1]
    assert ask("rollback", "1")["number"] == 3
    rules.write_text("domain: api\ndescriptors: [{key: user, limits: 2/fortnight}]\n")
    (problem,) = ask("push", str(rules), code=1)["problems"]
    assert "api.yaml:2" in problem


def test_what_is_printed_when_stdout_is_no_terminal() -> None:
    assert not asking.Paint(sys.stdout).red("x").startswith("\x1b")
