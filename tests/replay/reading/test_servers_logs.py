"""Logs that real servers wrote: every request is read, with its path, status and address."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from deploy.proxies import envoy_binary, free_port
from penstock.integrations.deciding.identity import Trust
from penstock.replay import read_log, simulate
from penstock.replay.reading.guessing import format_of

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
PATHS = ["/", "/login?user=1", "/a%20b", '/"quoted"', "/login"]
AGENT = 'curl/8 "odd" \\agent'
RULES = {
    "domain": "web",
    "descriptors": [
        {"key": "path", "value": "/login", "limits": "1/hour"},
        {"key": "remote_address", "limits": "100/hour"},
    ],
}


@contextlib.contextmanager
def running(
    command: list[str], port: int, out: IO[bytes] | int = subprocess.DEVNULL
) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            assert process.poll() is None, "the server has ended"
            time.sleep(0.05)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def send(port: int) -> None:
    for path in PATHS:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.putrequest("GET", path, skip_host=False)
        connection.putheader("User-Agent", AGENT)
        connection.putheader("X-Forwarded-For", "198.51.100.9")
        connection.endheaders()
        connection.getresponse().read()
        connection.close()


def wait_for_lines(log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if log.exists() and len(log.read_bytes().splitlines()) >= len(PATHS):
            return
        time.sleep(0.05)
    raise AssertionError(f"{log.name} has too few lines")


def check(log: Path, log_format: str, address: bytes) -> None:
    requests = read_log(log, format=log_format)
    blocks = list(requests.blocks())
    assert requests.malformed == 0
    (block,) = blocks
    assert block.n == len(PATHS)
    columns = dict(
        zip(requests.words, zip(block.words, requests.interners, strict=True), strict=True)
    )
    texts = {
        name: [interner.text(column[at]) for at in range(block.n)]
        for name, (column, interner) in columns.items()
    }
    assert len(set(texts["target"])) == 4  # two of the five differ in the query alone
    assert texts["target"].count(b"/login") == 2
    seen = texts["header:x-forwarded-for"] if "peer" not in texts else texts["peer"]
    assert set(seen) == {address}
    assert list(block.times[: block.n]) == sorted(block.times[: block.n])
    assert abs(block.times[0] / 1e9 - time.time()) < 600
    report = simulate(RULES, read_log(log, format=log_format))
    assert report.rule("web/path=%2Flogin").asked == 2
    assert report.rule("web/path=%2Flogin").refused == 1


NGINX_FORMATS = {
    "combined": "",
    "json": 'log_format json escape=json \'{"at":"$msec","ip":"$remote_addr",'
    '"took":$request_time,"path":"$request_uri","agent":"$http_user_agent"}\';',
    "own": "log_format own '$remote_addr|$msec|$request_time|\"$request\"|$status|'\n"
    "    '\"$http_user_agent\"|$http_x_forwarded_for';",
}


@pytest.mark.skipif(NGINX is None, reason="needs nginx")
@pytest.mark.parametrize("name", NGINX_FORMATS)
def test_nginx(name: str, tmp_path: Path) -> None:
    assert NGINX is not None
    port = free_port()
    log = tmp_path / "access.log"
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log;\nevents {{}}\n"
        f"http {{\n{NGINX_FORMATS[name]}\naccess_log {log} {name};\n"
        + "".join(
            f"{kind}_temp_path {tmp_path}/{kind};\n"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        + f"server {{ listen 127.0.0.1:{port}; location / {{ return 200 ok; }} }}\n}}\n"
    )
    with running([NGINX, "-c", str(conf), "-p", str(tmp_path)], port):
        send(port)
        wait_for_lines(log)
    lines = log.read_bytes().splitlines()
    # Given by the configuration; and the usual ones are found by themselves.
    check(log, "combined" if name == "combined" else f"{conf}", b"127.0.0.1")
    if name != "own":
        assert format_of(lines).name == {"combined": "combined", "json": "JSON lines"}[name]
        check(log, "", b"127.0.0.1")


TYPES = "type.googleapis.com/envoy.extensions"
ENVOY = envoy_binary()
ENVOY_FORMATS = {
    "default": "",
    "own": "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT% %START_TIME% %REQ(:METHOD)%"
    " %REQ(:PATH)% %RESPONSE_CODE% %DURATION% '%REQ(USER-AGENT)%'",
}


@pytest.mark.skipif(ENVOY is None, reason="needs Envoy")
@pytest.mark.parametrize("name", ENVOY_FORMATS)
def test_envoy(name: str, tmp_path: Path) -> None:
    assert ENVOY is not None
    port, log = free_port(), tmp_path / "access.log"
    own = ENVOY_FORMATS[name]
    written = (
        f'log_format: {{ text_format_source: {{ inline_string: "{own}\\n" }} }}' if own else ""
    )
    conf = tmp_path / "envoy.yaml"
    conf.write_text(f"""
