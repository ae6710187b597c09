"""TLS and mutual TLS, the same on both wires; certificates that are renewed."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest

from penstock.running.listeners import Sockets
from penstock.running.settings import Settings
from penstock.running.sockets import listen
from penstock.running.worker import Worker
from penstock.wires.grpc.h2.limits import Limits
from penstock.wires.tls import ServerTLS
from service.service_kit import USER, gate_of
from wires.grpc.frames import GOAWAY, HELLO, PING, SETTINGS, frame, request
from wires.grpc.kit import NOW, WAIT, WATCH, needs_h2
from wires.grpc.serving import WIRES, Peer, Served, serve


def channel(served: Served, folder: Path, client: str | None = None) -> grpc.aio.Channel:
    pair = {}
    if client is not None:
        pair = {
            "private_key": (folder / f"{client}.key").read_bytes(),
            "certificate_chain": (folder / f"{client}.pem").read_bytes(),
        }
    credentials = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes(), **pair)
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.secure_channel(f"localhost:{served.port}", credentials, options=options)


@pytest.fixture
def renewable(certificates: Path, tmp_path: Path) -> Callable[[str], ServerTLS]:
    """Files that hold one certificate, and then another."""

    def copy(name: str) -> ServerTLS:
        for suffix in (".pem", ".key"):
            shutil.copy(certificates / f"{name}{suffix}", tmp_path / f"mine{suffix}")
        return ServerTLS(tmp_path / "mine.pem", tmp_path / "mine.key")

    return copy


@pytest.mark.parametrize("wire", WIRES)
async def test_a_call_over_tls(wire: str, certificates: Path) -> None:
    tls = ServerTLS(certificates / "server.pem", certificates / "server.key")
    async with serve(wire, tls=tls) as served:
        async with channel(served, certificates) as secure:
            assert await secure.unary_unary(NOW)(b"x" * 100_000) == b"x" * 100_000
        async with served.channel() as plain:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await plain.unary_unary(NOW)(b"x", timeout=5)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("client", "welcome"), [("client", True), (None, False), ("stranger", False)]
)
async def test_mutual_tls(wire: str, certificates: Path, client: str | None, welcome: bool) -> None:
    tls = ServerTLS(
        certificates / "server.pem", certificates / "server.key", certificates / "ca.pem"
    )
    async with serve(wire, tls=tls) as served, channel(served, certificates, client) as secure:
        call = secure.unary_unary(NOW)(b"x", timeout=5)
        if welcome:
            assert await call == b"x"
        else:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert served.echo.calls == welcome


async def name_of(served: Served, folder: Path) -> tuple[str, str | None]:
    """Whose certificate the server shows, and which protocol it chose."""
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.set_alpn_protocols(["h2"])
    peer = await Peer.to(served.port, ssl=context, server_hostname="localhost")
    secured = peer.writer.get_extra_info("ssl_object")
    subject = dict(pair for entry in secured.getpeercert()["subject"] for pair in entry)
    chosen = secured.selected_alpn_protocol()
    await peer.close()
    return subject["commonName"], chosen


@pytest.mark.parametrize("wire", WIRES)
async def test_certificates_are_renewed(
    wire: str, certificates: Path, tmp_path: Path, renewable: Callable[[str], ServerTLS]
) -> None:
    tls = renewable("server")
    async with serve(wire, tls=tls) as served, channel(served, certificates) as old:
        assert await old.unary_unary(NOW)(b"x") == b"x"
        assert await name_of(served, certificates) == ("server", "h2")
        renewable("other")
        tls.reload()
        assert await name_of(served, certificates) == ("other", "h2")
        assert await old.unary_unary(NOW)(b"y") == b"y"  # connections that stand go on
        (tmp_path / "mine.pem").write_text("broken")
        with pytest.raises(ssl.SSLError):
            tls.reload()
        if wire == "h2":
            assert await name_of(served, certificates) == ("other", "h2")
            assert served.server.counts()["connections"] == 4


@needs_h2
async def test_tls_without_alpn_is_taken(certificates: Path) -> None:
    tls = ServerTLS(certificates / "server.pem", certificates / "server.key")
    async with serve("h2", tls=tls) as served:
        context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        peer = await Peer.to(served.port, ssl=context, server_hostname="localhost")
        assert (await peer.hear(4)).kind == 4
        await peer.close()


def test_a_missing_file_is_said_at_once(certificates: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ServerTLS(certificates / "none.pem", certificates / "server.key")
    with pytest.raises(ssl.SSLError):
        ServerTLS(certificates / "server.pem", certificates / "other.key")


# Another authority ---------------------------------------------------------------------------

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class Caller:
    """A client that keeps its TLS session, as Envoy and Java do."""

    def __init__(self, folder: Path, name: str, version: str = "1.3") -> None:
        self._context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        self._context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
        self._context.set_alpn_protocols(["h2"])
        self._context.minimum_version = self._context.maximum_version = VERSIONS[version]
        self.session: ssl.SSLSession | None = None
        self.resumed: bool | None = False

    def _call(self, port: int) -> bool:
        try:
            with (
                socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
                self._context.wrap_socket(
                    plain, server_hostname="localhost", session=self.session
                ) as secured,
            ):
                secured.sendall(HELLO + request(NOW, b"are you there?"))
                heard = b""
                while b"are you there?" not in heard:
                    data = secured.recv(65_536)
                    if not data:
                        return False
                    heard += data
                self.session, self.resumed = secured.session, secured.session_reused
                return True
        except (ssl.SSLError, ConnectionError):
            return False

    async def call(self, served: Served) -> bool:
        """Whether it was answered."""
        return await asyncio.to_thread(self._call, served.port)


@pytest.fixture
def mutual(certificates: Path, tmp_path: Path) -> ServerTLS:
    """Lets in the clients of ``authority.pem``, which can be replaced."""
    shutil.copy(certificates / "ca.pem", tmp_path / "authority.pem")
    return ServerTLS(
        certificates / "server.pem", certificates / "server.key", tmp_path / "authority.pem"
    )


def replace_authority(certificates: Path, tmp_path: Path, name: str) -> None:
    shutil.copy(certificates / f"{name}.pem", tmp_path / "authority.pem")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_session_is_not_resumed_under_another_authority(
    wire: str, version: str, certificates: Path, tmp_path: Path, mutual: ServerTLS
) -> None:
    old, new = Caller(certificates, "client", version), Caller(certificates, "stranger", version)
    async with serve(wire, tls=mutual) as served:
        assert await old.call(served)
        assert not await new.call(served)
        assert old.session is not None
        assert await old.call(served)
        assert old.resumed is (wire == "h2")  # grpcio begins each handshake anew
        assert mutual.reload() is False
        assert await old.call(served)
        assert old.resumed is False
        replace_authority(certificates, tmp_path, "stranger-ca")
        assert mutual.reload() is True
        assert not await old.call(served)
        assert await new.call(served)


@needs_h2
async def test_connections_of_another_authority_are_closed(
    certificates: Path, tmp_path: Path, mutual: ServerTLS
) -> None:
    """What is under way is answered, and who has the right certificate comes again unnoticed."""
    both = (certificates / "ca.pem").read_bytes() + (certificates / "stranger-ca.pem").read_bytes()
    async with (
        serve("h2", Limits(handshake_seconds=0.3), tls=mutual) as served,
        channel(served, certificates, "client") as old,
    ):
        assert await old.unary_unary(NOW)(b"x") == b"x"
        slow = asyncio.create_task(_result(old.unary_unary(WAIT)(b"slow", timeout=10)))
        watch = old.unary_stream(WATCH)(b"1 1 wait", timeout=10)
        assert await watch.read() == b"0x"
        while "waits" not in served.echo.notes:
            await asyncio.sleep(0.01)
        (tmp_path / "authority.pem").write_bytes(both)
        assert mutual.reload() is True
        again = asyncio.create_task(served.server.readmit(mutual.admits, grace=1.0))
        await asyncio.sleep(0.2)
        served.echo.go_on.set()
        assert await slow == b"slow"
        await asyncio.wait_for(again, 60)
        assert await old.unary_unary(NOW)(b"y", wait_for_ready=True, timeout=5) == b"y"
        counts = served.server.counts()
        assert counts["connections"] == 2
        # Now it is not let in any more.
        replace_authority(certificates, tmp_path, "stranger-ca")
        assert mutual.reload() is True
        await served.server.readmit(mutual.admits, grace=1.0)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await old.unary_unary(NOW)(b"z", timeout=2)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert served.server.connections == 0
        async with channel(served, certificates, "stranger") as new:
            assert await new.unary_unary(NOW)(b"z", timeout=5) == b"z"
            await served.server.readmit(mutual.admits, grace=1.0)
            assert served.server.connections == 1  # it was let in by the one that counts


async def _result(call: grpc.aio.UnaryUnaryCall[bytes, bytes]) -> bytes:
    return await call


@needs_h2
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
async def test_a_handshake_has_its_time(certificates: Path, sent: bytes) -> None:
    """asyncio lets it take a minute."""
    tls = ServerTLS(certificates / "server.pem", certificates / "server.key")
    async with serve("h2", Limits(handshake_seconds=0.3), tls=tls) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()


@needs_h2
async def test_a_worker_closes_what_another_authority_has_let_in(
    certificates: Path, tmp_path: Path
) -> None:
    replace_authority(certificates, tmp_path, "ca")
    settings = Settings(
        http="off", grpc="127.0.0.1:0", wire="nghttp2",
        tls_cert=str(certificates / "server.pem"), tls_key=str(certificates / "server.key"),
        tls_client_ca=str(tmp_path / "authority.pem"),
    )  # fmt: skip
    rules = gate_of(USER).rules
    [listener] = listen(("127.0.0.1", 0))
    worker = Worker(settings, "memory", "1", None, rules)
    await worker.start(Sockets(grpc=listener))
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    context.load_cert_chain(certificates / "client.pem", certificates / "client.key")
    port = listener.getsockname()[1]
    try:
        peer = await Peer.to(port, ssl=context, server_hostname="localhost")
        await peer.hear(SETTINGS)
        assert await worker.apply({"do": "reload_tls"}) == {"ok": True, "result": None}
        await peer.say(frame(PING, 0, 0, b"12345678"))
        await peer.hear(PING)  # the same files: nothing happens
        replace_authority(certificates, tmp_path, "stranger-ca")
        assert (await worker.apply({"do": "reload_tls"}))["ok"]
        assert (await peer.hear(GOAWAY)).code == 0
        assert await peer.rest() is not None
        await peer.close()
    finally:
        await worker.drain(0.1)
