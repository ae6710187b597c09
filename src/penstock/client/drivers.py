"""Two ways to run a call: block this thread, or suspend this task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from penstock import flows
from penstock.client.calls import Call, Keep, Send, Tries
from penstock.steps import CallCounters, Pause


def run(call: Call, send: Callable[[], Any], keep: Callable[[Any], Any]) -> tuple[Any, Tries]:
    """Run a call to its end, blocking."""

    def do(step: CallCounters | Pause | Send | Keep) -> Any:
        if isinstance(step, Send):
            return send()
        return keep(step.response) if isinstance(step, Keep) else step.run()

    return flows.run(call, do)


async def run_async(
    call: Call,
    send: Callable[[], Awaitable[Any]],
    keep: Callable[[Any], Awaitable[Any]],
) -> tuple[Any, Tries]:
    """Run a call to its end, suspending."""

    def do(step: CallCounters | Pause | Send | Keep) -> Awaitable[Any]:
        if isinstance(step, Send):
            return send()
        return keep(step.response) if isinstance(step, Keep) else step.run_async()

    return await flows.run_async(call, do)
