"""Three instances with two workers each, one Valkey, and an operator with the command line."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from running.e2e.fleet import Fleet
from running.e2e.running import Penstock, ask
from stores.conftest import own_server, server_binary  # noqa: F401  # fixtures

PATIENCE = 30.0
FIRST = """
domain: api
descriptors:
  - key: user
    limits: 2/hour
  - key: tenant
    descriptors:
      - key: path
        limits: 7/hour
"""
SECOND = FIRST.replace("2/hour", "5/hour")
BAD = FIRST.replace("2/hour", "2/fortnight").replace("7/hour", "-7/hour")


@pytest.fixture
def fleet(own_server: Any, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    fleet = Fleet(own_server("--appendonly", "yes"), tmp_path)
    try:
        yield fleet
    finally:
        fleet.end()


def limit_of(instance: Penstock) -> str:
    rules = instance.told("/v1/rules")["domains"]
    return str(rules[0]["rules"][0]["limits"][0]["limit"]) if rules else ""


def allowed(instance: Penstock, user: str, requests: int) -> int:
    answers = [instance.check({"user": user}, domain="api") for _ in range(requests)]
    return sum(answer.status == 200 for answer in answers)


@pytest.mark.timeout(300)
def test_what_is_changed_at_one_instance_is_in_force_in_all(fleet: Fleet) -> None:
    assert "set 1 is pushed: 2 rules" in fleet.push(FIRST, "--why", "first rules")
    fleet.start()
    assert fleet.numbers() == [1, 1, 1]
    # A new set, and a bad one.
    pushed = fleet.push(SECOND, "--wait", "--who", "ana", "--why", "more for all")
    assert "set 2 is pushed" in pushed
    assert "in force in 3 instances" in pushed
    assert all(limit_of(each) == "5/hour" for each in fleet.instances)
    refused = fleet.push(BAD, code=1)
    assert "api.yaml:5" in refused
    assert "2 problems: nothing was changed" in refused
    assert "nothing was changed" in fleet.push(FIRST, "--dry-run")
    assert "-    limits: 5/hour" in fleet.penstock("rules", "diff", str(fleet.rules), code=1)
    assert fleet.numbers() == [2, 2, 2]

    # Back.
    back = fleet.penstock("rules", "rollback", "1", "--wait", "--why", "too many")
    assert "in force in 3 instances" in back
    assert all(limit_of(each) == "2/hour" for each in fleet.instances)
    history = json.loads(fleet.penstock("rules", "history", "--json"))
    assert [(row["number"], row["in_force"], row["why"]) for row in history] == [
        (3, True, "too many"), (2, False, "more for all"), (1, False, "first rules"),
    ]  # fmt: skip
    fleet.penstock("rules", "pull", str(fleet.folder / "pulled"))
    assert (fleet.folder / "pulled" / "api.yaml").read_text() == FIRST

    # An override, a switch, the kill switch.
    fleet.admin(0, "override", "set", "user=42", "6/hour", "--for", "1h", "--why", "ticket 7")
    fleet.everywhere(
        lambda each: each.told("/v1/overrides")["overrides"] != [], "the override everywhere"
    )
    assert [allowed(each, "42", 8) for each in fleet.instances] == [6, 6, 6]
    fleet.admin(1, "switch", "api/user", "off", "--for", "1h")
    fleet.everywhere(
        lambda each: each.told("/v1/switches")["modes"] == {"api/user": "off"}, "switched"
    )
    assert [allowed(each, "new", 4) for each in fleet.instances] == [4, 4, 4]
    assert "switched: off" in ask(fleet.instances[2].admin, "/rlconfig").body.decode()
    fleet.admin(2, "switch", "api/user", "on")
    fleet.everywhere(lambda each: each.told("/v1/switches")["modes"] == {}, "switched back")
    fleet.admin(2, "switch", "all", "off", "--for", "1s", "--why", "kill switch")
    fleet.everywhere(
        lambda each: each.told("/v1/switches")["mode"] == "enforce", "the kill switch expired"
    )
    rows = json.loads(fleet.admin(0, "changes", "--json"))["changes"]
    assert [(row["what"], row["after"]) for row in rows[:4]] == [
        ("switch/all", "off"), ("switch/rule/api/user", None),
        ("switch/rule/api/user", "off"), ("override/user=42", "6/hour"),
    ]  # fmt: skip
    fleet.admin(1, "undo", str(rows[3]["number"]))
    fleet.everywhere(
        lambda each: each.told("/v1/overrides")["overrides"] == [], "the override undone"
    )


PAGE = Path(__file__).parents[3] / "docs/howto/at-3-am.md"
STORE = "redis://control:6379"
STRICT = """
domain: api
descriptors:
  - {key: user, limits: 2/hour}
  - key: tenant
    descriptors:
      - {key: path, limits: 1/hour}
