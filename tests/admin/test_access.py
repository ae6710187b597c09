"""Who gets in: acceptance 8, over real sockets."""

from __future__ import annotations

import asyncio
import hmac
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from admin.conftest import TOKEN, Start
from penstock.admin import tokens as tokens_module
from penstock.admin.access import Access, Denied, is_local, is_loopback
from penstock.admin.endpoints import ENDPOINTS
from penstock.admin.tokens import Token, TokenError, Tokens
from penstock.limiter import Limiter
from penstock.running import admin_server as server_module
from penstock.running.admin_server import AdminError, AdminServer, reachable
from penstock.testing import FakeClock
from penstock.wires.http.limits import HttpLimits
from penstock.wires.http.messages import HttpRequest


def outside_address() -> str | None:
    """An address of this machine that is not loopback; nothing is sent to find it."""
    for family, far in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((far, 9))
            except OSError:
                continue
            found = str(probe.getsockname()[0])
            if not is_loopback(found) and ":" not in found:
                return found
    return None


OUTSIDE = outside_address()
needs_outside = pytest.mark.skipif(
    OUTSIDE is None, reason="this machine has no IPv4 address but loopback"
)
# But for logging in, which is for those who have no access yet: see test_sessions.py.
EVERYTHING = [(each.method, each.path) for each in ENDPOINTS if each.does != "log_in"]


# From elsewhere ----------------------------------------------------------------------------


@needs_outside
@pytest.mark.parametrize(("method", "path"), [*EVERYTHING, ("GET", "/nothing"), ("PATCH", "/")])
async def test_nothing_is_reachable_from_elsewhere_without_the_token(
    start: Start, method: str, path: str
) -> None:
    site = await start(host="0.0.0.0", tokens={"ops": TOKEN})
    response = await site.ask(method, path, host=str(OUTSIDE))
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert response.json() == {"error": "a token is required: Authorization: Bearer ..."}
    assert site.gate.switches.calm
    (line,) = site.audited()
    assert (line["peer"], line["who"], line["result"]) == (OUTSIDE, None, "refused")
    assert (line["action"], line["status"]) == ("access", 401)


@needs_outside
async def test_the_token_opens_it_from_elsewhere(start: Start) -> None:
    site = await start(host="0.0.0.0", tokens={"ops": TOKEN, "deploy": TOKEN + "2"})
    assert (await site.ask("GET", "/v1/rules", host=str(OUTSIDE), token=TOKEN)).status_code == 200
    done = await site.ask(
        "PUT", "/v1/mode", {"mode": "shadow"}, host=str(OUTSIDE), token=TOKEN + "2"
    )
    assert done.status_code == 200
    (line,) = site.audited()
    assert (line["peer"], line["who"]) == (OUTSIDE, "deploy")
    assert line["digest"] == tokens_module.digest(TOKEN + "2").hex()[:8]
    assert TOKEN not in site.audit_file.read_text()


@needs_outside
@pytest.mark.parametrize(
    "header",
    [
        TOKEN, f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}", f"Bearer {TOKEN}, Bearer {TOKEN}", f"Token {TOKEN}",
    ],
)  # fmt: skip
async def test_what_is_almost_the_token_is_not(start: Start, header: str) -> None:
    site = await start(host="0.0.0.0", tokens={"ops": TOKEN})
    headers = {"Authorization": header}
    assert (await site.ask("GET", "/", host=str(OUTSIDE), headers=headers)).status_code == 401


@needs_outside
@pytest.mark.parametrize("spelled", ["Bearer ", "bearer ", "BEARER  "])
async def test_the_scheme_may_be_spelled_in_any_case(start: Start, spelled: str) -> None:
    site = await start(host="0.0.0.0", tokens={"ops": TOKEN})
    headers = {"Authorization": spelled + TOKEN}
    assert (await site.ask("GET", "/", host=str(OUTSIDE), headers=headers)).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "", *([OUTSIDE] if OUTSIDE else [])])
async def test_it_does_not_listen_elsewhere_without_a_token(
    start: Start, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bound(address: object) -> None:
        pytest.fail("not even for a moment")

    monkeypatch.setattr(server_module, "listen", bound)
    with pytest.raises(AdminError, match="can be reached from other machines and has no token"):
        await start(host=host)


async def test_a_socket_that_listens_elsewhere_needs_a_token_too(start: Start) -> None:
    site = await start()
    with socket.socket() as made:
        made.bind(("0.0.0.0", 0))
        made.listen()
        with pytest.raises(AdminError, match="no token"):
            await site.server.serve(made)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", False), ("127.9.9.9", False), ("::1", False), ("localhost", False),
     ("0.0.0.0", True), ("::", True), ("", True), ("192.0.2.7", True)],
)  # fmt: skip
def test_which_addresses_are_reachable(host: str, expected: bool) -> None:
    assert reachable(host) is expected


