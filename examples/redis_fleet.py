"""Two hosts, one limit, through Redis; and what happens when the server does not answer.

Run it beside a server: REDIS_URL=redis://localhost:6379 python examples/redis_fleet.py
"""

import asyncio
import os
import uuid

from penstock import AsyncLimiter
from penstock.stores.redis import RedisStore

URL = os.environ.get("REDIS_URL", "redis://localhost:6379")


async def main() -> None:
    user = f"user:{uuid.uuid4().hex[:8]}"  # nobody has used it yet
    # Two stores as two hosts would have them: each has connections of its own.
    async with RedisStore(URL, deadline="1s") as here, RedisStore(URL, deadline="1s") as there:
        print("Five a minute over two hosts:")
        for turn in range(3):
            for name, store in (("here", here), ("there", there)):
                decision = await AsyncLimiter("5/minute", store=store).hit(user)
                answer = "allowed" if decision else f"refused for {decision.retry_after:.1f} s"
                print(f"  turn {turn + 1}, {name}: {answer}, {decision.remaining} left")

    print("A server that does not answer, and a process that has a quarter of the limit:")
    dead = RedisStore("redis://127.0.0.1:9", on_failure="local", share=0.25)
    limiter = AsyncLimiter("20/minute", store=dead)
    admitted = [bool(await limiter.hit(user)) for _ in range(20)]
    print(f"  {sum(admitted)} of 20 allowed; store.state is {dead.state!r}")
    await dead.close_async()


asyncio.run(main())
