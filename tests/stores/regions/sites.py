"""Three sites with a Redis each, a home, and lines between them that are long, cut and healed.

`run` loads the sites with more than the limit allows, two instances each, and records every
decision; a `Record` says what was promised and what was seen. The test and the picture in the
documentation come from it.
"""

from __future__ import annotations

import bisect
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from penstock import Limit, Limiter
from penstock.stores.redis import RedisStore
from penstock.stores.regions import RegionStore
from stores.proxy import Proxy

REGIONS = ("eu", "us", "asia")
LIMIT = Limit.parse("300/second")
FLOOR = 0.1
LEASE = 2.0
# Requests a second at each site: together twice the limit.
DEMAND = {"eu": 300, "us": 200, "asia": 100}
# After a change, sites need so long until they have what they should have.
SETTLE = 2.5


@dataclass(frozen=True, slots=True)
class Seen:
    """A decision: when it was asked for and when it came, in seconds since the beginning."""

    start: float
    end: float
    allowed: bool
    degraded: bool


@dataclass
class Record:
    seconds: float
    seen: dict[str, list[Seen]] = field(default_factory=dict)
    cuts: list[tuple[str, float, float]] = field(default_factory=list)  # site, from, to

    def admitted(self, region: str | None = None) -> list[Seen]:
        regions = REGIONS if region is None else (region,)
        passed = [each for name in regions for each in self.seen[name] if each.allowed]
        return sorted(passed, key=lambda each: each.end)

    def overrun(self, window: float = 30.0, step: float = 0.1) -> float:
        """By how much more was admitted than burst + rate x time, in the worst interval.

        Only what was certainly decided inside of an interval counts.
        """
        passed, worst = self.admitted(), -float(LIMIT.burst)
        ends = [each.end for each in passed]
        rate = 1e9 / LIMIT.interval_ns
        begin = 0.0
        while begin < self.seconds:
            count = 0
            for each in passed[bisect.bisect(ends, begin) :]:
                if each.end > begin + window:
                    break
                if each.start >= begin:
                    count += 1
                    worst = max(worst, count - LIMIT.burst - rate * (each.end - begin))
            begin += step
        return worst

    def whole_phases(self) -> Iterator[tuple[float, float]]:
        """Times in which no site was cut off, and all had settled."""
        begin = SETTLE
        for _, start, end in sorted(self.cuts, key=lambda cut: cut[1]):
            if start > begin:
                yield begin, start
            begin = max(begin, end + SETTLE)
        if self.seconds > begin:
            yield begin, self.seconds

    def under_use(self) -> float:
        """The part of the rate that was not used while all was whole."""
        rate, offered, used = 1e9 / LIMIT.interval_ns, 0.0, 0
        ends = [each.end for each in self.admitted()]
        for begin, end in self.whole_phases():
            offered += rate * (end - begin)
            used += bisect.bisect(ends, end) - bisect.bisect(ends, begin)
        return 1 - used / offered if offered else 0.0

    def cut_off(self) -> Iterator[tuple[str, float, float, int, int]]:
        """For each cut that outlived the lease: the site, how long it was on its floor, what it
        admitted in the first part of the cut a second, what it admitted on its floor."""
        for region, start, end in self.cuts:
            on_floor = start + LEASE
            ends = [each.end for each in self.admitted(region)]
            if end - on_floor > 1:
                first = bisect.bisect(ends, start + 0.5) - bisect.bisect(ends, start)
                later = bisect.bisect(ends, end) - bisect.bisect(ends, on_floor)
                yield region, on_floor, end - on_floor, 2 * first, later


class Site:
    """A region: its line to the home, and two instances that are asked all the time."""

    def __init__(self, region: str, url: str, line: Proxy, record: Record, began: float) -> None:
        self.region, self.line = region, line
        self._began, self._record = began, record
        self._stop = threading.Event()
        record.seen[region] = []
        self.stores = [
            RegionStore(
                RedisStore(url, on_failure="closed", deadline="1s"),
                RedisStore(line.url, deadline="1s"),
                region=region, floor=FLOOR, lease=f"{LEASE}s",
            )
            for _ in range(2)
        ]  # fmt: skip
        self._threads = [
            threading.Thread(target=self._load, args=(store, DEMAND[region] / 2), daemon=True)
            for store in self.stores
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(10)

    def close(self) -> None:
        for store in self.stores:
            store.close()

    def _load(self, store: RegionStore, rate: float) -> None:
        limiter, seen, due = Limiter(LIMIT, store=store), self._record.seen[self.region], 0.0
        begin = time.monotonic()
        while not self._stop.is_set():
            due += 1 / rate
            self._stop.wait(max(0.0, begin + due - time.monotonic()))
            start = time.monotonic() - self._began
            decision = limiter.hit("k")
            end = time.monotonic() - self._began
            seen.append(Seen(start, end, decision.allowed, decision.degraded))


def run(home: str, urls: Sequence[str], seconds: float, seed: int) -> Record:
    """Cut and heal at random, for so long."""
    chance, record = random.Random(seed), Record(seconds)
    with ExitStack() as stack:
        lines = [stack.enter_context(Proxy(home)) for _ in REGIONS]
        for line in lines:
            line.delay(chance.uniform(0.025, 0.075))
        began = time.monotonic()
        sites = [
            Site(region, url, line, record, began)
            for region, url, line in zip(REGIONS, urls, lines, strict=True)
        ]
        for site in sites:
            stack.callback(site.close)
        while not all(store.stats().floor for site in sites for store in site.stores):
            for site in sites:
                for store in site.stores:
                    store.connect()
            time.sleep(0.05)
        # What comes before is no part of the record: the home was new.
        for site in sites:
            site._began = time.monotonic()
        for site in sites:
            stack.callback(site.stop)
            site.start()
        began = sites[0]._began
        _weather(sites, chance, record, began, seconds)
    return record


def _weather(
    sites: Sequence[Site], chance: random.Random, record: Record, began: float, seconds: float
) -> None:
    def until(moment: float) -> None:
        time.sleep(max(0.0, began + moment - time.monotonic()))

    now = SETTLE + 3.0
    while now < seconds - 2:
        until(now)
        site = chance.choice(sites)
        if chance.random() < 0.5:
            site.line.refuse()
        else:
            site.line.drop()
        start = time.monotonic() - began
        now = min(seconds, now + chance.uniform(LEASE + 1.5, LEASE + 4))
        until(now)
        site.line.delay(chance.uniform(0.025, 0.075))
        site.line.disconnect()
        record.cuts.append((site.region, start, time.monotonic() - began))
        now += SETTLE + chance.uniform(1.5, 4)
    until(seconds)
