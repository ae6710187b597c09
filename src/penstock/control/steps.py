"""Flows whose steps are calls of a `KeyValue` or an `AsyncKeyValue`."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from penstock import flows
from penstock.kv import AsyncKeyValue, KeyValue

T = TypeVar("T")


class Step(NamedTuple):
    verb: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]


Flow = Generator[Step, Any, T]


def call(verb: str, *arguments: Any, **options: Any) -> Flow[Any]:
    return (yield Step(verb, arguments, options))


def run(kv: KeyValue, flow: Flow[T]) -> T:
    return flows.run(flow, lambda step: getattr(kv, step.verb)(*step.arguments, **step.options))


async def run_async(kv: AsyncKeyValue, flow: Flow[T]) -> T:
    return await flows.run_async(
        flow, lambda step: getattr(kv, step.verb)(*step.arguments, **step.options)
    )
