"""Logs: one line an event, no secrets, nobody else's loggers."""

from __future__ import annotations

import io
import json
import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.admin import log_level
from penstock.gate import Gate
from penstock.metrics.labels import Hashed
from penstock.running import access_log, logs
from penstock.running.access_log import AccessLog
from penstock.running.logs import LineFormatter, setup
from penstock.running.masks import Masks
from penstock.stores.memory import MemoryStore
from penstock.testing import FakeClock

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    logger = logging.getLogger("penstock")
    before = logger.level, logger.propagate, list(logger.handlers)
    yield
    logger.setLevel(before[0])
    logger.propagate, logger.handlers = before[1], before[2]


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def one_line(form: str, message: str, *args: Any, **more: Any) -> str:
    out = io.StringIO()
    log_setup = setup("debug", form, stream=out)
    logging.getLogger("penstock.test").info(message, *args, **more)
    log_setup.close()
    return out.getvalue()


def record(message: Any, *args: Any, fields: Any = None) -> logging.LogRecord:
    record = logging.LogRecord("penstock.test", logging.INFO, "", 1, message, args, None)
    if fields is not None:
        record.fields = fields
    return record


# The line ----------------------------------------------------------------------------------


def test_a_line_of_json() -> None:
    entry = json.loads(one_line("json", "loaded %d", 3, extra={"fields": {"rules": 3, "ok": True}}))
    assert TIME.fullmatch(entry.pop("time"))
    assert isinstance(entry.pop("pid"), int)
    assert entry == {
        "level": "info", "logger": "penstock.test", "event": "loaded 3", "rules": 3, "ok": True,
    }  # fmt: skip


def test_a_line_of_text() -> None:
    line = one_line("text", "loaded", extra={"fields": {"from": "a b", "n": 1, "list": [1]}})
    when, rest = line.split(" ", 1)
    assert TIME.fullmatch(when)
    assert rest == 'info penstock.test loaded from="a b" n=1 list="[1]"\n'


def test_times_are_utc_with_microseconds() -> None:
    assert logs.format_time(1_704_067_200.25) == "2024-01-01T00:00:00.250000Z"


@pytest.mark.parametrize("form", logs.FORMS)
def test_an_exception_is_a_part_of_its_line(form: str) -> None:
    out = io.StringIO()
    log_setup = setup("info", form, stream=out)
    try:
        raise ValueError("first\nsecond redis://:hunter2@db/0")
    except ValueError:
        logging.getLogger("penstock").exception("it failed")
    log_setup.close()
    assert out.getvalue().count("\n") == 1
    assert "Traceback" in out.getvalue()
    assert "hunter2" not in out.getvalue()


HOSTILE = [
    "a\nb", "a\r\nb", "\x1b[31mred", "\x00", "\x7f", "\x85next", "\u2028line", "\u2029par",
    "\u202eevil", "\u2066x", "\x9b31m", "\ud800", "\x0b\x0c", "\ufeff",
]  # fmt: skip


@pytest.mark.parametrize("form", logs.FORMS)
@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_was_sent_makes_a_line_or_moves_a_cursor(form: str, text: str) -> None:
    line = one_line(form, "got %s", text, extra={"fields": {"path": text, text: [text]}})
    body = line.removesuffix("\n")
    assert body.isprintable()
    assert len(body.splitlines()) == 1


@given(st.text(), st.text(), st.sampled_from(logs.FORMS))
@example("%s %d", "\n", "text")
def test_any_text_is_one_printable_line(message: str, value: str, form: str) -> None:
    line = LineFormatter(form, Masks()).format(record("%s", message, fields={"x": value}))
    assert len(line.splitlines()) == 1
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\ud800-\udfff]", line)
    if form == "json":
        entry = json.loads(line)
        assert entry["event"] == Masks().text(message)