"""


def commands_of(page: str) -> list[tuple[str, str]]:
    """Commands of a page, and what each prints."""
    blocks = re.findall(r"^```console\n(.*?)^```$", page, re.S | re.M)
    parts = [part.partition("\n") for block in blocks for part in block.split("$ ")[1:]]
    return [(command, printed) for command, _, printed in parts]


def alike(printed: str) -> str:
    """Without times, and with single spaces."""
    printed = re.sub(r"\d{4}-\d\d-\d\dT\S+|\d\d-\d\d \d\d:\d\d:\d\d", "TIME", printed)
    printed = re.sub(r"\b\d+[hms](\d+[ms])?\b", "DURATION", printed)
    return re.sub(" +", " ", printed)


def told_story(fleet: Fleet, page: str) -> str:
    """The page with what its commands print now, a customer being refused."""
    fleet.push(STRICT.replace("2/hour", "20/hour"), "--who", "ana", "--why", "first rules")
    fleet.push(STRICT, "--who", "ana", "--why", "abuse from free accounts")
    fleet.start()
    first = fleet.instances[0]
    for _ in range(4):
        first.check({"user": "42"}, domain="api")
    for _ in range(3):
        first.check({"tenant": "acme", "path": "/export"}, domain="api")
    for command, printed in commands_of(page):
        words = [fleet.valkey.url if word == STORE else word for word in shlex.split(command)[1:]]
        where = () if fleet.valkey.url in words else ("--admin", first.admin)
        out = fleet.penstock(*words, *where)
        page = page.replace(f"$ {command}\n{printed}", f"$ {command}\n{out}")
        if words[:3] == ["admin", "log", "on"]:
            for _ in range(2):
                first.check({"user": "42"}, domain="api")
    return page


@pytest.mark.timeout(300)
def test_at_3_am(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of the page, in order: each prints what the page says."""
    monkeypatch.setenv("LOGNAME", "ana")
    page = PAGE.read_text()
    told = told_story(fleet, page)
    if os.environ.get("PENSTOCK_WRITE_PAGES"):
        PAGE.write_text(told)
        return
    assert alike(told) == alike(page)
    # What it says about mistakes and repetition.
    assert "did you mean 'user'" in fleet.admin(0, "who", "usr=42", code=1)
    assert "did you mean 'user'" in fleet.admin(0, "override", "set", "usr=42", "x2", code=1)
    assert "changed again" in fleet.admin(0, "undo", "11", code=1)
    assert "needs path" in fleet.admin(0, "who", "tenant=other")
    # What it does: nothing is limited, and the customer has more for an hour.
    fleet.everywhere(lambda each: each.told("/v1/switches")["mode"] == "off", "the kill switch")
    for each in fleet.instances:
        assert allowed(each, "somebody", 25) == 25
    fleet.admin(1, "switch", "all", "on")
    fleet.everywhere(lambda each: each.told("/v1/switches")["mode"] == "enforce", "and back")
    assert [allowed(each, "42", 12) for each in fleet.instances[1:]] == [10, 10]


@pytest.mark.timeout(300)
def test_a_store_that_lost_its_data(fleet: Fleet) -> None:
    """Rules stay in force, switches do not, and what is changed then is in force at once."""
    fleet.push(FIRST)
    fleet.push(SECOND)
    fleet.start(2)
    for user in range(5):
        fleet.admin(0, "override", "set", f"user={user}", "x3")
    with redis.Redis.from_url(fleet.valkey.url) as client:
        client.flushall()
    fleet.everywhere(lambda each: each.told("/v1/overrides")["overrides"] == [], "overrides gone")
    assert all(limit_of(each) == "5/hour" for each in fleet.instances)
    assert "user=1 is on the deny list" in fleet.admin(0, "deny", "add", "user=1")
    assert fleet.instances[0].check({"user": "1"}, domain="api").status == 429
    assert "in force in 2 instances" in fleet.push(FIRST, "--wait"), "set 1 again"
    assert all(limit_of(each) == "2/hour" for each in fleet.instances)
