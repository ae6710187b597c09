"""A real nginx asks a real Penstock by auth_request, as deploy/nginx/nginx.conf has it."""

from __future__ import annotations

import http.client
import itertools
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from running.e2e.conftest import Start
from running.e2e.gateways import start_nginx
from running.e2e.running import PATIENCE, Answer, Penstock, ask, new_folder, reserved_port

RULES = """
domain: web
descriptors:
  - key: remote_address
    limits: 6/hour
    deny: [127.9.9.9]
  - key: path
    value: /login
    descriptors:
      - key: remote_address
        limits: 2/hour
  - key: "header:x-tenant"
    limits: 3/hour
  - key: method
    value: DELETE
    rate_limit: {unit: day, requests_per_unit: 0}
"""

# Every test has clients of its own: all of 127.0.0.0/8 is this machine.
_addresses = (f"127.{b}.{c}.{d}" for b in range(1, 8) for c in range(256) for d in range(1, 255))
_names = itertools.count()


@dataclass
class Client:
    """Somebody with an address, before an nginx."""

    port: int
    address: str

    def ask(
        self, path: str = "/", method: str = "GET", body: bytes | None = None, **headers: Any
    ) -> Answer:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=PATIENCE, source_address=(self.address, 0)
        )
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def statuses(self, count: int, *asked: Any, **headers: Any) -> list[int]:
        return [self.ask(*asked, **headers).status for _ in range(count)]


@dataclass
class Edge:
    port: int
    penstock: Penstock

    def client(self, address: str | None = None) -> Client:
        return Client(self.port, address or next(_addresses))


@pytest.fixture(scope="module", params=["port", "unix"])
def edge(request: pytest.FixtureRequest, app: int) -> Iterator[Edge]:
    folder = new_folder()
    (folder / "rules.yaml").write_text(RULES)
    options = ["--http", f"unix:{folder}/http"] if request.param == "unix" else []
    with ExitStack() as stack:
        service = Penstock(folder / "rules.yaml", *options)
        stack.callback(service.end)
        port = stack.enter_context(reserved_port())
        stack.callback(start_nginx(port, service.wait().http, app).end)
        yield Edge(port, service)


# What reaches the client ------------------------------------------------------------------------


def test_429_and_its_headers_reach_the_client(edge: Edge) -> None:
    client = edge.client()
    answers = [client.ask("/a?b=c") for _ in range(8)]
    assert [each.status for each in answers] == [200] * 6 + [429] * 2
    refused = answers[-1]
    assert 590 <= int(refused.headers["Retry-After"]) <= 600
    assert refused.headers["Content-Type"] == "application/json"
    assert json.loads(refused.body) == {"error": "Rate limit exceeded"}
    assert refused.headers["X-App"] is None


def test_every_answer_says_how_much_is_left(edge: Edge) -> None:
    client = edge.client()
    answers = [client.ask("/a") for _ in range(7)]
    assert {each.headers["RateLimit-Policy"] for each in answers} == {
        '"web/remote_address 6/hour";q=6;w=3600'
    }
    remaining = [each.headers["RateLimit"].partition(";r=")[2] for each in answers]
    assert [each.partition(";")[0] for each in remaining] == list("5432100")
    assert answers[0].headers["X-App"] == "here"


def test_requests_reach_the_app_as_they_were(edge: Edge) -> None:
    client = edge.client()
    answer = client.ask("/a%20b?c=%26", "POST", b"x" * 50_000, X_Mine="yes")
    body = json.loads(answer.body)
    assert (body["path"], body["sent"]) == ("/a%20b?c=%26", "x" * 50_000)
    assert body["headers"]["X-Mine"] == "yes"
    assert body["headers"]["X-Forwarded-For"] == client.address


def test_a_403_of_the_app_is_the_apps(edge: Edge) -> None:
    answer = edge.client().ask("/forbidden")
    assert (answer.status, answer.headers["X-App"]) == (403, "here")


def test_who_is_denied_is_told_403(edge: Edge) -> None:
    answer = edge.client("127.9.9.9").ask()
    assert (answer.status, answer.headers["X-App"]) == (403, None)


# By what ----------------------------------------------------------------------------------------


def test_clients_are_counted_by_their_address(edge: Edge) -> None:
    first, second = edge.client(), edge.client()
    assert first.statuses(7)[-1] == 429
    assert second.statuses(7) == [200] * 6 + [429]


def test_by_path(edge: Edge) -> None:
    client = edge.client()
    assert client.statuses(3, "/login?next=/") == [200, 200, 429]
    assert client.ask("/").status == 200
    # The same path for the app, in other words; and paths that may be the same for it.
    assert [client.ask(path).status for path in ("/%6Cogin", "/log%69n?a")] == [429] * 2
    spellings = ("//login", "/./login", "/x/../login", "/x/%2e%2e/login", "/login;a", "/login%23")
    assert [client.ask(path).status for path in spellings] == [403] * 6
    assert client.ask("/a//b/c%2Fd").status == 200