def test_what_cannot_be_written_breaks_nothing() -> None:
    class Bad:
        def __str__(self) -> str:
            raise RuntimeError("no")

    form = LineFormatter("json", Masks())
    assert "could not be written: TypeError" in form.format(record("%d of %d", "x", "y"))
    assert "could not be written: RuntimeError" in form.format(record("%s", Bad()))
    assert "could not be written" in form.format(record("x", fields={"bad": Bad()}))
    assert json.loads(form.format(record("x", fields={"n": float("nan"), "big": 10**5000})))
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert json.loads(form.format(record("x", fields={"deep": deep})))


def test_fields_do_not_stand_in_for_what_the_line_says_itself() -> None:
    entry = json.loads(
        LineFormatter("json", Masks()).format(record("x", fields={"level": "no", "event": "no"}))
    )
    assert (entry["level"], entry["event"], entry["level_"]) == ("info", "x", "no")


def test_a_long_event_is_cut() -> None:
    line = LineFormatter("json", Masks()).format(record("x" * 1_000_000))
    assert len(line) < 10_000
    assert "(1000000 characters)" in line


def test_a_stream_that_is_gone_is_counted_and_says_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = io.StringIO()
    log_setup = setup("info", stream=out)
    out.close()
    logging.getLogger("penstock").info("secret")
    assert log_setup.lost == 1
    log_setup.close()
    assert capsys.readouterr().err == ""


# Secrets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis://user:hunter2@db:6379/0", "redis://user:***@db:6379/0"),
        ("redis://:hunter2@db", "redis://:***@db"),
        ("to rediss://u:hunter2@x@db/0 now", "to rediss://u:***@db/0 now"),
        ("redis://u:hunter2/@db", "redis://u:***@db"),
        ("redis+sentinel://u:hunter2@a:1,b:2/main", "redis+sentinel://u:***@a:1,b:2/main"),
        # Headers.
        ("Authorization: Bearer hunter2hunter2", "Authorization: ***"),
        ("authorization: Token hunter2 and more", "authorization: *** and more"),
        ("they sent authorization: Digest hunter2", "they sent authorization: ***"),
        ('{"Authorization": "Basic aHVudGVyMg=="}', '{"Authorization": ***}'),
        ("X-Api-Key: hunter2", "X-Api-Key: ***"),
        ("got bearer hunter2hunter2==", "got bearer ***"),
        ("basic aHVudGVyMg==", "basic ***"),
        # key=value and key: value.
        ("password=hunter2", "password=***"),
        ("wrong password=hunter2 given", "wrong password=*** given"),
        ("PASSWORD = 'hunter2 and more'", "PASSWORD = ***"),
        ("the password: hunter2 was wrong", "the password: *** was wrong"),
        ("token: correcthorsehunter2 battery", "token: *** battery"),
        ("client_secret: hunter2, rest", "client_secret: ***, rest"),
        ("its client_secret: correct horse", "its client_secret: *** horse"),
        ("the secret: xyzzy", "the secret: ***"),
        ("secret:hunter2", "secret:***"),
        # In URLs.
        ("https://h/?api_key=hunter2&x=1", "https://h/?api_key=***&x=1"),
        ("https://h/?access_token=hunter2#top", "https://h/?access_token=***"),
        # JSON, also cut, escaped, and Python's own.
        ('{"admin_token": "hunter2"}', '{"admin_token": ***}'),
        ('{"token":"hun\\"ter hunter2"}', '{"token":***}'),
        ('{"token": "hunter2 and no e', '{"token": ***'),
        ('"{\\"token\\": \\"hunter2\\"}"', '"{\\"token\\": ***}"'),
        ("{b'password': b'hunter2', 'n': 1}", "{b'password': ***, 'n': 1}"),
        ('{"secret": 1234}', '{"secret": ***'),
        # Left alone.
        ("http://localhost:8080/v1/check", "http://localhost:8080/v1/check"),
        ("the token is not right", "the token is not right"),
        ("it has no token: give it one", "it has no token: give it one"),
        ("there is no such secret: see the docs", "there is no such secret: see the docs"),
        ("a wrong password: try again", "a wrong password: try again"),
        ("without authorization: ask for it first", "without authorization: ask for it first"),
        ("user@example.com", "user@example.com"),
        ("a bearer of news", "a bearer of news"),
        ("tokens: 3 of 5 left", "tokens: 3 of 5 left"),
        ("max_tokens=4096", "max_tokens=4096"),
        ("algorithm token_bucket: 10/minute", "algorithm token_bucket: 10/minute"),
        (
            "the admin API on 0.0.0.0 can be reached from other machines and has no token: give it"
            " one (--admin-token-file)",
            "the admin API on 0.0.0.0 can be reached from other machines and has no token: give it"
            " one (--admin-token-file)",
        ),
    ],
)
def test_secrets_are_masked_and_prose_is_not(text: str, expected: str) -> None:
    masked = Masks().text(text)
    assert "hunter2" not in masked
    assert masked == expected


