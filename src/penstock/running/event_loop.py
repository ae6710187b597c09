"""The event loop, uvloop where it is installed, and servers on it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like ``asyncio.run``."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.run(main)
    return uvloop.run(main)


async def start_server(
    factory: Callable[[], asyncio.BaseProtocol], listener: socket.socket, **options: Any
) -> asyncio.Server:
    """Accept connections on a TCP or Unix socket that already listens."""
    loop = asyncio.get_running_loop()
    unix = listener.family == socket.AF_UNIX
    create: Callable[..., Any] = loop.create_unix_server if unix else loop.create_server
    server: asyncio.Server = await create(factory, sock=listener, **options)
    return server
