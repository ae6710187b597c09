"""What Envoy does when Penstock is away, leaves, or does not let it in."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.wires.grpc import h2
from running.e2e.conftest import Start
from running.e2e.gateways import DEPLOY, EnvoyConfig, upstream_tls
from running.e2e.running import PATIENCE, Running, ask, reserved_port, statuses
from stores.redis_server import wait_until

LIMITED = [{"actions": [{"request_headers": {"header_name": "x-user", "descriptor_key": "user"}}]}]
RULES = "domain: edge\ndescriptors:\n  - key: user\n    limits: 2/hour\n"
WIRES = [
    pytest.param(
        "nghttp2",
        marks=pytest.mark.skipif(not h2.available(), reason="the nghttp2 extension was not built"),
    ),
    "grpcio",
]


class Edge:
    """Listeners of one Envoy, made before it starts."""

    def __init__(self, app: int, stack: ExitStack) -> None:
        self._stack = stack
        self._admin = stack.enter_context(reserved_port())
        self.config = EnvoyConfig(app, self._admin)
        self.running: Running | None = None

    def listen(self, service: str, **options: object) -> str:
        port = self._stack.enter_context(reserved_port())
        options.setdefault("rate_limits", LIMITED)
        self.config.listen(port, service, **options)  # type: ignore[arg-type]  # as it has them
        return f"127.0.0.1:{port}"

    def start(self) -> None:
        self.running = self.config.start()
        self._stack.callback(self.running.end)

    def stat(self, name: str) -> int:
        stats = json.loads(
            ask(f"127.0.0.1:{self._admin}", f"/stats?format=json&filter={name}").body
        )
        return sum(each["value"] for each in stats["stats"] if "value" in each)


@pytest.fixture
def edge(app: int) -> Iterator[Edge]:
    with ExitStack() as stack:
        yield Edge(app, stack)


@pytest.mark.parametrize("wire", WIRES)
def test_penstock_leaves_comes_back_and_is_killed(
    wire: str, penstock_service: Start, edge: Edge
) -> None:
    with reserved_port() as port:
        where = ("--grpc", f"127.0.0.1:{port}", "--wire", wire)
        first = penstock_service(RULES, *where)
        opened = edge.listen(first.grpc, failure_mode_deny=False)
        closed = edge.listen(first.grpc, failure_mode_deny=True)
        told = edge.listen(
            first.grpc, failure_mode_deny=True, status_on_error={"code": "ServiceUnavailable"}
        )
        edge.start()
        assert statuses(opened, 3, x_user="a") == [200, 200, 429]
        assert statuses(closed, 3, x_user="b") == [200, 200, 429]

        # SIGTERM, while Envoy holds connections: it is told to go, and no question is lost.
        assert first.end() == 0, first.log
        assert edge.stat("upstream_cx_destroy_remote_with_active_rq") == 0
        assert edge.stat("ratelimit.error") == 0

        def while_away() -> list[int]:
            return [*statuses(opened, 3, x_user="a"), *statuses(closed, 2, x_user="b"),
                    *statuses(told, 1, x_user="b"), *statuses(closed, 1)]  # fmt: skip

        # The last has no descriptor: Penstock is not asked.
        assert while_away() == [200, 200, 200, 500, 500, 503, 200]

        second = penstock_service(RULES, *where)
        wait_until(lambda: statuses(closed, 1, x_user="-") != [500], "Envoy to ask again", PATIENCE)
        assert statuses(closed, 3, x_user="c") == [200, 200, 429]
        assert statuses(opened, 3, x_user="c")[-1] == 429

        second.kill()
        assert while_away() == [200, 200, 200, 500, 500, 503, 200]


def test_a_client_that_shows_no_certificate_of_ours_is_not_answered(
    penstock_service: Start, edge: Edge, certificates: Path, tmp_path: Path
) -> None:
    shutil.copytree(certificates, tmp_path / "theirs")
    for kind in ("pem", "key"):
        shutil.copy(certificates / f"stranger.{kind}", tmp_path / "theirs" / f"client.{kind}")
    nobody = upstream_tls(certificates)
    del nobody["typed_config"]["common_tls_context"]["tls_certificates"]
    service = penstock_service(
        RULES, "--tls-cert", str(certificates / "server.pem"),
        "--tls-key", str(certificates / "server.key"),
        "--tls-client-ca", str(certificates / "ca.pem"),
    )  # fmt: skip
    deny = {"failure_mode_deny": True}
    good = edge.listen(service.grpc, tls=upstream_tls(certificates), **deny)
    bad = [
        edge.listen(service.grpc, tls=tls, **deny)
        for tls in (upstream_tls(tmp_path / "theirs"), nobody, None)
    ]
    edge.start()
    assert statuses(good, 3, x_user="a") == [200, 200, 429]
    assert [ask(each, x_user="b").status for each in bad] == [500] * 3


def test_certificates_are_renewed_while_it_runs(
    penstock_service: Start, certificates: Path, tmp_path: Path
) -> None:
    for kind in ("pem", "key"):
        shutil.copy(certificates / f"server.{kind}", tmp_path / f"used.{kind}")
    service = penstock_service(
        RULES, "--tls-cert", str(tmp_path / "used.pem"), "--tls-key", str(tmp_path / "used.key")
    )
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    context.set_alpn_protocols(["h2"])

    def shown() -> str:
        host, _, port = service.grpc.rpartition(":")
        with (
            socket.create_connection((host, int(port)), PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as link,
        ):
            return str(link.getpeercert()["subject"][0][0][1])  # type: ignore[index]  # it has one

    assert shown() == "server"
    (tmp_path / "used.key").write_text("broken")
    service.said("certificate cannot be used")
    assert shown() == "server"
    for kind in ("pem", "key"):
        shutil.copy(certificates / f"renewed.{kind}", tmp_path / f"used.{kind}")
    wait_until(lambda: shown() == "renewed", "the new certificate", PATIENCE)


def test_the_shipped_configuration_and_rules_go_together(
    penstock_service: Start, edge: Edge
) -> None:
    service = penstock_service(DEPLOY / "rules/edge.yaml")
    edge_port = edge.listen(service.grpc, rate_limits=None)
    edge.start()
    answer = ask(edge_port)
    assert answer.headers["x-ratelimit-limit"] == "200", "100/minute burst 200: 200 at once"
    trial = [ask(edge_port, x_api_key="trial") for _ in range(11)]
    assert [each.status for each in trial] == [200] * 10 + [429]
    assert ask(edge_port, x_api_key="another").status == 200