def test_fields_named_like_secrets_are_masked_at_any_depth() -> None:
    masked = Masks().value({"a": [{"Password": "x", "TOKEN": 5, "url": "redis://:p@h"}], "n": 1})
    assert masked == {"a": [{"Password": "***", "TOKEN": "***", "url": "redis://:***@h"}], "n": 1}
    assert Masks().value({"token_bucket": 5, "tokens": 3}) == {"token_bucket": 5, "tokens": 3}


def test_known_secrets_are_masked_wherever_they_stand() -> None:
    out = io.StringIO()
    log_setup = setup("info", "json", stream=out, secrets=["correct horse"])
    log_setup.hide("battery staple")
    logging.getLogger("penstock").info("xcorrect horsex", extra={"fields": {"battery staple": 1}})
    logging.getLogger("penstock").info("%s", {"k": "battery staple"})
    log_setup.close()
    assert "correct horse" not in out.getvalue()
    assert "'battery staple'" not in out.getvalue()


@pytest.mark.parametrize(
    "text", ["a://b:" * 20_000, "a-" * 60_000, "@" + "://a:" * 20_000, "token" * 20_000,
             "password" + " " * 100_000, "x" * 100_000 + "@", "bearer " * 15_000]
)  # fmt: skip
def test_masking_takes_no_longer_than_the_text(text: str) -> None:
    start = time.thread_time()
    Masks(["secret"]).text(text)
    assert time.thread_time() - start < 5  # a quadratic one would take a minute


# Setting up --------------------------------------------------------------------------------


def test_no_logger_but_ours_is_touched() -> None:
    others = [logging.getLogger(), logging.getLogger("redis"), logging.getLogger("asyncio")]
    before = [(each.level, list(each.handlers), each.propagate, each.disabled) for each in others]
    ours = logging.getLogger("penstock")
    was = ours.level, ours.propagate, list(ours.handlers)
    log_setup = setup("debug", "json", stream=io.StringIO())
    setup("info", "text", stream=io.StringIO())
    after = [(each.level, list(each.handlers), each.propagate, each.disabled) for each in others]
    assert after == before
    log_setup.close()  # of the first, which the second replaced: nothing happens
    assert len(ours.handlers) == len(was[2]) + 1
    setup("info", stream=io.StringIO()).close()
    assert (ours.level, ours.propagate, list(ours.handlers)) == was


def test_a_line_is_written_once_and_not_by_the_root(caplog: pytest.LogCaptureFixture) -> None:
    out = io.StringIO()
    setup("info", "json", stream=io.StringIO())
    log_setup = setup("info", "json", stream=out)
    logging.getLogger("penstock.x").info("hello")
    log_setup.close()
    assert [line["event"] for line in lines(out)] == ["hello"]
    assert caplog.text == ""


def test_the_level_can_be_changed_while_it_runs() -> None:
    out = io.StringIO()
    log_setup = setup("warning", "json", stream=out)
    logger = logging.getLogger("penstock.deep.down")
    for level in ("warning", "debug", "error"):
        log_level.set_level(level)
        assert log_level.get_level() == level
        for word in log_level.LEVELS:
            getattr(logger, word)("%s", word)
    log_setup.close()
    assert [line["event"] for line in lines(out)] == [
        "warning", "error", "debug", "info", "warning", "error", "error",
    ]  # fmt: skip


