"""The handshake: what a new connection must pass before any decision is sent over it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import hiredis

from penstock.errors import StoreUnavailable
from penstock.stores.redis.connection import Connection
from penstock.stores.redis.settings import Script
from penstock.stores.redis.wire import decode, encode


async def handshake(connection: Connection, script: Script, deadline: float) -> int:
    """Make sure that the server can decide, has the script, and answers in time.

    Returns the server's time, in nanoseconds since 1970.
    """
    role = await _if_permitted(connection.call("ROLE"))
    if type(role) is list and role and role[0] != b"master":
        raise StoreUnavailable("READONLY it is a replica")
    loaded = await _if_permitted(connection.call("SCRIPT", "LOAD", script.text))
    how = ("EVALSHA", script.sha) if loaded else ("EVAL", script.text)
    nothing = [*encode([], 0), *script.more_arguments()]
    try:
        async with asyncio.timeout(deadline):
            reply = await connection.call(*how, *nothing)
    except TimeoutError:
        raise StoreUnavailable("it answers, but slower than the deadline") from None
    return decode(reply, [])[0]


async def _if_permitted(call: Awaitable[Any]) -> Any:
    """The reply; None if an access list forbids the command, as it need not forbid the script."""
    try:
        return await call
    except hiredis.ReplyError as error:
        if str(error).startswith("NOPERM"):
            return None
        raise
