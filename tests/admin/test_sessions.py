"""Sessions of browsers, and tokens that may only read."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
import pytest

from admin.conftest import TOKEN, Site, Start
from penstock.admin.endpoints import ENDPOINTS
from penstock.admin.sessions import COOKIE, LASTS, MOST, Sessions, cookie_of
from penstock.admin.tokens import Token
from penstock.testing import FakeClock

READ = TOKEN + "-read"
TOKENS = {"ops": TOKEN, "wallboard read": READ}


def cookie_in(response: httpx.Response) -> str:
    return response.headers["set-cookie"].partition(";")[0]


async def logged_in(site: Site, token: str = TOKEN) -> dict[str, str]:
    """The header that a browser sends from then on."""
    response = await site.ask("POST", "/v1/session", {"token": token})
    assert response.status_code == 200, response.text
    return {"Cookie": cookie_in(response)}


async def who(site: Site, headers: Mapping[str, str]) -> tuple[int, object]:
    response = await site.ask("GET", "/v1/session", headers=dict(headers))
    return response.status_code, response.json()


async def test_a_browser_logs_in_and_out(start: Start) -> None:
    site = await start(tokens=TOKENS, always=True)
    assert (await who(site, {}))[0] == 401
    headers = await logged_in(site)
    assert await who(site, headers) == (200, {"name": "ops", "role": "admin", "left": LASTS})
    done = await site.ask("PUT", "/v1/mode", {"mode": "off"}, headers=headers)
    assert done.status_code == 200
    assert site.audited()[-1]["who"] == "ops"
    gone = await site.ask("DELETE", "/v1/session", headers=headers)
    assert "Max-Age=0" in gone.headers["set-cookie"]
    assert (await who(site, headers))[0] == 401


async def test_the_cookie_cannot_be_read_or_sent_by_others(start: Start) -> None:
    site = await start(tokens=TOKENS)
    response = await site.ask("POST", "/v1/session", {"token": TOKEN})
    assert response.headers["set-cookie"].endswith("; HttpOnly; SameSite=Strict")
    assert TOKEN not in response.text + str(response.headers)
    site.api._tls = True
    response = await site.ask("POST", "/v1/session", {"token": TOKEN})
    assert response.headers["set-cookie"].endswith("; Secure")


async def test_a_session_ends_after_eight_hours(start: Start) -> None:
    site = await start(tokens=TOKENS, always=True)
    headers = await logged_in(site)
    site.clock.advance(LASTS - 1)
    assert (await who(site, headers))[0] == 200
    site.clock.advance(1)
    assert (await who(site, headers))[0] == 401


@pytest.mark.parametrize(
    "cookie",
    ["", "x", f"{COOKIE}=", f"{COOKIE}=x", f"{COOKIE}=" + "a" * 43,
     f"{COOKIE}={TOKEN}", "other=" + "a" * 43],
)  # fmt: skip
async def test_forged_sessions_are_none(start: Start, cookie: str) -> None:
    site = await start(tokens=TOKENS, always=True)
    await logged_in(site)
    assert (await who(site, {"Cookie": cookie}))[0] == 401


async def test_a_planted_second_cookie_is_ambiguous(start: Start) -> None:
    site = await start(tokens=TOKENS, always=True)
    mine, planted = await logged_in(site, READ), await logged_in(site)
    both = {"Cookie": f"{mine['Cookie']}; {planted['Cookie']}"}
    assert (await who(site, both))[0] == 401


@pytest.mark.parametrize(
    ("header", "value"),
    [("Origin", "https://evil.example"), ("Origin", "null"), ("Sec-Fetch-Site", "cross-site"),
     ("Sec-Fetch-Site", "same-site"), ("Content-Type", "text/plain"),
     ("Content-Type", "application/x-www-form-urlencoded")],
)  # fmt: skip
async def test_another_site_cannot_use_a_session(start: Start, header: str, value: str) -> None:
    site = await start(tokens=TOKENS, always=True)
    headers = await logged_in(site)
    response = await site.ask(
        "PUT", "/v1/mode", {"mode": "off"}, headers={**headers, header: value}
    )
    assert response.status_code in (403, 415)
    assert site.gate.switches.calm


async def test_guessing_tokens_by_logging_in_locks_out(start: Start) -> None:
    site = await start(tokens=TOKENS, always=True)
    statuses = [
        (await site.ask("POST", "/v1/session", {"token": f"{n}" * 20})).status_code
        for n in range(9)
    ]
    assert set(statuses) == {401}
    assert (await site.ask("POST", "/v1/session", {"token": "x" * 20})).status_code == 429
    assert (await site.ask("POST", "/v1/session", {"token": TOKEN})).status_code == 429


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"token": 5}', b'{"token": ""}', b"\xff"])
async def test_what_is_no_token(start: Start, body: bytes) -> None:
    site = await start(tokens=TOKENS)
    response = await site.ask("POST", "/v1/session", body)
    assert response.status_code == 400


async def test_without_tokens_nobody_can_log_in(start: Start) -> None:
    site = await start()
    assert (await site.ask("POST", "/v1/session", {"token": TOKEN})).status_code == 401


@pytest.mark.parametrize("by_cookie", [False, True])
async def test_a_token_that_may_read_changes_nothing(start: Start, by_cookie: bool) -> None:
    site = await start(tokens=TOKENS, always=True)
    headers = await logged_in(site, READ) if by_cookie else {"Authorization": f"Bearer {READ}"}
    assert (await who(site, headers))[1] in (
        {"name": "wallboard", "role": "read", "left": LASTS},
        {"name": "wallboard", "role": "read", "left": None},
    )
    changes = [each for each in ENDPOINTS if each.action is not None]
    assert len(changes) > 10
    for each in changes:
        response = await site.ask(each.method, each.path, {}, headers=headers)
        assert response.status_code == 403, each
        assert "may read, but change nothing" in response.json()["error"]
    assert site.gate.switches.calm
    assert {line["who"] for line in site.audited()} == {"wallboard"}
    assert (await site.ask("GET", "/v1/rules", headers=headers)).status_code == 200


def test_sessions_are_bounded_and_only_digests_are_kept() -> None:
    sessions = Sessions(FakeClock())
    token = Token("ops", "12345678")
    ids = [sessions.begin(token) for _ in range(MOST + 1)]
    assert len(set(ids)) == MOST + 1
    assert sessions.find(ids[0]) is None, "the oldest gave way"
    assert sessions.find(ids[1]) is not None
    assert ids[1] not in repr(vars(sessions))


@pytest.mark.parametrize(
    ("header", "wanted"),
    [(None, None), ("", None), (f"{COOKIE}=abc", "abc"), (f"a=b; {COOKIE}=abc ;c=d", "abc"),
     (f"a=b, {COOKIE}=abc", "abc"), (f"{COOKIE}=a; {COOKIE}=b", None), (f"x{COOKIE}=a", None)],
)  # fmt: skip
def test_the_cookie_in_a_header(header: str | None, wanted: str | None) -> None:
    assert cookie_of(header) == wanted
