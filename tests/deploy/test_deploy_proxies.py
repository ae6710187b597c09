"""The proxy configurations in deploy/, run by the real proxies where they are installed."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools")

from deploy.proxies import (
    DEPLOY,
    ask,
    envoy_binary,
    free_port,
    reserved,
    running_app,
    running_penstock,
    running_proxy,
)

NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
CADDY = shutil.which("caddy")

RULES: dict[str, Any] = {
    "domain": "web",
    "descriptors": [
        {"key": "remote_address", "limits": "3/hour"},
        {"key": "method", "value": "DELETE", "rate_limit": {"unit": "day", "requests_per_unit": 0}},
    ],
}


class Place:
    def __init__(self, name: str, folder: Path, app: int) -> None:
        self.name = name
        self.app = app
        self.port = free_port()
        self.penstock = reserved()
        self.folder = folder
        self.log = folder / "log"

    def config(self) -> list[str]:
        path = "nginx/nginx.conf" if self.name == "nginx" else "caddy/Caddyfile"
        text = (DEPLOY / path).read_text()
        changes = {
            "127.0.0.1:8080": f"127.0.0.1:{self.penstock.getsockname()[1]}",
            "127.0.0.1:8000": f"127.0.0.1:{self.app}",
            "listen 80;": f"listen 127.0.0.1:{self.port};",
            "\n:80 {": f"\nhttp://127.0.0.1:{self.port} {{",
            "pid /run/nginx.pid;": f"pid {self.folder}/pid;",
            "worker_processes auto;": "worker_processes 1; daemon off; master_process off;",
            "\nhttp {\n": "\nhttp {\naccess_log off;\n"
            + "".join(
                f"{kind}_temp_path {self.folder}/{kind};\n"
                for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
            ),
            "50ms": "2s",  # the machine of a test may be busy
            "200ms": "2s",
        }
        for old, new in changes.items():
            text = text.replace(old, new)
        made = self.folder / "config"
        made.write_text(text)
        if self.name == "nginx":
            return [str(NGINX), "-p", str(self.folder), "-e", "stderr", "-c", str(made)]
        return [str(CADDY), "run", "--config", str(made), "--adapter", "caddyfile"]


@pytest.fixture(
    params=[
        pytest.param("nginx", marks=pytest.mark.skipif(not NGINX, reason="no nginx here")),
        pytest.param("caddy", marks=pytest.mark.skipif(not CADDY, reason="no caddy here")),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with running_app() as app:
        place = Place(request.param, tmp_path, app)
        with place.penstock, running_proxy(place.config(), place.port, place.log):
            yield place


def test_a_client_is_refused_by_429_and_told_why(place: Place) -> None:
    with running_penstock(RULES, place.penstock):
        answers = [ask(place.port, "/a?b=c") for _ in range(5)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
    for answer in answers:
        assert answer.headers["RateLimit-Policy"].endswith(";q=3;w=3600"), dict(answer.headers)
        assert ";r=" in answer.headers["RateLimit"]
    assert [answer.headers["X-App"] for answer in answers] == ["here"] * 3 + [None] * 2
    assert answers[0].headers["Retry-After"] is None
    assert 1100 < int(answers[4].headers["Retry-After"]) <= 1200
    assert json.loads(answers[4].body)["error"] == "Rate limit exceeded"
    assert answers[4].headers["Content-Type"] == "application/json"


def test_what_the_app_says_comes_through(place: Place) -> None:
    with running_penstock(RULES, place.penstock):
        answer = ask(place.port, "/forbidden")
        assert (answer.status, answer.body, answer.headers["X-App"]) == (403, b"app ", "here")
        posted = ask(place.port, "/", "POST", b"x" * 100_000)
        assert (posted.status, posted.body) == (200, b"app " + b"x" * 100_000)


def test_a_client_cannot_speak_for_another(place: Place) -> None:
    with running_penstock(RULES, place.penstock):
        answers = [
            ask(
                place.port, X_Forwarded_For=f"192.0.2.{at}", X_Original_Method="DELETE",
                X_Forwarded_Method="DELETE",
            ).status
            for at in range(4)
        ]  # fmt: skip
    assert answers == [200, 200, 200, 429]


def test_rules_see_the_method_that_the_client_used(place: Place) -> None:
    with running_penstock(RULES, place.penstock):
        assert ask(place.port, "/", "DELETE").status == 429


def test_who_is_not_limited_gets_no_fields(place: Place) -> None:
    free = {"domain": "web", "descriptors": [{"key": "path", "value": "/x", "limits": "1/day"}]}
    with running_penstock(free, place.penstock):
        answers = [ask(place.port, "/y") for _ in range(3)]
    for answer in answers:
        assert (answer.status, answer.headers["X-App"]) == (200, "here")
        assert answer.headers["RateLimit"] is answer.headers["RateLimit-Policy"] is None


def test_without_penstock_requests_go_ahead(place: Place) -> None:
    answer = ask(place.port, "/", "POST", b"body")
    assert (answer.status, answer.headers["X-App"]) == (200, "here"), place.log.read_text()
    assert answer.body == b"app body"


# Envoy ---------------------------------------------------------------------------------------


@pytest.mark.skipif(not envoy_binary(), reason="no envoy here")
def test_envoy_with_its_file_and_the_rules_for_it(tmp_path: Path) -> None:
    with running_app() as app:
        run_envoy(tmp_path, app)


def run_envoy(tmp_path: Path, app: int) -> None:
    port, grpc = free_port(), free_port()
    text = (DEPLOY / "envoy/envoy.yaml").read_text()
    for old, new in (
        ("address: 0.0.0.0, port_value: 8000", f"address: 127.0.0.1, port_value: {port}"),
        ("port_value: 8081", f"port_value: {grpc}"),
        ("port_value: 8001", f"port_value: {app}"),
        ("timeout: 0.025s", "timeout: 5s"),  # the machine of a test may be busy
    ):
        assert old in text
        text = text.replace(old, new)
    config = tmp_path / "envoy.yaml"
    config.write_text(text)
    envoy = [str(envoy_binary()), "-c", str(config), "--concurrency", "1", "-l", "warning",
             "--use-dynamic-base-id"]  # fmt: skip
    serve = [sys.executable, "-m", "penstock", "serve", "--rules", str(DEPLOY / "rules"),
             "--grpc", f"127.0.0.1:{grpc}", "--http", "off", "--admin", "off"]  # fmt: skip
    with (
        running_proxy(serve, grpc, tmp_path / "penstock.log"),
        running_proxy(envoy, port, tmp_path / "envoy.log"),
    ):
        answers = [ask(port, x_api_key="trial") for _ in range(12)]
        other, plain = ask(port, x_api_key="another"), ask(port)
    assert [answer.status for answer in answers] == [200] * 10 + [429] * 2
    assert [answer.headers["X-App"] for answer in answers] == ["here"] * 10 + [None] * 2
    for answer in answers:
        assert answer.headers["x-ratelimit-limit"].startswith("10, ")
        assert '10;w=60;name="trial"' in answer.headers["x-ratelimit-limit"]
    remaining = [answer.headers["x-ratelimit-remaining"] for answer in answers]
    assert remaining == [*map(str, range(9, -1, -1)), "0", "0"]
    assert other.status == 200
    assert '1000;w=60;name="per_key"' in other.headers["x-ratelimit-limit"]
    assert plain.headers["x-ratelimit-limit"] == "200"  # the burst, as in the guide
