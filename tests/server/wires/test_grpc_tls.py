"""TLS and mutual TLS, the same on both wires; certificates that are renewed."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest

from penstock.server.wires.h2.tls import ServerTLS
from server.wires.kit import NOW, needs_h2
from server.wires.serving import WIRES, Peer, Served, serve


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