def test_a_name_that_does_not_resolve_is_an_error() -> None:
    with pytest.raises(AdminError, match="cannot listen on"):
        reachable("no.such.host.invalid")


async def test_it_says_that_a_token_without_tls_can_be_read(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    await start(host="0.0.0.0", tokens={"ops": TOKEN})
    assert "has no TLS" in caplog.text


async def test_over_tls(start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    more = ["-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, *more, *names], check=True, capture_output=True)
    site = await start()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    site.api.access.tokens = Tokens({"ops": TOKEN})
    secure = AdminServer(site.api, tls=context)
    place = await secure.listen(("0.0.0.0", 0))
    client = ssl.create_default_context(cafile=str(cert))
    async with httpx.AsyncClient(verify=client, trust_env=False) as asking:
        response = await asking.get(
            f"https://127.0.0.1:{place.rpartition(':')[2]}/v1/rules",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
    await secure.close()
    assert response.status_code == 200
    assert "has no TLS" not in caplog.text
    # A handshake has the time of a request, not the minute that asyncio gives it.
    hasty = AdminServer(site.api, tls=context, limits=HttpLimits(request_time=0.3))
    place = await hasty.listen(("127.0.0.1", 0))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(place.rpartition(":")[2]))
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()
    await hasty.close()


# From this machine -------------------------------------------------------------------------


async def test_loopback_needs_no_token(start: Start) -> None:
    site = await start(tokens={"ops": TOKEN})
    assert (await site.ask("GET", "/v1/rules")).status_code == 200
    await site.ask("PUT", "/v1/mode", {"mode": "off"})
    assert site.audited()[0]["who"] == "local"


async def test_unless_it_always_does(start: Start) -> None:
    site = await start(tokens={"ops": TOKEN}, always=True)
    assert (await site.ask("GET", "/v1/rules")).status_code == 401
    assert (await site.ask("GET", "/v1/rules", token=TOKEN)).status_code == 200


async def test_a_wrong_token_is_not_overlooked_on_loopback(start: Start) -> None:
    site = await start(tokens={"ops": TOKEN})
    assert (await site.ask("GET", "/v1/rules", token="wrong")).status_code == 401


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
async def test_what_a_proxy_passes_on_is_not_from_this_machine(start: Start, header: str) -> None:
    site = await start(tokens={"ops": TOKEN})
    headers = {header: "127.0.0.1"}
    assert (await site.ask("GET", "/v1/rules", headers=headers)).status_code == 401
    assert (await site.ask("GET", "/v1/rules", headers=headers, token=TOKEN)).status_code == 200


async def test_a_unix_socket_is_this_machine(start: Start, tmp_path: Path) -> None:
    site = await start(tokens={"ops": TOKEN})
    path = str(tmp_path / "admin.sock")
    assert await site.server.listen(path) == f"unix:{path}"
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"GET /v1/log-level HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()
    await writer.wait_closed()


# Browsers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:6070", "127.0.0.1.evil.example", "localhost.evil.example",
     "127.0.0.2", "[::2]", "", "0.0.0.0"],
)  # fmt: skip
async def test_another_name_for_this_machine_is_refused(start: Start, host: str) -> None:
    """DNS rebinding: a page's own name, made to point at 127.0.0.1."""
    site = await start(tokens={"ops": TOKEN})
    response = await site.ask("GET", "/v1/rules", headers={"Host": host})
    assert response.status_code == 403
    assert site.audited()[0]["status"] == 403
    # Who has the token is no page.
    with_token = await site.ask("GET", "/v1/rules", headers={"Host": host}, token=TOKEN)
    assert with_token.status_code == 200


@pytest.mark.parametrize(
    "host", ["localhost@evil.example", "localhost:6070:80", "127.0.0.1/", "[::1", "a b"]
)
async def test_what_is_no_name_is_not_even_read(start: Start, host: str) -> None:
    site = await start(tokens={"ops": TOKEN})
    for token in (None, TOKEN):
        response = await site.ask("GET", "/v1/rules", headers={"Host": host}, token=token)
        assert response.status_code == 400
        assert "Host" in response.json()["error"]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:6070", "127.0.0.1", "[::1]", "[::1]:6070", "admin.corp"]
)
async def test_its_own_names_are_answered(start: Start, host: str) -> None:
    site = await start(names=["Admin.corp"])
    assert (await site.ask("GET", "/v1/rules", headers={"Host": host})).status_code == 200


