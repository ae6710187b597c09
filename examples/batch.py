"""Batching: a hundred tasks that fetch one user each share a few calls.

Run it: python examples/batch.py
"""

import asyncio

from penstock.client import batch


@batch(size=40, within=0.01)
async def fetch_user(numbers: list[int]) -> list[str]:
    """Fetches up to forty users in one call; each caller passes one number and gets one name."""
    print(f"one call for {len(numbers)} users")
    await asyncio.sleep(0.02)
    return [f"user {number}" for number in numbers]


async def main() -> None:
    names = await asyncio.gather(*(fetch_user(number) for number in range(100)))
    print(f"{len(names)} names, from {names[0]!r} to {names[-1]!r}")
    await fetch_user.close()


asyncio.run(main())
