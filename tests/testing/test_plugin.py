"""The pytest plugin, in runs of pytest of its own: each fixture, and a start that costs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

# Before a run inside of this process, which forgets all modules that it was the first to import.
import penstock.integrations.flask
import penstock.testing  # noqa: F401

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PLUGIN = "_penstock_pytest"

SHOP = """
from flask import Flask
from penstock import Limiter
from penstock.integrations.flask import Penstock

mails = Limiter("1/hour")
app = Flask("shop")
Penstock(app, "2/minute")


@app.get("/")
def home():
    return "hello"


@mails.limit(key="all")
def send():
    return "sent"
"""


@pytest.fixture
def shop(installed: pytest.Pytester) -> pytest.Pytester:
    installed.makepyfile(shop=SHOP)
    return installed


def run(shop: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    shop.makepyfile("import pytest\nfrom shop import app, mails, send\n" + source)
    return shop.runpytest_inprocess(*options)


CLOCK = """
def test_more_room_after_half_a_minute({clock}):
    client = app.test_client()
    statuses = [client.get("/").status_code for _ in range(3)]
    penstock_clock.advance(30)
    assert statuses + [client.get("/").status_code for _ in range(2)] == [200, 200, 429, 200, 429]

def test_waiting_takes_no_time({clock}):
    start = penstock_clock.now()
    mails.hit("k")
    assert mails.wait("k")
    assert penstock_clock.now() - start == 3600 * 10**9
"""


def test_the_clock_is_that_of_an_application_made_at_import(shop: pytest.Pytester) -> None:
    run(shop, CLOCK.format(clock="penstock_clock")).assert_outcomes(passed=2)


def test_without_the_clock_these_fail(shop: pytest.Pytester) -> None:
    clock = "\nfrom penstock.testing import FakeClock\npenstock_clock = FakeClock()\n"
    # Not the one that would wait for an hour.
    result = run(shop, clock + CLOCK.format(clock=""), "-k", "more_room")
    result.assert_outcomes(failed=1, deselected=1)


OFF = """
{mark}
def test_nothing_is_limited({argument}):
    client = app.test_client()
    assert [client.get("/").status_code for _ in range(5)] == [200] * 5
    assert [send() for _ in range(5)] == ["sent"] * 5
    assert all(mails.hit("k") for _ in range(5))
"""


@pytest.mark.parametrize(
    ("mark", "argument"),
    [("", "limits_off"), ("@pytest.mark.usefixtures('limits_off')", "")],
)
def test_limits_are_off(shop: pytest.Pytester, mark: str, argument: str) -> None:
    after = """
def test_they_are_on_again():
    client = app.test_client()
    assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]
    assert [bool(mails.hit("k")) for _ in range(2)] == [True, False]
"""
    result = run(shop, OFF.format(mark=mark, argument=argument) + after)
    result.assert_outcomes(passed=2)


def test_without_limits_off_this_fails(shop: pytest.Pytester) -> None:
    run(shop, OFF.format(mark="", argument="")).assert_outcomes(failed=1)


FRESH = """
@pytest.mark.parametrize("turn", [1, 2])
def test_the_first_requests_pass(turn{argument}):
    client = app.test_client()
    assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]
    assert [bool(mails.hit("k")) for _ in range(2)] == [True, False]
"""


def test_each_test_begins_afresh(shop: pytest.Pytester) -> None:
    run(shop, FRESH.format(argument=", fresh_limits")).assert_outcomes(passed=2)


def test_without_fresh_limits_the_second_fails(shop: pytest.Pytester) -> None:
    run(shop, FRESH.format(argument="")).assert_outcomes(passed=1, failed=1)


def test_fresh_limits_for_all_tests_is_one_line_of_the_settings(shop: pytest.Pytester) -> None:
    result = run(shop, FRESH.format(argument=""), "-o", "usefixtures=fresh_limits")
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize("arguments", [("fresh_limits", ""), ("", "fresh_limits")])
def test_fresh_limits_before_and_after_a_test(
    shop: pytest.Pytester, arguments: tuple[str, str]
) -> None:
    source = """
def test_one({}):
    assert mails.hit("k")

def test_two({}):
    assert mails.hit("k")
"""
    run(shop, source.format(*arguments)).assert_outcomes(passed=2)
    run(shop, source.format("", "")).assert_outcomes(passed=1, failed=1)


def test_the_fixtures_are_listed_with_a_line_each(shop: pytest.Pytester) -> None:
    result = run(shop, "", "--fixtures")
    for name in ("penstock_clock", "limits_off", "fresh_limits"):
        result.stdout.re_match_lines([rf"{name} -- .*{PLUGIN}.py:\d+$", r"    \w.*\.$"])


# How pytest finds it --------------------------------------------------------------------------


def test_it_is_found_and_imports_nothing_of_penstock(installed: pytest.Pytester) -> None:
    # The files of the package, in whose modules pytest then rewrites assertions.
    files = [path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*.py")]
    record = installed.path / "site/penstock-0.dist-info/RECORD"
    record.write_text("".join(f"{file},,\n" for file in files))
    installed.makepyfile("""
        import sys

        def test_first():
            assert "_penstock_pytest" in sys.modules
            assert not [name for name in sys.modules if name.split(".")[0] == "penstock"]

        def test_second(penstock_clock):
            assert "penstock" in sys.modules
    """)
    installed.runpytest_subprocess().assert_outcomes(passed=2)


def test_it_can_be_left_out(installed: pytest.Pytester) -> None:
    installed.makepyfile("def test_it(limits_off): pass")
    result = installed.runpytest_subprocess("-p", "no:penstock")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'limits_off' not found*"])


def test_it_can_be_loaded_by_name(
    installed: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    installed.makeini("[pytest]\nfilterwarnings = error")
    installed.makepyfile("def test_it(limits_off): pass")
    installed.runpytest_subprocess().assert_outcomes(errors=1)
    installed.runpytest_subprocess("-p", "penstock").assert_outcomes(passed=1)


def test_it_works_in_the_processes_of_xdist(shop: pytest.Pytester) -> None:
    shop.makepyfile(
        "import pytest\nfrom shop import app, mails, send\n"
        + FRESH.format(argument=", fresh_limits")
    )
    shop.runpytest_subprocess("-n", "2").assert_outcomes(passed=2)
