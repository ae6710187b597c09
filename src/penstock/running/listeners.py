"""The sockets that the workers listen on, and the implementation of gRPC for them."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass

from penstock.running.settings import Settings, SettingsError, address_of
from penstock.running.sockets import Address, describe, free_path, listen, reserve

NGHTTP2, GRPCIO = "nghttp2", "grpcio"


@dataclass(frozen=True, slots=True)
class Sockets:
    """The sockets of one worker; None where a wire is off."""

    http: socket.socket | None = None
    grpc: socket.socket | None = None


def choose_wire(settings: Settings) -> str:
    """The implementation of gRPC: "nghttp2", "grpcio" or "off"."""
    if settings.grpc == "off":
        return "off"
    from penstock.wires.grpc import h2

    if settings.wire != GRPCIO and h2.available():
        return NGHTTP2
    if settings.wire == NGHTTP2:
        raise SettingsError(
            "the nghttp2 wire is not available: libnghttp2-dev was missing when Penstock was built"
        )
    try:
        import grpc  # noqa: F401  # only to see whether it is installed
    except ModuleNotFoundError:
        raise SettingsError(
            "gRPC needs nghttp2, which was missing when Penstock was built, or grpcio:"
            " pip install 'penstock[grpc]'; or turn it off: --grpc off"
        ) from None
    return GRPCIO


class Listeners:
    """The sockets of all workers, open until ``stack`` closes."""

    def __init__(self, settings: Settings, wire: str, stack: contextlib.AsyncExitStack) -> None:
        self._settings = settings
        self._count = settings.workers
        self._stack = stack
        self.addresses: dict[str, str] = {}  # by wire
        http = self._open("http")
        grpc = self._reserve_for_grpcio() if wire == GRPCIO else self._open("grpc")
        self.sockets = [Sockets(*pair) for pair in zip(http, grpc, strict=True)]

    def _open(self, wire: str) -> list[socket.socket] | list[None]:
        address = self._address(wire)
        if address is None:
            return [None] * self._count
        listeners = listen(address, self._count)
        for listener in listeners:
            self._stack.callback(listener.close)
        self.addresses[wire] = describe(listeners[0])
        if isinstance(address, str):
            self._stack.callback(_unlink, address, os.stat(address).st_ino)
        return listeners

    def _reserve_for_grpcio(self) -> list[socket.socket] | list[None]:
        """grpcio opens its own sockets: keep the port for it."""
        address = self._address("grpc")
        if isinstance(address, tuple):
            reserved = reserve(address)
            self._stack.callback(reserved.close)
            self.addresses["grpc"] = describe(reserved)
            return [reserved] * self._count
        if address is not None:
            if self._count > 1:
                raise SettingsError(
                    "grpcio cannot share a Unix socket between workers: use --workers 1, or a port"
                )
            free_path(address)
            self.addresses["grpc"] = self._settings.grpc
        return [None] * self._count

    def _address(self, wire: str) -> Address | None:
        return address_of(getattr(self._settings, wire), wire)


def _unlink(path: str, inode: int) -> None:
    """Remove a Unix socket, unless another process has put its own there."""
    with contextlib.suppress(FileNotFoundError):
        if os.stat(path).st_ino == inode:
            os.unlink(path)
