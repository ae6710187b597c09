"""Pacing: calls that come all at once leave one by one, evenly.

A leaky bucket gives each caller the next place on an evenly paced line; `wait`
suspends until that place has come. When the line is full, a call is refused.

Run it: python examples/paced_calls.py
"""

import asyncio
import time

from penstock import AsyncLimiter

limiter = AsyncLimiter("20/second leaky_bucket burst 10")


async def call(number: int, start: float) -> str:
    decision = await limiter.wait("api.example.com")
    if not decision:
        return f"call {number:>2}: the line is full, come back in {decision.retry_after:.2f} s"
    left_at = time.monotonic() - start
    return f"call {number:>2}: left at {left_at:.2f} s  {' ' * round(left_at * 40)}*"


async def main() -> None:
    print("12 calls at once, 20 a second may leave, 10 fit into the line:")
    start = time.monotonic()
    for line in await asyncio.gather(*(call(number, start) for number in range(1, 13))):
        print(f"  {line}")


asyncio.run(main())
