"""What an answer says: tables of headers."""

from __future__ import annotations

from email.utils import formatdate

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.fields import LONGEST, ServerHints, Standing, read, read_date, read_delay

NOW = 1_767_225_600.0  # 2026-01-01 00:00:00
HTTP_NOW = "Thu, 01 Jan 2026 00:00:00 GMT"


def hints(**fields: str) -> ServerHints:
    return read(httpx.Headers({name.replace("_", "-"): text for name, text in fields.items()}), NOW)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 120 ", 120.0),
        ("1.5", 1.5),
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30.0),
        ("Thursday, 01-Jan-26 00:00:30 GMT", 30.0),
        ("Thu Jan  1 00:00:30 2026", 30.0),
        ("Wed, 31 Dec 2025 23:59:59 GMT", 0.0),
        ("999999999999", LONGEST),
        ("Fri, 01 Jan 2100 00:00:00 GMT", LONGEST),
        ("", None),
        ("-1", None),
        ("+1", None),
        ("1e3", None),
        ("0x10", None),
        ("1 2", None),
        ("soon", None),
        ("٣", None),
        ("nan", None),
        ("inf", None),
        ("1" * 400, None),
        ("Thu, 01 Jan 2026 00:00:30 CET", None),
        ("Thu, 41 Jan 2026 00:00:30 GMT", None),
        ("Thu, 01 Foo 2026 00:00:30 GMT", None),
        ("Thu, 01 Jan 2026 25:61:30 GMT", None),
        ("2026-01-01T00:00:30Z", None),
        (None, None),
    ],
)
def test_retry_after(text: str | None, seconds: float | None) -> None:
    assert read_delay(text, NOW) == seconds


@pytest.mark.parametrize("skew", [-86_400, -3, 0, 7, 86_400 * 400])
def test_a_date_is_compared_with_the_answers_own_date(skew: int) -> None:
    server = NOW + skew
    headers = {"Date": formatdate(server, usegmt=True)}
    headers["Retry-After"] = formatdate(server + 30, usegmt=True)
    headers["X-RateLimit-Remaining"] = "0"
    headers["X-RateLimit-Reset"] = str(round(server + 20))
    hints = read(httpx.Headers(headers), NOW)
    assert hints == ServerHints(30.0, (Standing("x-ratelimit", 0, 20.0),))


def test_without_a_date_our_clock_is_what_there_is() -> None:
    assert hints(retry_after="Thu, 01 Jan 2026 00:00:10 GMT").retry_after == 10.0
    assert hints(retry_after="Thu, 01 Jan 2026 00:00:10 GMT", date="today").retry_after == 10.0


@pytest.mark.parametrize(
    ("policy", "limit", "standings"),
    [
        ('"default";q=100;w=60', '"default";r=50;t=30',
         [Standing("default", 50, 30.0, 100, 60.0)]),
        (None, '"default";r=50;t=30', [Standing("default", 50, 30.0)]),
        ('"default";q=100', '"default";r=50', [Standing("default", 50, None, 100)]),
        ('"burst";q=10;w=1, "day";q=1000;w=86400', '"burst";r=9;t=1, "day";r=3;t=4000',
         [Standing("burst", 9, 1.0, 10, 1.0), Standing("day", 3, 4000.0, 1000, 86_400.0)]),
        ('"day";q=1000;w=86400', '"burst";r=9;t=1', [Standing("burst", 9, 1.0)]),
        ("default;q=100;w=60", "default;r=50;t=30", [Standing("default", 50, 30.0, 100, 60.0)]),
        ('"a";q=5;w=1;pk=:YQ==:', '"a";r=1;t=1;pk=:YQ==:',
         [Standing("a;pk=b'a'", 1, 1.0, 5, 1.0)]),
        ('"a";q=5;w=1;qu="content-bytes"', '"a";r=1;t=1', []),
        ('"a";q=5;w=1;qu="requests"', '"a";r=1;t=1', [Standing("a", 1, 1.0, 5, 1.0)]),
        ('"a";q=0;w=0', '"a";r=0;t=0', [Standing("a", 0, 0.0)]),
        ('"a";q=-5;w=-1', '"a";r=1;t=-1', [Standing("a", 1)]),
        ('"a";q="5";w=?1', '"a";r=1;t=token', [Standing("a", 1)]),
        ("rubbish;;", '"a";r=1', [Standing("a", 1)]),
        (None, '"a";r=-1', []),
        (None, '"a";r=1.5', []),
        (None, '"a";r', []),
        (None, '"a"', []),
        (None, "17;r=1", []),
        (None, '("a");r=1', []),
        (None, '"a";r=1, ,', []),
        (None, '"a";r=1;t=99999999999', [Standing("a", 1, LONGEST)]),
    ],
)  # fmt: skip
def test_the_ietf_fields(policy: str | None, limit: str, standings: list[Standing]) -> None:
    fields = {"ratelimit": limit} | ({"ratelimit_policy": policy} if policy else {})
    assert list(hints(**fields).standings) == standings


