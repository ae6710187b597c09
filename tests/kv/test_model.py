"""Any sequence of writes, of two writers, with a log that is trimmed, and with an advancing clock:
reads, lists, histories and watches agree with a plain model."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import RevisionConflict
from penstock.kv import AsyncKeyValue, at_least
from penstock.kv.file import FileBackend
from penstock.kv.memory import MemoryBackend
from penstock.kv.watching import AsyncWatch
from penstock.testing import FakeClock

KEYS = ("a", "b", "b/1")
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"), st.sampled_from(KEYS), st.sampled_from([None, 1, 5]),
            st.sampled_from(["any", "right", "wrong", "absent"]),
        ),
        st.tuples(
            st.just("delete"), st.sampled_from(KEYS), st.none(),
            st.sampled_from(["any", "right", "wrong", "absent"]),
        ),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 1, 3])),
        st.tuples(st.just("look")),
        st.tuples(st.just("reopen")),
    ),
    max_size=25,
)  # fmt: skip


@dataclass
class Known:
    value: str
    revision: int
    until: float | None


class Model:
    """What a reader should see."""

    def __init__(self) -> None:
        self.now = 0.0
        self.revision = 0
        self.known: dict[str, Known] = {}
        self.writes: list[tuple[int, str, str]] = []

    def live(self) -> dict[str, Known]:
        return {k: e for k, e in self.known.items() if e.until is None or e.until > self.now}

    def revision_of(self, key: str) -> int:
        entry = self.live().get(key)
        return 0 if entry is None else entry.revision


class Reader:
    """A watch, and what it has told."""

    def __init__(self, kv: AsyncKeyValue) -> None:
        self.kv = kv
        self.watch: AsyncWatch = kv.watch("")
        self.values: dict[str, Any] = {}

    async def look(self, model: Model) -> None:
        await self.kv.sync()
        for change in self.watch._queue.take_all():
            if change.entry is None:
                self.values.pop(change.key, None)
            else:
                self.values[change.key] = change.entry.value
        assert self.values == {key: entry.value for key, entry in model.live().items()}


async def play(backend: Any, clock: FakeClock, steps: list[Any], kept: int) -> None:
    model = Model()
    writers = [AsyncKeyValue(backend), AsyncKeyValue(backend)]
    readers = [Reader(AsyncKeyValue(backend))]
    try:
        for number, step in enumerate(steps):
            kv = writers[number % 2]
            if step[0] == "wait":
                clock.advance(step[1])
                model.now += step[1]
            elif step[0] == "look":
                await readers[0].look(model)
            elif step[0] == "reopen":
                readers.append(Reader(AsyncKeyValue(backend)))
            else:
                await write(kv, model, number, *step)
            await compare(kv, model, kept)
        for reader in readers:
            await reader.look(model)
    finally:
        for each in (*writers, *(reader.kv for reader in readers)):
            await each.aclose()


async def write(
    kv: AsyncKeyValue, model: Model, number: int, verb: str, key: str, ttl: Any, expects: str
) -> None:
    actual = model.revision_of(key)
    expect = {"any": None, "right": actual, "wrong": actual + 1, "absent": 0}[expects]
    call = (
        kv.put(key, str(number), ttl=ttl, expect=expect)
        if verb == "put"
        else kv.delete(key, expect=expect)
    )
    if expect is not None and expect != actual:
        with pytest.raises(RevisionConflict) as conflict:
            await call
        assert (conflict.value.expected, conflict.value.actual) == (expect, actual)
        return
    result = await call
    if verb == "delete" and not actual:
        assert result is None
        return
    model.revision += 1
    model.writes.insert(0, (model.revision, verb, key))
    if verb == "put":
        model.known[key] = Known(str(number), model.revision, ttl and model.now + ttl)
    else:
        del model.known[key]


async def compare(kv: AsyncKeyValue, model: Model, kept: int) -> None:
    live, reached = model.live(), at_least(model.revision)
    for key in KEYS:
        entry = await kv.get(key, read=reached)
        assert (entry and (entry.value, entry.revision)) == (
            (live[key].value, live[key].revision) if key in live else None
        )
    for prefix in ("", "b", "b/"):
        keys = sorted(key for key in live if key.startswith(prefix))
        assert [entry.key for entry in await kv.list(prefix, read=reached)] == keys
    history = [(c.revision, c.kind, c.key) for c in await kv.history()]
    assert history == model.writes[:kept]


@settings(max_examples=60)
@given(steps=STEPS, kept=st.sampled_from([1, 3, 100]))
def test_memory(steps: list[Any], kept: int) -> None:
    clock = FakeClock()
    asyncio.run(play(MemoryBackend(clock, most_writes=kept), clock, steps, kept))


@settings(max_examples=20)
@given(steps=STEPS, kept=st.sampled_from([1, 3, 100]))
def test_file(steps: list[Any], kept: int) -> None:
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as folder:
        backend = FileBackend(Path(folder, "kv.db"), clock, most_writes=kept)
        try:
            asyncio.run(play(backend, clock, steps, kept))
        finally:
            backend.close()


# The fixtures are the same server and the same name for all examples, as they should be.
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS.map(lambda steps: [s for s in steps if s[0] != "wait"]), data=st.data())
def test_valkey(redis_url: str, prefix: str, steps: list[Any], data: Any) -> None:
    """Time is the server's own here, and values live longer than the test."""
    from penstock.kv.redis import RedisBackend

    kept = data.draw(st.sampled_from([1, 3, 100]))
    slow = [(*step[:2], step[2] and 3600, *step[3:]) if len(step) > 2 else step for step in steps]

    async def run() -> None:
        backend = RedisBackend(redis_url, namespace=f"{prefix[-40:]}-{kept}", most_writes=kept)
        client = backend._clients.client_of_loop()
        await client.delete(*backend._keys)
        try:
            await play(backend, FakeClock(), slow, kept)
        finally:
            await backend.aclose()

    asyncio.run(run())
