"""Every file of examples/rules limits real requests.

In middleware, behind nginx and Envoy, by the proxy, and by the service's own API.
"""

from __future__ import annotations

import http.client
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from integrations.serving import uvicorn_server
from penstock.integrations.asgi import PenstockMiddleware
from running.e2e.gateways import Config, EnvoyConfig, start_nginx
from running.e2e.running import (
    PATIENCE,
    Penstock,
    Running,
    new_folder,
    reserved_port,
    wait_for_port,
)

FOLDER = Path(__file__).parents[3] / "examples/rules"


@dataclass(frozen=True)
class Promise:
    """What the comment of a file says: so many of these requests pass, then there is a 429.

    ``refills``: the limit grants more while the test runs, so more may pass.
    """

    passes: int
    path: str = "/"
    headers: Mapping[str, str] = field(default_factory=dict)
    refills: bool = False


POST = {"x-action": "post", "x-user-id": "42"}
PROMISES = {
    # Here 20 per second: no client of a test sends a thousand.
    "database-writes": Promise(20, headers={"x-operation": "write"}, refills=True),
    "ipv6": Promise(20, refills=True),
    "login": Promise(5, "/login"),
    "marketing": Promise(5, headers={"x-message-type": "marketing", "x-to-number": "555"}),
    "posts": Promise(2, headers=POST, refills=True),
    "rewards": Promise(5, headers={"x-action": "claim", "x-device": "d1"}),
    # It depends on the time of day: at most 300 per minute.
    "sale": Promise(30, headers={"x-user-id": "42"}, refills=True),
    "sign-up": Promise(10, headers={"x-action": "sign-up"}),
    "sms": Promise(5, headers={"x-country": "TW", "x-phone": "123"}),
    "tiers": Promise(100, headers={"x-plan": "free", "x-user-id": "42"}, refills=True),
}
CHANGED = {"database-writes": ("1000/second", "20/second")}


@dataclass(frozen=True)
class Example:
    name: str
    file: Path
    domain: str
    dimensions: list[str]  # as its comment gives them
    keys: list[str]  # of its first rule, from the top

    def header(self, key: str) -> str:
        """Where the value of a key is in a request of this test."""
        names = dict(each.split("=header:") for each in self.dimensions)
        return ":path" if key == "path" else names[key]


@pytest.fixture(scope="module")
def examples() -> dict[str, Example]:
    folder, read = new_folder(), {}
    for path in sorted(FOLDER.glob("*.yaml")):
        text = path.read_text()
        if path.stem in CHANGED:
            assert CHANGED[path.stem][0] in text
            text = text.replace(*CHANGED[path.stem])
        file = folder / path.name
        file.write_text(text)
        dimensions = re.findall(r"--dimension (\S+)", text)
        rules = yaml.safe_load(text)
        keys = list(_keys(rules["descriptors"][0]))
        read[path.stem] = Example(path.stem, file, rules["domain"], dimensions, keys)
    return read


def _keys(step: dict[str, Any]) -> Iterator[str]:
    yield step["key"]
    for below in step.get("descriptors", [])[:1]:
        yield from _keys(below)


ADDRESSES = ("ip", "remote_address")


Ask = Callable[[Example], tuple[int, dict[str, str]]]  # a port, and further headers


@pytest.fixture(scope="module")
def middleware(examples: dict[str, Example]) -> Iterator[Ask]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    with ExitStack() as stack:

        def start(example: Example) -> tuple[int, dict[str, str]]:
            dimensions = {
                name: (lambda request, header=header: request.header(header))
                for name, header in (each.split("=header:") for each in example.dimensions)
            }
            limited = PenstockMiddleware(app, gate=example.file, dimensions=dimensions)
            return stack.enter_context(uvicorn_server(limited)), {}

        yield start


def _start_service(stack: ExitStack, examples: dict[str, Example]) -> Penstock:
    """One service with all files."""
    files = [word for each in examples.values() for word in ("--rules", str(each.file))]
    flags = {flag for example in examples.values() for flag in example.dimensions}
    options = [word for flag in sorted(flags) for word in ("--dimension", flag)]
    service = Penstock(None, *files, *options)
    stack.callback(service.end)
    return service