@pytest.mark.parametrize("level", ["loud", "INFO", "", None, 10])
def test_bad_levels_are_errors(level: Any) -> None:
    with pytest.raises(ValueError, match="a log level must be one of debug, info, warning, error"):
        log_level.set_level(level)
    with pytest.raises(ValueError, match="a log level"):
        setup(level, stream=io.StringIO())


def test_bad_forms_are_errors_and_change_nothing() -> None:
    handlers = list(logging.getLogger("penstock").handlers)
    with pytest.raises(ValueError, match="a log is text or json, not 'xml'"):
        setup("info", "xml")
    assert logging.getLogger("penstock").handlers == handlers


def test_keys_are_hashed_if_so_asked() -> None:
    out = io.StringIO()
    log_setup = setup("info", "json", stream=out, hashed=Hashed("salt"))
    for key in ("jane smith", "jane smith", "joe smith"):
        logging.getLogger("penstock").info("lost", extra={"fields": {"key": key}})
    log_setup.close()
    first, second, third = [line["key"] for line in lines(out)]
    assert first == second != third
    assert "smith" not in out.getvalue()
    assert first == Hashed("salt").value("jane smith") != Hashed("pepper").value("jane smith")


# The access log ----------------------------------------------------------------------------


def decide(log: AccessLog, times: int = 4) -> list[dict[str, Any]]:
    out = io.StringIO()
    log_setup = setup("info", "json", stream=out)
    rules = {"domain": "api", "descriptors": [{"key": "user", "limits": "2/hour"}]}
    gate = Gate.from_rules(rules, MemoryStore(clock=FakeClock()))
    for _ in range(times):
        log.decided("api", gate.check({"user": "jane"}), 0.0000123)
    log_setup.close()
    return lines(out)


@pytest.mark.parametrize(
    ("which", "events"),
    [
        ("off", []),
        ("refused", ["refused", "refused"]),
        ("all", ["allowed", "allowed", "refused", "refused"]),
    ],
)
def test_which_decisions_are_written(which: str, events: list[str]) -> None:
    assert [line["event"] for line in decide(AccessLog(which))] == events


def test_it_is_off_by_default() -> None:
    assert decide(AccessLog()) == []


def test_what_a_line_tells() -> None:
    (line,) = decide(AccessLog("refused"), 3)
    for name in ("time", "pid", "retry_after"):
        line.pop(name)
    assert line == {
        "level": "info", "logger": "penstock.access", "event": "refused", "domain": "api",
        "keys": ["user=jane"], "rule": "api/user", "limit": "2/hour", "remaining": 0,
        "reason": "limit", "ms": 0.012,
    }  # fmt: skip


def test_keys_of_decisions_are_hashed_as_in_metrics() -> None:
    hashed = Hashed("salt")
    (line,) = decide(AccessLog("refused", format_key=hashed), 3)
    assert line["keys"] == [hashed([("user", "jane")])]
    assert "jane" not in json.dumps(line)


def test_a_sample_is_that_part_of_them() -> None:
    chances = iter([0.0, 0.24, 0.25, 0.9])
    log = AccessLog("all", 0.25, chance=lambda: next(chances))
    assert [line["event"] for line in decide(log)] == ["allowed", "allowed"]


def test_many_descriptors_are_left_out() -> None:
    rules = {"domain": "api", "descriptors": [{"key": "user", "limits": "2/hour"}]}
    gate = Gate.from_rules(rules)
    verdict = gate.check(*[{"user": str(n)} for n in range(50)])
    out = io.StringIO()
    log_setup = setup("info", "json", stream=out)
    AccessLog("all").decided("api", verdict, 0.0)
    log_setup.close()
    (line,) = lines(out)
    assert (len(line["keys"]), line["keys_left_out"]) == (access_log.MOST_KEYS, 40)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("some",), "an access log is one of off, refused, all"),
        (("all", 0), "sample is a number above 0"),
        (("all", 1.5), "sample is"),
        (("all", True), "sample is"),
        (("all", float("nan")), "sample is"),
    ],
)
def test_bad_options_of_the_access_log(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AccessLog(*arguments)
