"""`penstock bench`: the commands, against a service in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli import main

SERVER = """
import asyncio, json, sys
from penstock.async_gate import AsyncGate
from penstock.service.service import Service
from penstock.wires.http.check import CheckApi
from penstock.wires.http.messages import HttpResponse
from penstock.wires.http.protocol import HttpServer

async def main():
    service = Service(AsyncGate.from_rules(
        {"domain": "bench", "descriptors": [{"key": "user", "limits": "10/hour"}]}
    ))
    check = CheckApi(service)

    def handler(request):
        if request.path == "/echo":
            good = request.method == "PUT" and request.body.startswith(b"<key-")
            return HttpResponse(200 if good and request.header("x-a") == "b" else 400)
        if request.path == "/get":
            return HttpResponse(200 if request.method == "GET" else 405)
        return check(request)

    server = HttpServer(handler)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(server.factory, "127.0.0.1", 0)
    print(listener.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    listener.close()
    await server.drain(0)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, "-c", SERVER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.communicate("")
        assert process.returncode == 0


def test_http(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--duration", "200ms", "--connections", "4"]
    arguments = ["bench", "http", f"{url}/v1/check", *short, "--keys", "5", "--limit"]
    assert main([*arguments, "10/hour"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"allowed +50 ", out)
    assert re.search(r"errors +0\n", out)
    for word in ("p50", "p90", "p99 ", "p99.9", "longest", "at most", "a second"):
        assert word in out
    # Now they have nothing left, and a limit that was stated wrongly does not show.
    assert main([*arguments, "10/hour"]) == 0
    assert re.search(r"allowed +0 ", capsys.readouterr().out)


def test_more_than_the_limit_is_a_failure(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "bench",
        "http",
        f"{url}/get",
        "--payload",
        "",
        "--duration",
        "100ms",
        "--keys",
        "2",
    ]
    assert main([*arguments, "--limit", "1/hour"]) == 1
    assert re.search(r"over +2 +keys", capsys.readouterr().out)
    assert main(arguments) == 0


def test_a_payload_of_ones_own(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "body").write_text("<{key}>")
    arguments = ["bench", "http", f"{url}/echo", "--duration", "100ms", "--header", "X-A: b"]
    for payload in ("<{key}>", f"@{tmp_path}/body"):
        assert main([*arguments, "--method", "put", "--payload", payload]) == 0
        assert re.search(r"errors +0\n", capsys.readouterr().out)


def test_nothing_but_errors_is_a_failure(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "http", f"{url}/echo", "--duration", "100ms"]) == 1
    assert "HTTP 400" in capsys.readouterr().out
    assert main(["bench", "grpc", url[7:], "--duration", "100ms"]) == 1
    assert "cannot connect" in capsys.readouterr().err
    assert main(["bench", "grpc", "127.0.0.1:1", "--duration", "100ms"]) == 1
    assert "Connection refused" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [
        ["http", "nowhere"],
        ["grpc", "nowhere"],
        ["http", "http://a", "--duration", "soon"],
        ["http", "http://a", "--keys", "0"],
        ["http", "http://a", "--rate", "-1"],
        ["http", "http://a", "--choose", "some"],
        ["http", "http://a", "--limit", "many"],
        ["http", "http://a", "--limit", "1/second", "--descriptors", "3"],
        ["http", "http://a", "--entries", "a,b", "--descriptors", "3"],
        ["http", "http://a", "--header", "nonsense"],
        ["http", "http://a", "--payload", "@/nowhere"],
    ],
)
def test_bad_arguments(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *wrong]) == 2
    assert capsys.readouterr().err.startswith("penstock bench: ")