@pytest.fixture(scope="module")
def nginx(examples: dict[str, Example], app: int) -> Iterator[Ask]:
    """The domain is in the URL that nginx asks."""
    with ExitStack() as stack:
        service = _start_service(stack, examples)
        port = stack.enter_context(reserved_port())
        change = {"?refuse=403;": "?refuse=403&domain=$http_x_domain;"}
        stack.callback(start_nginx(port, service.wait().http, app, change).end)
        yield lambda example: (port, {"x-domain": example.domain})


@pytest.fixture(scope="module")
def envoy(examples: dict[str, Example], app: int) -> Iterator[Ask]:
    """A listener for each domain. Envoy calls the client's address `remote_address`."""

    def action(example: Example, key: str) -> Config:
        if key in ADDRESSES:
            return {"remote_address": {}}
        return {"request_headers": {"header_name": example.header(key), "descriptor_key": key}}

    with ExitStack() as stack:
        service = _start_service(stack, examples)
        config = EnvoyConfig(app, stack.enter_context(reserved_port()))
        ports = {}
        for example in examples.values():
            ports[example.name] = port = stack.enter_context(reserved_port())
            actions = [action(example, key) for key in example.keys]
            config.listen(
                port, service.wait().grpc, domain=example.domain, rate_limits=[{"actions": actions}]
            )
        stack.callback(config.start().end)
        yield lambda example: (ports[example.name], {})


@pytest.fixture(scope="module")
def proxy(examples: dict[str, Example], app: int) -> Iterator[Ask]:
    with ExitStack() as stack:

        def start(example: Example) -> tuple[int, dict[str, str]]:
            port = stack.enter_context(reserved_port())
            flags = [word for flag in example.dimensions for word in ("--dimension", flag)]
            command = [
                sys.executable, "-m", "penstock", "proxy", "--rules", str(example.file), *flags,
                "--upstream", f"http://127.0.0.1:{app}", "--listen", f"127.0.0.1:{port}",
                "--trusted", "127.0.0.0/8",
            ]  # fmt: skip
            stack.callback((running := Running(command)).end)
            wait_for_port(running, port)
            return port, {}

        yield start


def test_every_file_makes_a_promise(examples: dict[str, Example]) -> None:
    assert set(examples) == set(PROMISES)


@pytest.mark.parametrize("way", ["middleware", "nginx", "envoy", "proxy"])
@pytest.mark.parametrize("name", PROMISES)
def test_it_limits_as_its_comment_says(
    name: str, way: str, examples: dict[str, Example], request: pytest.FixtureRequest
) -> None:
    promise = PROMISES[name]
    port, more = request.getfixturevalue(way)(examples[name])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    statuses: list[int] = []
    try:
        while 429 not in statuses and len(statuses) < 2000:
            connection.request("GET", promise.path, headers={**promise.headers, **more})
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
    finally:
        connection.close()
    passed = len(statuses) - 1
    assert statuses == [200] * passed + [429]
    assert passed >= promise.passes if promise.refills else passed == promise.passes


@pytest.fixture(scope="module")
def services(examples: dict[str, Example]) -> Iterator[dict[str, Penstock]]:
    """One for each endpoint, so that each counts for itself."""
    with ExitStack() as stack:
        yield {path: _start_service(stack, examples).wait() for path in ("/v1/check", "/json")}


@pytest.mark.parametrize("path", ["/v1/check", "/json"])
@pytest.mark.parametrize("name", PROMISES)
def test_the_service_limits_whoever_asks_it_with_either_name_of_the_address(
    name: str, path: str, examples: dict[str, Example], services: dict[str, Penstock]
) -> None:
    promise, example = PROMISES[name], examples[name]
    connection = http.client.HTTPConnection(services[path].http, timeout=PATIENCE)
    statuses: list[int] = []
    try:
        while 429 not in statuses and len(statuses) < 2000:
            pairs = []
            for key in example.keys:
                if key in ADDRESSES:
                    pairs.append((ADDRESSES[len(statuses) % 2], "127.0.0.1"))
                else:
                    pairs.append(
                        (key, {**promise.headers, ":path": promise.path}[example.header(key)])
                    )
            body: dict[str, Any] = {"domain": example.domain, "descriptors": [dict(pairs)]}
            if path == "/json":
                entries = [{"key": key, "value": value} for key, value in pairs]
                body["descriptors"] = [{"entries": entries}]
            connection.request("POST", path, json.dumps(body))
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
    finally:
        connection.close()
    passed = len(statuses) - 1
    assert statuses == [200] * passed + [429]
    assert passed >= promise.passes if promise.refills else passed == promise.passes