async def raw(port: int, text: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text.encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize(
    "head",
    ["GET /v1/rules HTTP/1.0", "GET /v1/rules HTTP/1.1\r\nHost: localhost\r\nHost: evil.example",
     "GET /v1/rules HTTP/1.1\r\nHost: evil.example\r\nHost: localhost"],
)  # fmt: skip
async def test_no_host_and_two_hosts_are_refused(start: Start, head: str) -> None:
    site = await start()
    answer = await raw(site.port, f"{head}\r\nConnection: close\r\n\r\n")
    assert answer.split(b" ")[1] in (b"400", b"403")


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Origin", "https://evil.example", 403),
        ("Origin", "null", 403),
        ("Origin", "http://localhost:1", 403),
        ("Origin", "http://127.0.0.1:{port}", 200),
        ("Sec-Fetch-Site", "cross-site", 403),
        ("Sec-Fetch-Site", "same-site", 403),
        ("Sec-Fetch-Site", "same-origin", 200),
        ("Sec-Fetch-Site", "none", 200),
    ],
)
async def test_pages_of_other_sites_cannot_change_anything(
    start: Start, header: str, value: str, status: int
) -> None:
    site = await start()
    headers = {header: value.format(port=site.port)}
    response = await site.ask("POST", "/v1/rules/reload", headers=headers)
    assert response.status_code == status
    assert not [name for name in response.headers if name.startswith("access-control")]
    assert [line["action"] for line in site.audited()] == [
        "rules.reload" if status == 200 else "access"
    ]


async def test_a_preflight_is_not_answered(start: Start) -> None:
    site = await start()
    response = await site.ask(
        "OPTIONS", "/v1/mode", headers={"Access-Control-Request-Method": "PUT"}
    )
    assert response.status_code == 405
    assert not [name for name in response.headers if name.startswith("access-control")]


# Guessing ----------------------------------------------------------------------------------


async def test_ten_failures_shut_the_door_for_a_minute(start: Start) -> None:
    site = await start(tokens={"ops": TOKEN}, always=True)
    statuses = [(await site.ask("GET", "/", token=f"wrong{n}")).status_code for n in range(12)]
    assert statuses == [401] * 9 + [429] * 3
    shut = await site.ask("GET", "/", token=TOKEN)  # the right one, too late
    assert (shut.status_code, shut.headers["retry-after"]) == (429, "60")
    # What comes while it is shut is not recorded line by line.
    assert [line["status"] for line in site.audited()] == [401] * 9 + [429]
    site.clock.advance(59.9)
    assert (await site.ask("GET", "/", token=TOKEN)).status_code == 429
    site.clock.advance(0.2)
    assert (await site.ask("GET", "/", token=TOKEN)).status_code == 200
    await site.ask("GET", "/", token="wrong again")
    assert site.audited()[-1]["left_out"] == 4


async def test_missing_tokens_count_as_failures_and_right_ones_do_not(start: Start) -> None:
    site = await start(tokens={"ops": TOKEN}, always=True)
    assert [(await site.ask("GET", "/", token=TOKEN)).status_code for _ in range(30)] == [200] * 30
    assert [(await site.ask("GET", "/")).status_code for _ in range(11)] == [401] * 9 + [429] * 2


def request(peer: str | None, *headers: tuple[str, str]) -> HttpRequest:
    request = HttpRequest(peer)
    request.headers = [("host", "localhost"), *headers]
    return request


def lock_out(access: Access, peer: str | None, *headers: tuple[str, str]) -> None:
    for _ in range(10):
        with pytest.raises(Denied):
            access.admit(request(peer, ("authorization", "Bearer wrong"), *headers))


def status_of(access: Access, peer: str | None, *headers: tuple[str, str]) -> int:
    try:
        access.admit(request(peer, ("authorization", f"Bearer {TOKEN}"), *headers))
    except Denied as denied:
        return denied.status
    return 200


def test_one_address_does_not_shut_out_another() -> None:
    access = Access(Tokens({"ops": TOKEN}), clock=FakeClock())
    lock_out(access, "192.0.2.1")
    assert status_of(access, "192.0.2.1") == 429
    assert status_of(access, "192.0.2.2") == 200
    assert status_of(access, None) == 200


