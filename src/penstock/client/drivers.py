"""Two ways to drive a call: block this thread, or suspend this task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from penstock import flows
from penstock.client.calls import Call, Keep, Send, Tries, Wait
from penstock.drivers import drive, drive_async


def run(call: Call, send: Callable[[], Any], keep: Callable[[Any], Any]) -> tuple[Any, Tries]:
    """Run a call to its end, blocking."""

    def do(step: Wait | Send | Keep) -> Any:
        if isinstance(step, Send):
            return send()
        return drive(step.flow) if isinstance(step, Wait) else keep(step.response)

    return flows.run(call, do)


async def run_async(
    call: Call,
    send: Callable[[], Awaitable[Any]],
    keep: Callable[[Any], Awaitable[Any]],
) -> tuple[Any, Tries]:
    """Run a call to its end, suspending."""

    async def do(step: Wait | Send | Keep) -> Any:
        if isinstance(step, Send):
            return await send()
        return await (drive_async(step.flow) if isinstance(step, Wait) else keep(step.response))

    return await flows.run_async(call, do)
