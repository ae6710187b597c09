"""Decisions without end against one store: what each took, and what the machine had to do with it.

Times are seconds of `time.monotonic`. A decision may take its deadline and `SLACK`; where it
took longer, this machine must have kept us from running for as long, at the same time (see
machine.py): then it was not the store that kept a caller waiting.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from penstock import AsyncLimiter, Limiter
from penstock.errors import StoreUnavailable
from penstock.events import Degraded, Event, StoreDown, StoreUp
from penstock.stores.redis import RedisStore
from stores.machine import Machine, Stalls
from stores.redis_server import wait_until

DEADLINE = 0.010
SLACK = 0.020
EXCUSES = 0.001  # a decision that was degraded for want of time
BACK_WITHIN = 1.0
_BEAT = 0.001
_PATIENCE = 60.0


class Made(NamedTuple):
    """A decision, seen from the caller's side."""

    start: float
    end: float
    degraded: bool
    allowed: bool
    key: str
    cpu: float  # seconds of its thread, of all tasks that ran meanwhile

    @property
    def took(self) -> float:
        return self.end - self.start


class Load:
    """Use it as a context manager; it closes the store. What went wrong is raised on leaving."""

    def __init__(
        self,
        store: RedisStore,
        *,
        workers: int,
        pause: float = 0.003,
        limit: str = "1000000/second",
        keys: int = 500,
        connect: bool = True,
    ) -> None:
        self.store = store
        self.made: list[Made] = []
        self.errors: list[BaseException] = []
        self.events: list[Event] = []  # but for Degraded, of which there are too many to keep
        self.reasons: Counter[str] = Counter()  # of those
        self.machine = Machine()
        self._downs: list[tuple[float, float]] = []  # when it was down: from, to
        self._made_at = time.monotonic()
        self._workers = workers
        self._pause = pause
        self.limit = limit
        self.keys = [f"key-{number}" for number in range(keys)]
        self._connect = connect
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        store.subscribe(self._hear)

    def __enter__(self) -> Self:
        # What earlier tests left is not gone through while this one looks at milliseconds.
        gc.collect()
        gc.freeze()
        self.machine.queue.__enter__()
        self._begin()
        if not wait_for(lambda: len(self.made) >= self._workers or bool(self.errors)):
            self.errors.append(TimeoutError("no decision was made"))
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(_PATIENCE)
        self._end()
        self.machine.queue.__exit__()
        gc.unfreeze()
        if kind is None:
            assert not [thread for thread in self._threads if thread.is_alive()], "it hangs"
            assert not self.errors, self.errors[:3]

    def _hear(self, event: Event) -> None:
        if isinstance(event, Degraded):
            self.reasons[event.reason] += 1
            return
        self.events.append(event)
        if isinstance(event, StoreDown):
            self._downs.append((time.monotonic(), math.inf))
        elif self._downs:
            self._downs[-1] = (self._downs[-1][0], time.monotonic())

    def _begin(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        self.store.close()

    def _give_up_after_a_while(self, error: StoreUnavailable) -> None:
        """A server that answers, but not in ten milliseconds: this machine may be busy."""
        if "slower than the deadline" not in str(error) or time.monotonic() > self._made_at + 5:
            raise error

    def _start(self, run: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=self._guarded, args=(run, *args), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _guarded(self, run: Callable[..., None], *args: Any) -> None:
        try:
            run(*args)
        except BaseException as error:
            self.errors.append(error)

    # What was seen -----------------------------------------------------------------

    def since(self, moment: float) -> list[Made]:
        """The decisions that were begun then or later, up to now."""
        made = self.made
        first = len(made)
        while first and made[first - 1].end >= moment:
            first -= 1
        return [one for one in made[first:] if one.start >= moment]

    def degraded_since(self, moment: float) -> int:
        return sum(one.degraded for one in self.since(moment))

    def shared_since(self, moment: float) -> int:
        return sum(not one.degraded for one in self.since(moment))

    def excess(self) -> tuple[float, float]:
        """The worst decision, and by how much the worst was beyond what is promised."""
        worst, beyond = 0.0, -1.0
        for one in list(self.made):
            worst = max(worst, one.took)
            over = one.took - DEADLINE - SLACK
            if over > beyond and over > 0:
                over -= self.machine.lost(one.start, one.end)
            beyond = max(beyond, over)
        return worst, beyond

    def unexcused(self, start: float, server: Stalls) -> list[Made]:
        """Degraded since then, though neither we nor the server were held up.

        What is degraded at once, with the breaker open, has the excuse that opened it.
        """
        found = []
        looked, now = self.since(start), time.monotonic()
        if not self._stop.is_set():
            wait_until(
                lambda: min(self.machine.known_until, server.known_until) > now, "a look", _PATIENCE
            )
        for one in looked:
            if one.degraded:
                left = one.start
                for down, up in self._downs:
                    if down <= one.end and one.start <= up:
                        left = down - 3 * DEADLINE
                lost = self.machine.lost(left, one.end) + server.within(left, one.end)
                if lost < EXCUSES:
                    found.append(one)
        return found

    def told(self, kind: type[Event], since: int = 0) -> int:
        return sum(type(event) is kind for event in self.events[since:])

    @property
    def summary(self) -> str:
        worst, _ = self.excess()
        told = {kind: self.told(kind) for kind in (StoreDown, StoreUp)}
        return (
            f"{len(self.made)} decisions, worst {worst * 1e3:.1f} ms"
            f" (heartbeat late by {self.machine.beats.worst * 1e3:.1f} ms at most),"
            f" {sum(one.degraded for one in self.made)} degraded,"
            f" {told[StoreDown]} down, {told[StoreUp]} up"
        )


class TaskLoad(Load):
    """Many tasks in one event loop."""

    def __init__(self, store: RedisStore, *, workers: int = 32, **options: Any) -> None:
        super().__init__(store, workers=workers, **options)

    def _begin(self) -> None:
        self._start(lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        while self._connect:
            try:
                await self.store.connect_async()
                break
            except StoreUnavailable as error:
                self._give_up_after_a_while(error)
        tasks = [asyncio.create_task(self._work(number)) for number in range(self._workers)]
        try:
            await asyncio.gather(self._beat(), *tasks)
        finally:
            await self.store.close_async()

    async def _work(self, number: int) -> None:
        limiter = AsyncLimiter(self.limit, store=self.store)
        names = itertools.islice(itertools.cycle(self.keys), number, None)
        while not self._stop.is_set():
            name = next(names)
            start, used = time.monotonic(), time.thread_time()
            decision = await limiter.hit(name)
            end, used = time.monotonic(), time.thread_time() - used
            self.made.append(Made(start, end, decision.degraded, bool(decision), name, used))
            await asyncio.sleep(self._pause)

    async def _beat(self) -> None:
        while not self._stop.is_set():
            due, used = time.monotonic() + _BEAT, time.thread_time()
            await asyncio.sleep(_BEAT)
            # A loop that was at work was not kept from running.
            self.machine.beats.note(due, time.monotonic(), time.thread_time() - used)


class ThreadLoad(Load):
    """Some threads that block."""

    def __init__(self, store: RedisStore, *, workers: int = 8, **options: Any) -> None:
        super().__init__(store, workers=workers, **options)

    def _begin(self) -> None:
        while self._connect:
            try:
                self.store.connect()
                break
            except StoreUnavailable as error:
                self._give_up_after_a_while(error)
        for number in range(self._workers):
            self._start(self._work, number)
        self._start(self._beat)

    def _work(self, number: int) -> None:
        limiter = Limiter(self.limit, store=self.store)
        names = itertools.islice(itertools.cycle(self.keys), number, None)
        while not self._stop.is_set():
            name = next(names)
            start, used = time.monotonic(), time.thread_time()
            decision = limiter.hit(name)
            end, used = time.monotonic(), time.thread_time() - used
            self.made.append(Made(start, end, decision.degraded, bool(decision), name, used))
            time.sleep(self._pause)

    def _beat(self) -> None:
        while not self._stop.is_set():
            due = time.monotonic() + _BEAT
            time.sleep(_BEAT)
            self.machine.beats.note(due, time.monotonic())


KINDS: dict[str, type[TaskLoad] | type[ThreadLoad]] = {"tasks": TaskLoad, "threads": ThreadLoad}


def wait_for(met: Callable[[], bool], patience: float = _PATIENCE) -> bool:
    """Whether it came to be so."""
    try:
        wait_until(met, "", patience)
    except TimeoutError:
        return False
    return True
