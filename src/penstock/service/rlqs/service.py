"""RlqsService: one loop that asks the bank for all streams.

::

    ready ──> questions ──> Bank.exchange ──> answers ──> QuotaWire.send
      ^                                                     │
      ├── a report arrived                                  v
      ├── a decrease has arrived: what it frees is for others   <── QuotaWire.confirm
      ├── rules were changed
      └── timers: something was not free, idle buckets, old streams

`assigner.py` says what is asked and sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
import random
from collections.abc import Callable, Mapping, Sequence

from penstock.async_gate import AsyncGate
from penstock.clock import Clock
from penstock.durations import MILLISECOND
from penstock.errors import StoreError
from penstock.events import Event, RulesLoaded
from penstock.service.grpc_status import UNAVAILABLE
from penstock.service.rlqs import shares, streams
from penstock.service.rlqs.account import Reply
from penstock.service.rlqs.assigner import Assigner, Question
from penstock.service.rlqs.bank import Bank, Entry
from penstock.service.rlqs.buckets import BucketRules
from penstock.service.rlqs.interface import QuotaWire
from penstock.service.rlqs.stats import RlqsStats
from penstock.service.rlqs.streams import Bucket, Stream
from penstock.stores.leased.boottime import BOOT

logger = logging.getLogger("penstock.rlqs")

# Of all streams: buckets, and characters of their names.
MOST_BUCKETS = 200_000
MOST_CHARACTERS = 32 * 2**20
# In one exchange.
MOST_QUESTIONS = 256
# All in milliseconds. Streams live about so long, so that load spreads over new servers.
AGE = 3_600_000
# A stream is closed if what was sent has not arrived after this time.
STALLED = 10_000
# A reply of the bank that took longer is not sent: what it grants began to live when it was asked.
TOO_LATE = shares.SLACK // 2
CHORES = 1_000


class RlqsService:
    """Divides the limits of a gate among Envoys. A `QuotaService`, for one event loop."""

    def __init__(
        self,
        gate: AsyncGate,
        bank: Bank,
        *,
        clock: Clock = BOOT,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.stats = RlqsStats()
        self.streams: dict[str, Stream] = {}
        self.degraded = False
        self._gate = gate
        self._bank = bank
        self._clock = clock
        self._chance = chance
        self._assigner = Assigner(self, BucketRules(gate), self.stats)
        self._ready: dict[Bucket, None] = {}
        self._notices: list[tuple[Entry, Callable[[], None] | None]] = []
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._buckets = self._characters = 0
        self._wake: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._chores_at = 0
        self._closing = False
        gate.subscribe(self._on_event)

    def now(self) -> int:
        return self._clock.now() // MILLISECOND

    # Called by wires and streams -------------------------------------------------------------

    def open(self, wire: QuotaWire, metadata: Mapping[str, str], peer: str) -> Stream:
        """A new stream of an Envoy."""
        stream = Stream(self, wire, metadata, peer)
        stream.ends_at = self.now() + int(AGE * (0.75 + self._chance() / 2))
        self.streams[stream.id] = stream
        self._wake_up()
        return stream

    def has_room(self, stream: Stream, size: int) -> bool:
        """Whether one more bucket can be kept, with a name of this size."""
        if (
            len(stream.buckets) < streams.MOST_BUCKETS
            and stream.size + size <= streams.MOST_CHARACTERS
            and self._buckets < MOST_BUCKETS
            and self._characters + size <= MOST_CHARACTERS
        ):
            return True
        if not self.stats.ignored:
            logger.warning(
                "%s reports more buckets than are kept: further ones get no assignment, and Envoy"
                " follows its no_assignment_behavior", stream.node,
            )  # fmt: skip
        return False

    def count_bucket(self, bucket: Bucket) -> None:
        self._buckets += 1
        self._characters += bucket.size
        bucket.stream.size += bucket.size

    def forget_bucket(self, bucket: Bucket) -> None:
        self._buckets -= 1
        self._characters -= bucket.size
        bucket.stream.size -= bucket.size
        self._ready.pop(bucket, None)

    def forget(self, stream: Stream) -> None:
        """A stream is over."""
        self.streams.pop(stream.id, None)
        for bucket in stream.buckets.values():
            self.forget_bucket(bucket)
        self._assigner.leave(stream, self.now())

    # Called by the assigner ------------------------------------------------------------------

    def make_ready(self, bucket: Bucket) -> None:
        """There is something to ask the bank."""
        self._ready[bucket] = None
        self._wake_up()

    def notify(self, entry: Entry, then: Callable[[], None] | None = None) -> None:
        """Tell the bank something; call ``then`` when it knows."""
        self._notices.append((entry, then))
        self._wake_up()

    def at(self, due: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (due, next(self._order), call))
        self._wake_up()

    def _wake_up(self) -> None:
        if self._wake is not None:
            self._wake.set()

    def _on_event(self, event: Event) -> None:
        """In any thread."""
        if isinstance(event, RulesLoaded):
            loop = self._loop
            if loop is None:
                self._look_at_all()
            else:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(self._look_at_all)

    def _look_at_all(self) -> None:
        for stream in self.streams.values():
            for bucket in stream.buckets.values():
                self.make_ready(bucket)

    # The loop ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Run in this event loop until `close`."""
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._task = self._loop.create_task(self._run())

    async def close(self) -> None:
        task, self._task = self._task, None
        self._closing = True  # a client that is cancelled may raise another error instead
        self._gate.unsubscribe(self._on_event)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            with contextlib.suppress(TimeoutError):  # Envoys that come back are known all the same
                async with asyncio.timeout(1):
                    await self._tell()
        await self._bank.close()

    async def _run(self) -> None:
        assert self._wake is not None
        while not self._closing:
            due = self.next_due()
            if due is None or due > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if due is None else due / 1000):
                        await self._wake.wait()
            self._wake.clear()
            try:
                await self.step()
            except Exception:  # it must go on: without it, all assignments expire
                logger.exception("quota reports could not be answered")
                await asyncio.sleep(0.1)

    def next_due(self) -> int | None:
        """Milliseconds until there is something to do; None if only a message can bring it."""
        if self._ready or self._notices:
            return 0
        dues = [timer[0] for timer in self._timers[:1]]
        if self.streams:
            dues.append(self._chores_at)
        return max(0, min(dues) - self.now()) if dues else None

    async def step(self) -> None:
        """Do what is due now."""
        now = self.now()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
        if now >= self._chores_at:
            self._chores_at = now + CHORES
            self._do_chores(now)
        await self._tell()
        ready = list(self._ready)
        self._ready.clear()
        for start in range(0, len(ready), MOST_QUESTIONS):
            now = self.now()
            asked = [
                question
                for bucket in ready[start : start + MOST_QUESTIONS]
                if (question := self._assigner.question(bucket, now)) is not None
            ]
            if asked:
                await self._ask(asked, now)
            await asyncio.sleep(0)  # wires have their turn

    async def _ask(self, questions: Sequence[Question], asked_at: int) -> None:
        replies = await self._exchange([question.entry for question in questions])
        now = self.now()
        if now - asked_at > TOO_LATE:
            replies = [None] * len(replies)
        self._assigner.answer(questions, replies, now)

    async def _tell(self) -> None:
        while self._notices:
            notices = self._notices[:MOST_QUESTIONS]
            del self._notices[:MOST_QUESTIONS]
            await self._exchange([entry for entry, _ in notices])
            for _, then in notices:
                if then is not None:
                    then()
            await asyncio.sleep(0)  # wires have their turn

    async def _exchange(self, entries: Sequence[Entry]) -> Sequence[Reply | None]:
        try:
            replies = await self._bank.exchange(entries)
        except StoreError as error:
            self.stats.failures += 1
            if not self.degraded:
                logger.warning("Envoys get no new assignments: the bank is away: %s", error)
            self.degraded = True
            return [None] * len(entries)
        if self.degraded:
            logger.info("Envoys get assignments again")
        self.degraded = False
        return replies

    def _do_chores(self, now: int) -> None:
        for stream in list(self.streams.values()):
            if now >= stream.ends_at:
                stream.wire.close()
            elif stream.unconfirmed and now - stream.unconfirmed[0] > STALLED:
                self.stats.stalled += 1
                stream.wire.close(UNAVAILABLE, "assignments do not arrive")