@pytest.mark.parametrize(
    ("fields", "standing"),
    [
        ({"ratelimit_limit": "100", "ratelimit_remaining": "9", "ratelimit_reset": "7"},
         Standing("ratelimit", 9, 7.0, 100)),
        ({"ratelimit_limit": "100, 10;w=1, 100;w=60", "ratelimit_remaining": "9"},
         Standing("ratelimit", 9, None, 100, 60.0)),
        ({"x_ratelimit_remaining": "9"}, Standing("x-ratelimit", 9)),
        ({"x_ratelimit_limit": "60", "x_ratelimit_remaining": "9", "x_ratelimit_reset": "12"},
         Standing("x-ratelimit", 9, 12.0, 60)),
        ({"x_ratelimit_remaining": "9", "x_ratelimit_reset": "1767225612"},
         Standing("x-ratelimit", 9, 12.0)),
        ({"x_ratelimit_remaining": "9", "x_ratelimit_reset": "1767225612.5"},
         Standing("x-ratelimit", 9, 12.5)),
        ({"x_ratelimit_remaining": "9", "x_ratelimit_reset": "1767225612500"},
         Standing("x-ratelimit", 9, 12.5)),
        ({"x_ratelimit_remaining": "9", "x_ratelimit_reset": "1700000000"},
         Standing("x-ratelimit", 9, 0.0)),
        ({"x_ratelimit_remaining": "9", "x_ratelimit_reset": "999999999"},
         Standing("x-ratelimit", 9, LONGEST)),
        ({"x_ratelimit_remaining": "9", "x_ratelimit_reset": "tomorrow"},
         Standing("x-ratelimit", 9)),
        ({"x_ratelimit_remaining": "9", "x_ratelimit_limit": "lots"}, Standing("x-ratelimit", 9)),
        ({"x_ratelimit_remaining": "-1"}, None),
        ({"x_ratelimit_remaining": "many"}, None),
        ({"x_ratelimit_limit": "60", "x_ratelimit_reset": "12"}, None),
        ({"ratelimit": '"new";r=1;t=1', "x_ratelimit_remaining": "9"}, Standing("new", 1, 1.0)),
        ({"ratelimit_remaining": "5", "x_ratelimit_remaining": "9"}, Standing("ratelimit", 5)),
        ({"ratelimit": "rubbish rubbish", "x_ratelimit_remaining": "9"},
         Standing("x-ratelimit", 9)),
    ],
)  # fmt: skip
def test_the_older_fields(fields: dict[str, str], standing: Standing | None) -> None:
    assert hints(**fields).standings == (() if standing is None else (standing,))


def test_no_answer_has_more_policies_than_we_keep() -> None:
    many = ", ".join(f'"p{number}";r=1' for number in range(100))
    assert len(hints(ratelimit=many).standings) == 16


def test_dates_round_trip() -> None:
    assert read_date(HTTP_NOW) == NOW


@given(
    st.dictionaries(
        st.sampled_from(
            ["date", "retry-after", "ratelimit", "ratelimit-policy", "ratelimit-limit",
             "x-ratelimit-remaining", "x-ratelimit-reset", "x-ratelimit-limit"]
        ),
        st.text(max_size=40) | st.from_regex(r'"[a-z]*";[rtqw]=-?[0-9.]{0,20}'),
    )
)  # fmt: skip
def test_no_headers_make_it_fail(headers: dict[str, str]) -> None:
    class Plain(dict[str, str]):
        pass

    hints = read(Plain(headers), NOW)
    assert hints.retry_after is None or 0 <= hints.retry_after <= LONGEST
    for standing in hints.standings:
        assert standing.remaining >= 0
        assert standing.reset is None or 0 <= standing.reset <= LONGEST
        assert standing.quota is None or standing.quota > 0
