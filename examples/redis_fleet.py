"""Two hosts that share one limit through Redis, and a server that does not answer.

Run it with a Redis server: REDIS_URL=redis://localhost:6379 python examples/redis_fleet.py
"""

import asyncio
import os
import uuid

from penstock import AsyncLimiter
from penstock.stores.redis import RedisStore

URL = os.environ.get("REDIS_URL", "redis://localhost:6379")


async def main() -> None:
    user = f"user:{uuid.uuid4().hex[:8]}"  # a key that is not in use
    # Two stores, as on two hosts: each has its own connections.
    async with RedisStore(URL, deadline="1s") as here, RedisStore(URL, deadline="1s") as there:
        print("Five per minute for two hosts:")
        for turn in range(3):
            for name, store in (("here", here), ("there", there)):
                decision = await AsyncLimiter("5/minute", store=store).hit(user)
                answer = "allowed" if decision else f"retry in {decision.retry_after:.1f} s"
                print(f"  turn {turn + 1}, {name}: {answer}, {decision.remaining} left")

    print("A server that does not answer; this process has a quarter of the limit:")
    dead = RedisStore("redis://127.0.0.1:9", on_failure="local", share=0.25)
    limiter = AsyncLimiter("20/minute", store=dead)
    admitted = [bool(await limiter.hit(user)) for _ in range(20)]
    print(f"  {sum(admitted)} of 20 allowed; store.state is {dead.state!r}")
    await dead.close_async()


asyncio.run(main())
