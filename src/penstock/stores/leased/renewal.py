"""Renewal: asks the bank for more before leases run out, and gives back what is not used.

One daemon thread for each store, started with the first lease. It wakes up when a lease runs
low, when the bank is to be asked again, and when half of a lease's life is over. The messages
of that moment leave together, many in one call. If there are more than the thread can send in
time, leases become longer: see `stretch.py`.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock import keys
from penstock.clock import Clock
from penstock.durations import MILLISECOND
from penstock.stores.leased import law, wire
from penstock.stores.leased.exchange import Exchange, instance_name
from penstock.stores.leased.holders import Holder, read_holders
from penstock.stores.leased.journal import Journal
from penstock.stores.leased.lease import Lease
from penstock.stores.leased.messages import Message, Reply
from penstock.stores.leased.stretch import Stretch
from penstock.stores.redis.counters import RedisCounters
from penstock.stores.redis.script import Policy

if TYPE_CHECKING:
    from penstock.stores.leased.counters import LeasedCounters

logger = logging.getLogger("penstock.leases")

# Leases that run low at about the same time go into one call.
_GATHER = 0.001
_FIRST_PAUSE = 50 * MILLISECOND
_LONGEST_PAUSE = 1_000 * MILLISECOND


class Renewal:
    """Of one `LeasedStore`."""

    def __init__(self, exchange: Exchange, clock: Clock) -> None:
        self.exchange = exchange
        self.journal = Journal(exchange.store.name)
        self._clock = clock
        self._numbers = itertools.count()
        self._closed = False
        self.start_over()

    def start_over(self) -> None:
        """Begin empty; also in a forked child, whose parent keeps its thread and its leases."""
        self.name = instance_name()
        self.stretch = Stretch(self._clock.now())
        self._lock = threading.Lock()
        self._trading = threading.RLock()  # a hook may give leases back
        self._wake = threading.Event()
        self._asking: deque[Lease] = deque()
        self._timers: list[tuple[int, int, Lease]] = []
        self._thread: threading.Thread | None = None
        self._pause = _FIRST_PAUSE

    # Called by the counters -------------------------------------------------------------

    def lease(self, counters: LeasedCounters, key: str, demand: int) -> None:
        """A key has become hot."""
        if self._closed:
            return
        lease = Lease(counters, key, counters.terms, self._clock.now())
        lease.demand = demand
        lease.asking = True
        direct = _direct(counters)
        direct.leased(key)
        row = direct.redis_key(key)
        lease.places = row, keys.lease_key(self.exchange.store.lease_prefix, row)
        if counters.leases.setdefault(key, lease) is lease:
            self.ask(lease)

    def ask(self, lease: Lease) -> None:
        """The lease runs low; its ``asking`` is set."""
        self._asking.append(lease)
        if self._thread is None:
            self._start()
        self._wake.set()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                thread = threading.Thread(target=self._run, name="penstock-leases", daemon=True)
                self._thread = thread
                try:
                    thread.start()
                except RuntimeError:  # at the end of the interpreter: then all is direct
                    self._thread = None

    # The thread -------------------------------------------------------------------------

    def _run(self) -> None:
        this = threading.current_thread()
        while self._thread is this and not self._closed:
            timers = self._timers
            left = (timers[0][0] - self._clock.now()) / 1e9 if timers else None
            if left is None or left > 0:
                self._wake.wait(left)
            if self._asking:
                time.sleep(_GATHER * self.stretch.factor)
            self._wake.clear()
            cpu, queued = time.thread_time_ns(), 0
            try:
                queued = self.step()
            except Exception:  # the thread must go on: without it, all is decided directly
                logger.exception("leases could not be renewed")
            self.stretch.worked(self._clock.now(), time.thread_time_ns() - cpu, queued)

    def step(self) -> int:
        """Send what is due now. For so many nanoseconds there was more than one trip takes."""
        due: dict[Lease, None] = {}
        while self._asking:
            due[self._asking.popleft()] = None
        now = self._clock.now()
        while self._timers and self._timers[0][0] <= now:
            moment, _, lease = heapq.heappop(self._timers)
            if lease.due == moment:
                due[lease] = None
        return self._trade(list(due))

    def _trade(self, leases: Sequence[Lease], give_back: bool = False) -> int:
        if not leases:
            return 0
        with self._trading:  # the thread, or whoever gives leases back
            first = 0
            if not give_back:  # others may have given some back a moment ago
                leases = [each for each in leases if each.counters.leases.get(each.key) is each]
            try:
                for calls in self.exchange.trips(leases):
                    self._send(calls, give_back)
                    first = first or self._clock.now()
            except Exception as error:  # in a cluster: redis-py lets many kinds through
                self._broken(leases, error, self._clock.now())
            return self._clock.now() - first if first else 0

    def _send(self, calls: Sequence[Sequence[Lease]], give_back: bool) -> None:
        """One trip to the server."""
        sent = self._clock.now()
        policies: dict[LeasedCounters, Policy] = {}
        parcels = [[self._parcel(each, policies, sent, give_back) for each in c] for c in calls]
        leases = [lease for call in calls for lease in call]
        self.journal.messages += len(leases)
        try:
            replies = self.exchange.send(parcels)
        except Exception as error:  # redis-py lets many kinds through
            self._broken(leases, error, sent)
            return
        self._pause = _FIRST_PAUSE
        received = self._clock.now()
        self.journal.answer(received)
        messages = (parcel.message for call in parcels for parcel in call)
        for lease, message, reply in zip(leases, messages, replies, strict=True):
            if isinstance(reply, Reply):
                self._received(lease, message, reply, sent, received)
                continue
            if reply == wire.REFRESH:
                direct = _direct(lease.counters)
                direct.renew_policy(direct.now())
            self._try_later(lease, received)

    def _parcel(
        self, lease: Lease, policies: dict[LeasedCounters, Policy], now: int, give_back: bool
    ) -> wire.Parcel:
        counters: LeasedCounters = lease.counters
        policy = policies.get(counters)
        if policy is None:
            policy = policies[counters] = _direct(counters).policy_at(
                self.exchange.store.clock.now()
            )
            if counters.stretched != self.stretch.factor:
                counters.stretch(self.stretch.factor)
        lapsed, returned = lease.lapsed, lease.returned
        lease.asking = True
        lease.terms = counters.terms
        lease.measure(now)
        if give_back or law.is_cold(counters.usual_terms, lease.demand):
            want = 0
            if now < lease.deadline:
                lease.give_up()
        else:
            want = lease.wanted()
        self.journal.give_up(lease.returned - returned)
        holder = f"{self.name}.{next(self._numbers)}".encode()
        message = lease.message(holder, now, want)
        self.journal.lapse(lease, lease.lapsed - lapsed)
        return wire.Parcel(*lease.places, policy, lease.terms, message)

    def _received(
        self, lease: Lease, message: Message, reply: Reply, sent: int, received: int
    ) -> None:
        granted, lapsed = lease.granted, lease.lapsed
        lease.receive(message, reply, sent, received)
        if lease.granted > granted:
            self.journal.grant(lease, lease.granted - granted)
        self.journal.lapse(lease, lease.lapsed - lapsed)
        lease.asking = False
        if message.want == 0 and lease.available == 0:
            if _forget(lease):
                self.journal.end(lease)
            return
        self._set_timer(lease, sent + (reply.wait or reply.life // 2 or lease.terms.horizon))

    def _broken(self, leases: Iterable[Lease], error: Exception, now: int) -> None:
        """The server cannot be asked. The leases spend what they have, and it is tried again."""
        reason = self.exchange.store.hide(str(error) or type(error).__name__)
        logger.debug("the bank cannot be asked: %s", reason)
        self.journal.fail(reason, now)
        for lease in leases:
            self._try_later(lease, now)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _try_later(self, lease: Lease, now: int) -> None:
        self._set_timer(lease, now + self._pause)

    def _set_timer(self, lease: Lease, due: int) -> None:
        lease.due = due
        heapq.heappush(self._timers, (due, next(self._numbers), lease))

    def holders(self, counters: LeasedCounters, key: str) -> list[Holder]:
        """Who holds leases of a key, in all processes. Asks the server."""
        row = _direct(counters).redis_key(key)
        return self.holders_at([keys.lease_key(self.exchange.store.lease_prefix, row)])[0]

    def holders_at(self, places: Sequence[bytes]) -> list[list[Holder]]:
        """The same by where the leases of each key are kept."""
        records, now = self.exchange.records(places)
        return [read_holders(fields, now) for fields in records]

    # The end ----------------------------------------------------------------------------

    def give_back(self, leases: Sequence[Lease]) -> None:
        """Return leases now. If the server cannot be reached, they expire there."""
        self._trade(leases, give_back=True)

    def stop(self, leases: Sequence[Lease]) -> None:
        """Return leases, and end the thread. The next lease starts another one."""
        with self._lock:
            thread, self._thread = self._thread, None
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1)
        self.give_back(leases)
        for lease in leases:  # nobody would renew those that did not go back
            _forget(lease)

    def close(self, leases: Sequence[Lease]) -> None:
        """The same for good: from now on, everything is decided directly."""
        self._closed = True
        self.stop(leases)
        self.exchange.close()


def _forget(lease: Lease) -> bool:
    """Decide its key directly from now on; whether that is new."""
    leases = lease.counters.leases
    if leases.get(lease.key) is not lease:
        return False
    del leases[lease.key]
    return True


def _direct(counters: LeasedCounters) -> RedisCounters:
    direct = counters.direct
    assert isinstance(direct, RedisCounters)
    return direct
