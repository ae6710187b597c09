"""Sockets that listen, made before anybody is there to accept.

With several workers each has a socket of its own on the same port (SO_REUSEPORT), and the
supervisor keeps all of them open: what comes for a worker that has died waits for the next.
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
    made: list[socket.socket] = []
    try:
        if count > 1:
            # Those who share a port are not told of each other: nobody else may be on it.
            _tcp(address, reuse=False).close()
        for _ in range(count):
            made.append(_tcp(address, reuse=count > 1))
            address = (address[0], made[0].getsockname()[1])  # port 0: all share what came
    except OSError as error:
        for each in made:
            each.close()
        raise _cannot(address, error) from None
    return made


def reserve(address: tuple[str, int]) -> socket.socket:
    """Keeps a port for those who listen by themselves, with SO_REUSEADDR or SO_REUSEPORT.

    It is bound and does not listen, so no connection comes to it.
    """
    try:
        made = _tcp(address, reuse=False, listening=False)
    except OSError as error:
        raise _cannot(address, error) from None
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # after: we must be alone on it
    return made


def _cannot(address: tuple[str, int], error: OSError) -> SettingsError:
    return SettingsError(f"cannot listen on {address[0]}:{address[1]}: {error.strerror}")


def _tcp(address: tuple[str, int], reuse: bool, listening: bool = True) -> socket.socket:
    host, port = address
    found = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
    )
    family, kind, protocol, _, place = sorted(found, key=lambda each: each[0] != socket.AF_INET)[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Answers are small: they must not wait to become larger. Accepted sockets inherit it.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.bind(place)
        if listening:
            made.listen(BACKLOG)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


def free_path(path: str) -> None:
    """See to it that a Unix socket can be made there.

    A path that nobody listens on any more is taken over; any other file is left alone.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise SettingsError(f"{path} is there, and is no socket")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
        except OSError as error:
            raise SettingsError(f"cannot listen on {path}: {error.strerror}") from None
        else:
            raise SettingsError(f"somebody listens on {path} already")


def _unix(path: str) -> socket.socket:
    free_path(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(path)
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise SettingsError(f"cannot listen on {path}: {error.strerror or error}") from None
    return made


def shown(listener: socket.socket) -> str:
    """As people write it."""
    name = listener.getsockname()
    if isinstance(name, str):
        return f"unix:{name}"
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
