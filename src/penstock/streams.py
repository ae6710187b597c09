"""Items of a stream, each of which passes a limit first: `Limiter.limited`."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import TypeVar
from uuid import uuid4

from penstock.decision import Decision
from penstock.errors import LimitExceeded
from penstock.stores.base import check_key

Item = TypeVar("Item")

WAIT, DROP, RAISE = "wait", "drop", "raise"


def check_on_refused(on_refused: str) -> str:
    if on_refused not in (WAIT, DROP, RAISE):
        raise ValueError(f"on_refused is 'wait', 'drop' or 'raise', not {on_refused!r:.100}")
    return on_refused


def stream_key(key: str | None) -> str:
    """The key that the items are counted by; without one, a key that nobody else has."""
    return f"stream-{uuid4()}" if key is None else check_key(key)


def check_items(items: object) -> None:
    """An error at once, if these are not the items of a stream."""
    _check_not_a_connection(items)
    if isinstance(items, AsyncIterable):
        raise TypeError(f"{items!r:.100} is async: use AsyncLimiter, and async for")
    if not isinstance(items, Iterable) and not hasattr(items, "__getitem__"):
        raise TypeError(f"limited() takes items that can be iterated over, not {items!r:.100}")


def check_async_items(items: object) -> None:
    """`check_items` for coroutines."""
    if not isinstance(items, AsyncIterable):
        _check_not_a_connection(items)
        if not isinstance(items, Iterable) and not hasattr(items, "__getitem__"):
            raise TypeError(
                f"limited() takes items that can be iterated over, with for or with async for, not"
                f" {items!r:.100}"
            )


def _check_not_a_connection(items: object) -> None:
    """Iterating over a WebSocket of Starlette gives the names in its scope, and no messages."""
    if hasattr(items, "iter_text") and hasattr(items, "iter_bytes"):
        raise TypeError(
            "messages of this WebSocket are iterated over with its methods: write"
            " limited(websocket.iter_text(), ...), or iter_bytes() or iter_json()"
        )


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
