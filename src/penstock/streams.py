"""Items of a stream, each of which passes a limit first: `Limiter.limited`."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

from penstock.decision import Decision
from penstock.errors import LimitExceeded

Item = TypeVar("Item")

WAIT, DROP, RAISE = "wait", "drop", "raise"


def check_on_refused(on_refused: str) -> str:
    if on_refused not in (WAIT, DROP, RAISE):
        raise ValueError(f"on_refused is 'wait', 'drop' or 'raise', not {on_refused!r:.100}")
    return on_refused


def limited(
    items: Iterable[Item], key: str, decide: Callable[[], Decision], on_refused: str
) -> Iterator[Item]:
    """The items, each after a decision. A refused one is dropped, or raises `LimitExceeded`."""
    for item in items:
        decision = decide()
        if decision:
            yield item
        elif on_refused != DROP:
            raise LimitExceeded(key, decision)


async def limited_async(
    items: AsyncIterable[Item] | Iterable[Item],
    key: str,
    decide: Callable[[], Awaitable[Decision]],
    on_refused: str,
) -> AsyncIterator[Item]:
    """`limited` for coroutines, which also takes what is not async."""
    async for item in items if isinstance(items, AsyncIterable) else _as_async(items):
        decision = await decide()
        if decision:
            yield item
        elif on_refused != DROP:
            raise LimitExceeded(key, decision)


async def _as_async(items: Iterable[Item]) -> AsyncIterator[Item]:
    for item in items:
        yield item
