"""What a person does with the page, click by click, in a real browser against a real service."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from page.browser import Tab, chromium
from running.e2e.running import Penstock, ask
from stores.redis_server import wait_until

RULES = """\
domain: api
descriptors:
  - key: user
    limits: 3/hour
  - key: plan
    value: gold
    descriptors:
      - key: user
        limits: [100/minute, 10/second]
  - key: remote_address
    limits: 60/minute
"""
HOSTILE = "<img src=x onerror=alert(1)>\u202eexe.gnp"
TOKEN, READ = "a-token-that-is-long-enough", "another-token-for-the-wallboard"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Penstock]:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    running = Penstock(file, "--workers", "2")
    try:
        yield running.wait()
    finally:
        running.end()


def spend(service: Penstock, user: str, times: int) -> list[int]:
    return [service.check({"user": user}).status for _ in range(times)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_overview_shows_who_is_refused_and_why(
    browser: Any, service: Penstock, scheme: str
) -> None:
    assert spend(service, "42", 6) == [200] * 3 + [429] * 3
    assert spend(service, HOSTILE, 5)[-1] == 429
    tab = Tab(browser, service.admin, color_scheme=scheme)
    tab.open()
    tab.see("api/user")
    tab.see("user=42")
    tab.page.locator("canvas").first.wait_for()
    assert "HTTP" not in tab.page.title()
    row = tab.page.locator("tr", has_text="api/user").first
    row.locator("text=%").first.wait_for()
    tab.picture(f"overview-{scheme}")
    tab.click("api/user", "link", exact=True)
    tab.see("3 an hour for each user")
    # A hostile key stays text, and what would turn it around is shown.
    tab.see("\\u202eexe.gnp")
    assert tab.page.locator("img[src=x]").count() == 0
    tab.picture(f"rule-{scheme}")
    tab.open("keys/user=42")
    tab.see("Refused by api/user.")
    tab.picture(f"key-{scheme}")
    tab.open("changes")
    tab.see("Nothing was changed since the service started")
    tab.open("test")
    tab.page.get_by_label("Descriptors").fill("user=42")
    tab.click("What would happen?")
    tab.see("Refused by api/user.")
    tab.picture(f"test-{scheme}")
    tab.close()


def test_a_newcomer_finds_the_rule_tries_a_limit_and_takes_it_back(
    browser: Any, service: Penstock
) -> None:
    """In less than twenty clicks, from the page alone."""
    assert spend(service, "42", 8)[-1] == 429
    tab = Tab(browser, service.admin)
    tab.expected_statuses.add(422)
    tab.open()
    tab.click("api/user", "link", exact=True)
    tab.click("Try another limit on the last hour", "link")
    tab.see("8 requests")
    editor = tab.page.get_by_role("textbox", name="Rules in")
    # A slip of the pen is named, with its line.
    editor.fill(RULES.replace("limits: 3/hour", "limts: 5/hour"))
    tab.see("did you mean")
    tab.picture("try-wrong")
    editor.fill(RULES.replace("3/hour", "5/hour"))
    tab.see("2 more pass")
    tab.see("5 → 3")
    tab.picture("try")
    tab.click("Put in force…")
    tab.page.get_by_label("Why").fill("a customer")
    tab.click("Put these rules in force")
    tab.see("Put these rules in force: done.")
    assert spend(service, "43", 6) == [200] * 5 + [429]
    tab.click("Changes", "link")
    tab.see("a customer")
    tab.picture("changes")
    tab.click("Undo")
    tab.see("was taken back")
    assert spend(service, "44", 4) == [200] * 3 + [429]
    assert tab.clicks < 20
    tab.close()


def test_a_key_is_raised_for_an_hour_and_back(browser: Any, service: Penstock) -> None:
    assert spend(service, "42", 4)[-1] == 429
    tab = Tab(browser, service.admin)
    tab.open()
    tab.page.get_by_role("searchbox", name="Search a key").fill("user=42")
    tab.page.keyboard.press("Enter")
    tab.see("Refused by api/user.")
    tab.click("Raise…")
    tab.page.get_by_label("Why").fill("they called")
    tab.page.get_by_role("dialog").get_by_role("button", name="Raise user=42").click()
    tab.see("done.")
    statuses = spend(service, "42", 7)
    assert (statuses[:3], statuses[-1]) == ([200] * 3, 429), "up to twice the limit"
    (override,) = json.loads(ask(service.admin, "/v1/overrides").body)["overrides"]
    assert 3000 < override["left"] <= 3600
    tab.click("Undo")
    tab.see("was taken back")
    assert json.loads(ask(service.admin, "/v1/overrides").body)["overrides"] == []
    tab.page.locator("article.refused").get_by_role("button", name="Reset").click()
    tab.see("This cannot be undone.")
    tab.click("Reset this key")
    tab.see("Not refused by any rule right now.")
    assert spend(service, "42", 1) == [200]
    tab.close()


def test_a_rule_is_put_in_shadow_and_enforced_again(browser: Any, service: Penstock) -> None:
    assert spend(service, "42", 4)[-1] == 429
    tab = Tab(browser, service.admin)
    tab.open("overview/api%2Fuser")
    tab.click("Shadow…")
    tab.page.get_by_label("Why").fill("is it too low?")
    tab.page.get_by_role("dialog").get_by_role("button", name="Shadow api/user").click()
    tab.see("◫ shadow")
    assert spend(service, "42", 1) == [200]
    tab.click("Enforce…")
    tab.page.get_by_role("dialog").get_by_role("button", name="Enforce api/user").click()
    wait_until(lambda: spend(service, "42", 1) == [429], "enforced", 60)
    tab.close()


def test_two_people_change_the_rules_and_one_is_told(browser: Any, service: Penstock) -> None:
    tab = Tab(browser, service.admin)
    tab.expected_statuses.add(409)
    tab.open("try")
    editor = tab.page.get_by_role("textbox", name="Rules in")
    editor.fill(RULES.replace("3/hour", "5/hour"))
    tab.page.get_by_role("button", name="Put in force…").click()
    files = json.loads(ask(service.admin, "/v1/rules/files").body)["files"]
    changed = {name: text.replace("3/hour", "7/hour") for name, text in files.items()}
    service.told("/v1/rules/files", "PUT", files=changed, expect=0, why="first")
    tab.page.get_by_label("Why").fill("second")
    tab.click("Put these rules in force")
    tab.see("somebody else")
    tab.close()
    assert spend(service, "42", 8) == [200] * 7 + [429]


def test_logging_in_and_a_token_that_may_only_read(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ops: {TOKEN}\nwallboard read: {READ}\n")
    service = Penstock(file, "--admin-token-file", str(tokens), "--admin-token-always")
    try:
        service.wait()
        tab = Tab(browser, service.admin)
        tab.expected_statuses |= {401}
        tab.open()
        tab.see("One of the tokens")
        tab.picture("login")
        tab.page.get_by_label("Token").fill("wrong-token-wrong-token")
        tab.click("Log in")
        tab.see("the token is invalid")
        tab.page.get_by_label("Token").fill(READ)
        tab.click("Log in")
        tab.see("read-only")
        tab.open("overview/api%2Fuser")
        tab.see("3 an hour for each user")
        assert tab.page.get_by_role("button", name="Shadow…").count() == 0
        assert tab.page.evaluate("document.cookie") == "", "scripts cannot read it"
        tab.click("Log out wallboard")
        tab.see("One of the tokens")
        tab.close()
    finally:
        service.end()


def test_it_says_so_when_the_service_does_not_answer_and_recovers(
    browser: Any, service: Penstock
) -> None:
    tab = Tab(browser, service.admin)
    tab.open()
    tab.see("api/user")
    os.kill(service.process.pid, signal.SIGSTOP)
    try:
        tab.see("Penstock does not answer.")
        tab.picture("disconnected")
    finally:
        os.kill(service.process.pid, signal.SIGCONT)
    tab.page.get_by_text("Penstock does not answer.").wait_for(state="hidden")
    spend(service, "42", 4)
    tab.see("user=42")
    tab.close()


@pytest.mark.parametrize("width", [360, 768])
def test_it_fits_a_phone(browser: Any, service: Penstock, width: int) -> None:
    spend(service, "42", 5)
    tab = Tab(browser, service.admin, viewport={"width": width, "height": 740})
    for view in ("overview", "overview/api%2Fuser", "keys/user=42", "try", "changes", "test"):
        tab.open(view)
        tab.page.locator("main section").first.wait_for()
        wide = tab.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, view
    tab.open("overview")
    tab.see("user=42")
    tab.picture(f"phone-{width}")
    tab.close()


def test_everything_can_be_reached_by_keyboard(browser: Any, service: Penstock) -> None:
    tab = Tab(browser, service.admin)
    tab.open()
    tab.see("api/user")
    names = set()
    for _ in range(40):
        tab.page.keyboard.press("Tab")
        names.add(tab.page.evaluate("document.activeElement.textContent.trim().slice(0, 20)"))
    assert {"Overview", "Keys", "Try", "Changes", "Test", "Switches", "api/user"} <= names
    unnamed = tab.page.evaluate(
        "[...document.querySelectorAll('button, a, input, select, textarea')].filter(e =>"
        " !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).length"
    )
    assert unnamed == 0
    tab.close()


def test_many_viewers_cost_one_gather(browser: Any, service: Penstock) -> None:
    """They all get the same second."""
    seconds: list[int] = []

    def look() -> None:
        seconds.append(json.loads(ask(service.admin, "/v1/overview").body)["second"])

    threads = [threading.Thread(target=look) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(seconds) - min(seconds) <= 60
    assert len(seconds) == 20
