"""Ending tasks for certain."""

from __future__ import annotations

import asyncio


async def cancel(task: asyncio.Task[None]) -> None:
    """End a task. Libraries that it calls may swallow a cancellation: then it takes another."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.05)
