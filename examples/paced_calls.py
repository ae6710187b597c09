"""Pacing: calls that arrive at once leave one by one, at an even pace.

A leaky bucket gives each caller the next place in an evenly paced queue, and `wait`
suspends until its time has come. When the queue is full, a call is refused.

Run it: python examples/paced_calls.py
"""

import asyncio
import time

from penstock import AsyncLimiter

limiter = AsyncLimiter("20/second leaky_bucket burst 10")


async def call(number: int, start: float) -> str:
    decision = await limiter.wait("api.example.com")
    if not decision:
        return f"call {number:>2}: the queue is full, retry in {decision.retry_after:.2f} s"
    left_at = time.monotonic() - start
    return f"call {number:>2}: left at {left_at:.2f} s  {' ' * round(left_at * 40)}*"


async def main() -> None:
    print("12 calls arrive at once, 20 per second may leave, 10 fit into the queue:")
    start = time.monotonic()
    for line in await asyncio.gather(*(call(number, start) for number in range(1, 13))):
        print(f"  {line}")


asyncio.run(main())
