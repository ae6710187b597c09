"""HTTP and the admin API over TLS: real clients, mutual TLS, and certificates that are renewed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from running.e2e.conftest import Start
from running.e2e.running import PATIENCE, Penstock
from stores.redis_server import wait_until

RULES = "domain: api\ndescriptors: [{key: user, limits: 2/hour}]"
CHECK = {"descriptors": [{"user": "42"}]}


@pytest.fixture
def files(certificates: Path, tmp_path: Path) -> Path:
    """The server's certificate, key and authority, in files that a test can replace."""
    for name, copy in (
        ("server.pem", "mine.pem"),
        ("server.key", "mine.key"),
        ("ca.pem", "ca.pem"),
    ):
        shutil.copy(certificates / name, tmp_path / copy)
    return tmp_path


def options(files: Path, prefix: str, *, mutual: bool = False) -> list[str]:
    named = {"cert": "mine.pem", "key": "mine.key", **({"client-ca": "ca.pem"} if mutual else {})}
    return [
        word
        for name, file in named.items()
        for word in (f"--{prefix}tls-{name}", f"{files / file}")
    ]


def context(certificates: Path, client: str | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    if client is not None:
        made.load_cert_chain(certificates / f"{client}.pem", certificates / f"{client}.key")
    return made


@contextlib.contextmanager
def talking(where: str, tls: ssl.SSLContext) -> Iterator[httpx.Client]:
    port = where.rpartition(":")[2]
    with httpx.Client(
        base_url=f"https://localhost:{port}", verify=tls, trust_env=False, timeout=PATIENCE
    ) as client:
        yield client


def shown_name(where: str, tls: ssl.SSLContext) -> str:
    """Of the certificate that the server shows."""
    with (
        socket.create_connection(("127.0.0.1", int(where.rpartition(":")[2])), PATIENCE) as link,
        tls.wrap_socket(link, server_hostname="localhost") as secure,
    ):
        subject: Any = (secure.getpeercert() or {})["subject"]
        return str(subject[0][0][1])


def test_checks_and_health_over_tls(
    penstock_service: Start, certificates: Path, files: Path
) -> None:
    service = penstock_service(RULES, *options(files, "http-"), *options(files, "admin-"))
    tls = context(certificates)
    with talking(service.http, tls) as client:
        found = [client.post("/v1/check", json=CHECK).status_code for _ in range(3)]
        assert found == [200, 200, 429]
        assert client.get("/healthcheck").text == "OK"
    with talking(service.admin, tls) as client:
        assert "penstock_decisions_total" in client.get("/metrics").text
    # Without TLS there is no answer.
    for where in (service.http, service.admin):
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://{where}/healthcheck", trust_env=False, timeout=PATIENCE)


@pytest.mark.parametrize("prefix", ["http-", "admin-"])
def test_clients_need_a_certificate_of_the_authority(
    penstock_service: Start, certificates: Path, files: Path, prefix: str
) -> None:
    service = penstock_service(RULES, *options(files, prefix, mutual=True))
    where = service.http if prefix == "http-" else service.admin
    path = "/healthcheck"
    with talking(where, context(certificates, "client")) as client:
        assert client.get(path).status_code == 200
    for stranger in (None, "stranger"):
        tls = context(certificates, stranger)
        with talking(where, tls) as client, pytest.raises(httpx.TransportError):
            client.get(path)


def reloaded(service: Penstock) -> None:
    os.kill(service.process.pid, signal.SIGHUP)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_renewed_certificate_is_used_after_sighup(
    penstock_service: Start, certificates: Path, files: Path, workers: str
) -> None:
    more = [*options(files, "http-"), *options(files, "admin-"), "--no-watch", "--workers", workers]
    service = penstock_service(RULES, *more)
    tls = context(certificates)
    places = (service.http, service.admin)
    assert [shown_name(where, tls) for where in places] == ["server"] * 2
    for name in ("pem", "key"):
        shutil.copy(certificates / f"renewed.{name}", files / f"mine.{name}")
    reloaded(service)
    wait_until(
        lambda: {shown_name(where, tls) for where in places * 4} == {"renewed"},
        "the new certificate",
        PATIENCE,
    )
    # One that cannot be used changes nothing.
    (files / "mine.pem").write_text("no certificate")
    reloaded(service)
    service.said("the new certificate cannot be used, the old one stays")
    assert shown_name(service.http, tls) == "renewed"


def test_open_connections_of_a_replaced_authority_are_closed(
    penstock_service: Start, certificates: Path, files: Path
) -> None:
    service = penstock_service(RULES, *options(files, "http-", mutual=True))
    with (
        talking(service.http, context(certificates, "client")) as old,
        talking(service.http, context(certificates, "stranger")) as new,
    ):
        assert old.get("/healthcheck").status_code == 200
        shutil.copy(certificates / "other.pem", files / "ca.pem")  # watched: no signal is needed

        def is_shut_out() -> bool:
            try:
                return old.get("/healthcheck").status_code != 200
            except httpx.TransportError:
                return True

        wait_until(is_shut_out, "the end of the old connection", PATIENCE)
        assert new.get("/healthcheck").status_code == 200


def test_a_certificate_that_cannot_be_read(files: Path) -> None:
    (files / "mine.pem").unlink()
    (files / "rules.yaml").write_text(RULES)
    service = Penstock(files / "rules.yaml", *options(files, "http-"))
    assert service.process.wait(PATIENCE) == 1
    assert "the certificate for http cannot be used" in service.log
    service.end()