static_resources:
  listeners:
    - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": {TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: http
                access_log:
                  - name: file
                    typed_config:
                      "@type": {TYPES}.access_loggers.file.v3.FileAccessLog
                      path: {log}
                      {written}
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
                        - match: {{ prefix: "/" }}
                          direct_response: {{ status: 200 }}
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": {TYPES}.filters.http.router.v3.Router
""")
    command = [ENVOY, "-c", str(conf), "--concurrency", "1", "--disable-hot-restart"]
    with running([*command, "--log-level", "error"], port):
        send(port)
    wait_for_lines(log)
    if own:
        check(log, own, b"127.0.0.1")
    else:
        # Its default has no address but that of X-Forwarded-For.
        check(log, "", b"198.51.100.9")
        assert format_of(log.read_bytes().splitlines()).name == "envoy"
        check_forwarded(log)


def check_forwarded(log: Path) -> None:
    """The client is in X-Forwarded-For, which counts where its proxies are trusted."""
    rules = {"domain": "web", "descriptors": [{"key": "remote_address", "limits": "2/hour"}]}
    assert simulate(rules, log).rule("web/remote_address").top[0].key == "remote_address=unknown"
    report = simulate(rules, log, trust=Trust(["10.0.0.0/8"]))
    (client,) = report.rule("web/remote_address").top
    assert (client.key, client.asked, client.refused) == ("remote_address=198.51.100.9", 5, 3)
    # A client that is itself one of the trusted: nothing stands before it.
    trusted = simulate(rules, log, trust=Trust(["198.51.100.0/24"]))
    assert trusted.rule("web/remote_address").top[0].key == "remote_address=198.51.100.9"


HAPROXY = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
HAPROXY_CONF = """
global
  {log}
defaults
  mode http
  log global
  option httplog
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend web
  bind 127.0.0.1:{port}
  {capture}
  http-request return status 200 content-type text/plain string ok
"""


@pytest.mark.skipif(HAPROXY is None, reason="needs HAProxy")
@pytest.mark.parametrize("capture", ["", "capture request header User-Agent len 64"])
def test_haproxy_in_a_container(capture: str, tmp_path: Path) -> None:
    """It writes to standard output, without what syslog would put before a line."""
    assert HAPROXY is not None
    port, conf, log = free_port(), tmp_path / "haproxy.cfg", tmp_path / "access.log"
    written = "log stdout format raw local0 info"
    conf.write_text(HAPROXY_CONF.format(log=written, port=port, capture=capture))
    with log.open("wb") as out, running([HAPROXY, "-db", "-f", str(conf)], port, out):
        send(port)
        wait_for_lines(log)
    keep_requests(log)
    assert format_of(log.read_bytes().splitlines()).name == "haproxy"
    check(log, "", b"127.0.0.1")
    check(log, "haproxy", b"127.0.0.1")


@pytest.mark.skipif(HAPROXY is None, reason="needs HAProxy")
def test_haproxy_to_syslog(tmp_path: Path) -> None:
    assert HAPROXY is not None
    port, conf, log = free_port(), tmp_path / "haproxy.cfg", tmp_path / "access.log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as syslog:
        syslog.bind(str(tmp_path / "log"))
        syslog.settimeout(60)
        written = f"log {tmp_path}/log local0 info"
        conf.write_text(HAPROXY_CONF.format(log=written, port=port, capture=""))
        with running([HAPROXY, "-db", "-f", str(conf)], port):
            send(port)
            lines: list[bytes] = []
            while sum(b'"GET ' in line for line in lines) < len(PATHS):
                lines.append(syslog.recv(65536))
    # As syslogd writes it: without the priority.
    log.write_bytes(b"\n".join(re.sub(rb"^<\d+>", b"", line).strip() for line in lines) + b"\n")
    keep_requests(log)
    check(log, "", b"127.0.0.1")


def keep_requests(log: Path) -> None:
    """Without what it says when it starts, and about the connection that only looked."""
    lines = [line for line in log.read_bytes().splitlines() if b'"GET ' in line]
    log.write_bytes(b"\n".join(lines) + b"\n")
