"""Concurrency: two slots, a queue by priority, and fair turns between users.

Run it: python examples/concurrency.py
"""

import asyncio
import time

from penstock import AsyncConcurrencyLimiter, LineFull, WaitedTooLong
from penstock.concurrency import HIGH, LOW, NORMAL

concurrency = AsyncConcurrencyLimiter(2, waiting=6, fair=True)


async def transcode(video: str, user: str, priority: int, start: float) -> str:
    try:
        async with concurrency.slot("transcode", priority=priority, by=user, timeout=0.5) as hold:
            began = time.monotonic() - start
            await asyncio.sleep(0.1)
            return f"{video:<14} began at {began:.1f} s, waited for {hold.waited:.1f} s"
    except LineFull:
        return f"{video:<14} the queue is full: retry later (429)"
    except WaitedTooLong as error:
        return f"{video:<14} {error.reason} (504)"


async def main() -> None:
    print("2 run at once, 6 may wait. Ann submits nine videos first; then come Bob and an alarm:")
    start = time.monotonic()
    wanted = [(f"ann's {number}", "ann", NORMAL) for number in range(1, 9)]
    wanted += [("ann's backup", "ann", LOW)]
    wanted += [("bob's 1", "bob", NORMAL), ("bob's 2", "bob", NORMAL), ("alarm", "ops", HIGH)]
    for line in await asyncio.gather(*(transcode(*each, start) for each in wanted)):
        print(f"  {line}")


asyncio.run(main())