def test_by_header(edge: Edge) -> None:
    name = f"tenant-{next(_names)}"
    statuses = [edge.client().ask(X_Tenant=name).status for _ in range(5)]
    assert statuses == [200] * 3 + [429] * 2
    assert edge.client().ask(X_Tenant=name + "-other").status == 200


def test_by_method(edge: Edge) -> None:
    client = edge.client()
    assert client.ask("/", "DELETE").status == 429
    assert client.ask("/", "POST").status == 200


# Nobody escapes ---------------------------------------------------------------------------------

FORGED: list[dict[str, Any]] = [
    {"X_Forwarded_For": "203.0.113.7"},
    {"X_Forwarded_For": "203.0.113.7, 127.0.0.1"},
    {"Forwarded": "for=203.0.113.7"},
    {"X_Real_IP": "203.0.113.7"},
    {"X_Original_Method": "GET", "X_Original_URI": "/"},
    {"X_Forwarded_Method": "GET", "X_Forwarded_Uri": "/", "X_Forwarded_Host": "other"},
    {"X_Original_Host": "other"},
    {"Connection": "close, X-Forwarded-For, X-Original-URI"},
    {"Connection": "Upgrade", "Upgrade": "websocket"},
    {"X_Anything": b"a\x01b"},
    {"X_Anything": b"\xff\xfe"},
    {"Cookie": "=;,=\x7f"},
    {f"X_{at}": "many" for at in range(200)},
    {"X_Long": "a" * 7000, "X_Longer": "b" * 7000, "X_More": "c" * 7000, "X_Last": "d" * 7000},
]


@pytest.mark.parametrize("forged", FORGED, ids=lambda forged: next(iter(forged)))
def test_what_a_client_says_does_not_get_it_past_a_limit(
    edge: Edge, forged: dict[str, Any]
) -> None:
    """It is counted all the same; or is refused, if Penstock cannot read it."""
    client = edge.client()
    assert client.statuses(7)[-1] == 429
    assert client.ask(**forged).status in (403, 429, 431)


def test_a_client_cannot_use_up_the_limit_of_another(edge: Edge) -> None:
    victim, attacker = edge.client(), edge.client()
    attacker.statuses(7, X_Forwarded_For=victim.address)
    assert victim.ask().status == 200


def test_the_question_itself_cannot_be_asked_from_outside(edge: Edge) -> None:
    assert edge.client().ask("/_penstock").status == 404
    assert edge.client().ask("/v1/auth").headers["X-App"] == "here"


@pytest.mark.parametrize("edge", ["port"], indirect=True)  # it is asked without nginx
def test_a_proxy_that_lets_the_client_speak_for_it_is_not_believed(edge: Edge) -> None:
    """Behind Traefik or Caddy, X-Original-... would be the client's own."""
    headers = {"X_Forwarded_Uri": "/login", "X_Forwarded_Method": "POST"}
    answer = ask(edge.penstock.http, "/v1/auth", X_Original_URI="/", **headers)
    assert answer.status == 400
    assert b"both" in answer.body
    assert ask(edge.penstock.http, "/v1/auth", X_Original_Host="any", **headers).status == 200


def test_pipelined_requests_are_counted_one_by_one(edge: Edge) -> None:
    client = edge.client()
    with socket.create_connection(
        ("127.0.0.1", edge.port), PATIENCE, source_address=(client.address, 0)
    ) as link:
        request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
        link.sendall(request * 8 + request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        answer = b"".join(iter(lambda: link.recv(65536), b""))
    assert answer.count(b"HTTP/1.1 200 ") == 6
    assert answer.count(b"HTTP/1.1 429 ") == 3


# Without Penstock -------------------------------------------------------------------------------


def test_requests_go_ahead_while_penstock_is_away_and_are_limited_after(
    penstock_service: Start, app: int
) -> None:
    with ExitStack() as stack:
        at, port = (stack.enter_context(reserved_port()) for _ in range(2))
        first = penstock_service(RULES, "--http", f"127.0.0.1:{at}")
        stack.callback(start_nginx(port, first.http, app).end)
        client = Client(port, next(_addresses))
        assert client.statuses(7) == [200] * 6 + [429]
        first.kill()
        assert client.statuses(7) == [200] * 7
        penstock_service(RULES, "--http", f"127.0.0.1:{at}")
        # nginx asks a server that failed once again after ten seconds, if it is one of
        # several; the only one it asks every time.
        assert client.statuses(7) == [200] * 6 + [429]
