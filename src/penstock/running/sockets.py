"""Listening sockets, opened before the workers start.

With several workers, each has its own socket on the same port (SO_REUSEPORT). The supervisor
keeps all of them open: connections to a worker that has died wait for its successor.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

from penstock.running.settings import SettingsError

Address = tuple[str, int] | str
BACKLOG = 4096


def listen(address: Address, count: int = 1) -> list[socket.socket]:
    """``count`` sockets on one address; for a Unix socket the same one, ``count`` times."""
    if isinstance(address, str):
        first = _unix(address)
        return [first, *[first.dup() for _ in range(count - 1)]]
    listeners: list[socket.socket] = []
    try:
        if count > 1:
            # Sharing a port never fails, so make sure first that no other program has it.
            _tcp(address, reuse=False).close()
        for _ in range(count):
            listeners.append(_tcp(address, reuse=count > 1))
            # Port 0: all share the port that the kernel chose for the first.
            address = (address[0], listeners[0].getsockname()[1])
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise _cannot_listen(address, error) from None
    return listeners


def reserve(address: tuple[str, int]) -> socket.socket:
    """Keep a port for a server that opens its own socket with SO_REUSEADDR or SO_REUSEPORT.

    This one is bound and does not listen, so it gets no connections.
    """
    try:
        reserved = _tcp(address, reuse=False, listening=False)
    except OSError as error:
        raise _cannot_listen(address, error) from None
    # Only now, so that binding fails if another program has the port.
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return reserved


def _cannot_listen(address: tuple[str, int], error: OSError) -> SettingsError:
    return SettingsError(f"cannot listen on {address[0]}:{address[1]}: {error.strerror}")


def _tcp(address: tuple[str, int], reuse: bool, listening: bool = True) -> socket.socket:
    host, port = address
    addresses = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
    )
    family, kind, protocol, _, name = min(addresses, key=lambda each: each[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Answers are small and must be sent at once. Accepted sockets inherit this.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(name)
        if listening:
            listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def free_path(path: str) -> None:
    """Make room for a Unix socket.

    A socket that no process listens on is removed; any other file is left alone.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise SettingsError(f"{path} exists and is not a socket")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
        except OSError as error:
            raise SettingsError(f"cannot listen on {path}: {error.strerror}") from None
        else:
            raise SettingsError(f"another process already listens on {path}")


def _unix(path: str) -> socket.socket:
    free_path(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise SettingsError(f"cannot listen on {path}: {error.strerror or error}") from None
    return listener


def describe(listener: socket.socket) -> str:
    """The address, as in settings."""
    name = listener.getsockname()
    if isinstance(name, str):
        return f"unix:{name}"
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