def test_an_ipv6_network_is_one_address() -> None:
    access = Access(Tokens({"ops": TOKEN}), clock=FakeClock())
    lock_out(access, "2001:db8::1")
    assert status_of(access, "2001:db8::2") == 429
    assert status_of(access, "2001:db8:0:1::1") == 200


def test_those_behind_a_proxy_do_not_shut_out_its_machine() -> None:
    access = Access(Tokens({"ops": TOKEN}), clock=FakeClock())
    via = ("via", "1.1 proxy")
    lock_out(access, "127.0.0.1", via)
    assert status_of(access, "127.0.0.1", via) == 429
    assert status_of(access, "127.0.0.1") == 200


def test_it_is_our_own_limiter_that_counts_failures() -> None:
    assert isinstance(Access()._failures, Limiter)


@pytest.mark.parametrize(
    ("peer", "local"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("::ffff:127.0.0.1", True),
     (None, True), ("192.0.2.1", False), ("::ffff:192.0.2.1", False), ("fe80::1%eth0", False),
     ("0.0.0.0", False), ("rubbish", False), ("", False)],
)  # fmt: skip
def test_which_peers_are_this_machine(peer: str | None, local: bool) -> None:
    assert is_local(request(peer)) is local


# Tokens ------------------------------------------------------------------------------------


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, Any]] = []
    real = hmac.compare_digest

    def watched(a: Any, b: Any) -> bool:
        seen.append((a, b))
        return real(a, b)

    monkeypatch.setattr(tokens_module.hmac, "compare_digest", watched)
    tokens = Tokens({"a": TOKEN, "b": TOKEN + "2", "c": TOKEN + "3"})
    for given in (TOKEN, TOKEN + "3", "x", "x" * 5000, ""):
        seen.clear()
        tokens.find(given)
        # All of them, in any case, and digests: of one length whatever was given.
        assert len(seen) == 3
        assert {len(each) for pair in seen for each in pair} == {32}


def test_only_digests_are_kept() -> None:
    tokens = Tokens({"ops": TOKEN})
    assert TOKEN not in repr(tokens) + repr(vars(tokens))
    assert repr(tokens) == "<Tokens ops>"


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ({"ops": "short"}, "the token ops has 5 characters, not 16 to 1024"),
        ({"ops": "x" * 2000}, "2000 characters"),
        ({"ops": "with a space in the middle"}, "characters not allowed in a header"),
        ({"ops": "ümläute-sind-nicht-gut"}, "not allowed in a header"),
        ({"ops": ""}, "not allowed in a header"),
        ({"": TOKEN}, "a token's name is"),
        ({"a b": TOKEN}, "its role, admin or read, not 'b'"),
        ({f"n{n}": TOKEN for n in range(101)}, "at most 100 tokens"),
    ],
)
def test_bad_tokens_are_errors_that_do_not_show_them(tokens: dict[str, str], message: str) -> None:
    with pytest.raises(TokenError, match=message) as caught:
        Tokens(tokens)
    for token in tokens.values():
        assert not token or token not in str(caught.value)


def test_tokens_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# ours\n\nops: {TOKEN}\n  deploy:{TOKEN}2  \n")
    tokens = Tokens.from_file(file)
    match = tokens.find(TOKEN + "2")
    assert match is not None
    assert match.name == "deploy"
    file.write_text(f"{TOKEN}\n")
    digest = tokens_module.digest(TOKEN).hex()[:8]
    assert Tokens.from_file(file).find(TOKEN) == Token("token", digest)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no token"),
        (b"# nothing\n", "has no token"),
        (b"a: short\n", ":1: the token a has 5 characters"),
        (f"{TOKEN}\n{TOKEN}2\n".encode(), ":2: two tokens are named 'token'"),
        (b"\xff\xfe", "plain ASCII"),
        (None, "cannot read the tokens"),
    ],
)
def test_bad_token_files(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "tokens"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(TokenError, match=message):
        Tokens.from_file(file)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"always": True}, ValueError, "none is configured"),
        ({"names": "admin"}, TypeError, "a list of names"),
        ({"names": ["a:80"]}, ValueError, "without a port"),
        ({"names": ["a b"]}, ValueError, "without a port"),
        ({"names": [1]}, ValueError, "without a port"),
    ],
)
def test_bad_options_are_errors(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Access(**options)
