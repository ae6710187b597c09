"""`penstock proxy`, as a process, in front of a real server in another."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.cli import main

RULES = """
domain: web
descriptors:
  - key: path
    value: /limited
    limits: 2/hour
"""
APP = """
async def app(scope, receive, send):
    total = 0
    while True:
        message = await receive()
        total += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/big":
        for _ in range(1600):
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        total = ""
    await send({"type": "http.response.body", "body": str(total).encode()})
"""
HUNDRED_MB = 1600 * 65_536


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("app")
    (folder / "big_app.py").write_text(APP)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        command = [
            sys.executable, "-m", "uvicorn", "big_app:app", "--fd", str(listener.fileno()),
            "--log-level", "error", "--lifespan", "off",
        ]  # fmt: skip
        process = subprocess.Popen(command, cwd=folder, pass_fds=[listener.fileno()])
    try:
        yield url
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def proxy(rules: Path, upstream: str, *more: str) -> Iterator[tuple[Any, str]]:
    command = [
        sys.executable, "-m", "penstock", "proxy", "--upstream", upstream,
        "--rules", str(rules), "--listen", "127.0.0.1:0", *more,
    ]  # fmt: skip
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            match = re.match(r"penstock proxy: (http://127\.0\.0\.1:\d+) -> (\S+), 1 rule", line)
            assert match, line
            yield process, match[1]
        finally:
            process.terminate()
            process.communicate()


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(RULES)
    return tmp_path / "rules.yaml"


def test_limits_reload_and_end(rules: Path, upstream: str) -> None:
    with proxy(rules, upstream, "--drain", "2s") as (process, url):
        with httpx.Client(base_url=url, trust_env=False) as client:
            statuses = [client.get("/limited").status_code for _ in range(3)]
            assert statuses == [200, 200, 429]
            assert client.get("/free").status_code == 200
            rules.write_text(RULES.replace("/limited", "/other"))
            for _ in range(100):
                if client.get("/limited").status_code == 200:
                    break
                time.sleep(0.05)
            else:
                pytest.fail("the new rules did not come into force")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "finishing open requests" in out


@pytest.mark.parametrize(
    ("more", "statuses"), [([], [200] * 3), (["--count-preflight"], [200, 200, 429])]
)
def test_preflights_are_counted_if_that_is_said(
    rules: Path, upstream: str, more: list[str], statuses: list[int]
) -> None:
    headers = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    with (
        proxy(rules, upstream, *more) as (_, url),
        httpx.Client(base_url=url, trust_env=False) as client,
    ):
        found = [client.options("/limited", headers=headers).status_code for _ in range(3)]
    assert found == statuses


def test_a_hundred_megabytes_each_way_in_flat_memory(rules: Path, upstream: str) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(1600):
            yield b"x" * 65_536

    with (
        proxy(rules, upstream) as (process, url),
        httpx.Client(base_url=url, trust_env=False, timeout=60) as client,
    ):
        client.get("/warm-up")
        before = _peak(process.pid)
        with client.stream("GET", "/big") as answer:
            assert sum(len(piece) for piece in answer.iter_raw()) == HUNDRED_MB
        assert client.post("/up", content=pieces()).text == str(HUNDRED_MB)
        length = {"Content-Length": str(HUNDRED_MB)}
        assert client.put("/up", content=pieces(), headers=length).text == str(HUNDRED_MB)
        assert _peak(process.pid) - before < 8_000  # kB


def _peak(pid: int) -> int:
    return int(re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[0])


def test_no_server_behind_it(rules: Path) -> None:
    with proxy(rules, "http://127.0.0.1:1") as (process, url):
        assert httpx.get(url, trust_env=False).status_code == 502
        process.terminate()
        _, err = process.communicate(timeout=60)
        assert "no connection to http://127.0.0.1:1" in err


def test_a_unix_socket_and_shadow(rules: Path, upstream: str, tmp_path: Path) -> None:
    path = tmp_path / "front.sock"
    command = [
        sys.executable, "-m", "penstock", "proxy", "--upstream", upstream, "--rules", str(rules),
        "--listen", f"unix:{path}", "--shadow", "--no-watch",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "in shadow mode: nothing is refused" in process.stdout.readline()
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            statuses = [client.get("http://a/limited").status_code for _ in range(4)]
        assert statuses == [200] * 4
        process.terminate()
        process.communicate()
        assert process.returncode == 0


def test_a_body_that_drips_is_cut_off_as_the_options_say(rules: Path, upstream: str) -> None:
    options = ("--body-timeout", "1s", "--least-rate", "100")
    with proxy(rules, upstream, *options) as (_, url):
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
            client.settimeout(0.2)
            for _ in range(100):
                client.sendall(b"x")
                try:
                    said = client.recv(65_536)
                    break
                except TimeoutError:
                    continue
            assert said.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--upstream", "nowhere"], "upstream is"),
        (["--listen", "nowhere"], "listen is"),
        (["--listen", "off"], "listen must be"),
        (["--rules", "/nowhere.yaml"], "nowhere.yaml"),
        (["--store", "nothing"], "store is"),
        (["--trusted", "everybody"], "trusted"),
        (["--exempt", "health"], "exempt"),
        (["--exempt", "/a/../b"], "without '//', '/../' and the like"),
        (["--timeout", "soon"], "timeout"),
        (["--body-timeout", "soon"], "body-timeout"),
        (["--least-rate", "slow"], "least-rate must be bytes a second"),
        (["--least-rate", "-1"], "least-rate must be bytes a second"),
        (["--domain", "other"], "no domain 'other'"),
        (["--dimension", "user"], "dimension is NAME=SOURCE"),
    ],
)
def test_bad_arguments(
    wrong: list[str], said: str, rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["proxy", "--upstream", "http://127.0.0.1:1", "--rules", str(rules), "--no-watch",
             "--listen", "127.0.0.1:0"]  # fmt: skip
    assert main([*arguments, *wrong]) == 2
    assert said in capsys.readouterr().err


def test_rules_that_a_request_cannot_answer(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "rules.yaml").write_text("domain: a\ndescriptors: [{key: plan, limits: 1/hour}]")
    arguments = [
        "proxy",
        "--upstream",
        "http://127.0.0.1:1",
        "--rules",
        str(tmp_path / "rules.yaml"),
    ]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "nobody says what 'plan' is" in error
    assert "--dimension plan=header:NAME" in error
