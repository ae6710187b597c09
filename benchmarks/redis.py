"""Decisions over one Redis server: throughput, latency, and what they cost the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.contenders import Contender
from benchmarks.machine import version
from benchmarks.redis_contenders import (
    BARE,
    BARE_THREADS,
    FIXED_WINDOW,
    HIT_ALL,
    LEAKY_BUCKET,
    LIMITS_FIXED,
    LOCKOUT,
    PEERS,
    SLIDING_LOG,
    SLIDING_WINDOW,
    SOFT,
    THREADS,
    THROTTLED_GCRA,
    TOKEN_BUCKET,
)
from benchmarks.redis_server import Server, cores, running
from benchmarks.redis_worker import (
    ALLOWED,
    HITS,
    KEYS,
    LIMIT,
    LOGS_HOLD,
    REFUSED,
    Order,
    Round,
    Worker,
)
from benchmarks.report import Table
from benchmarks.settings import Unavailable

TASKS = 64
PACKAGES = ("redis", "hiredis", "coredis", "uvloop")


@dataclass(frozen=True)
class Entry:
    """A contender in one discipline."""

    contender: Contender
    loop: str = "asyncio"
    callers: int = TASKS
    refuses: bool = False


@dataclass
class Found:
    """The best of each figure over all rounds."""

    speed: float = 0.0
    p50: float = float("inf")
    p99: float = float("inf")
    costs: list[float] = field(default_factory=list)  # the server's, microseconds a decision
    a_call: float = 0.0  # decisions a call

    def add(self, one: Round) -> None:
        self.speed = max(self.speed, one.speed)
        self.p50 = min(self.p50, one.p50)
        self.p99 = min(self.p99, one.p99)


class Arena:
    """The server, how long a round is and how many there are, and what went wrong meanwhile."""

    def __init__(self, server: Server, quick: bool) -> None:
        self.server = server
        self.rounds, self.seconds = (2, 0.2) if quick else (9, 0.3)
        self.client_core, self.server_core = cores()
        self.notes: list[str] = []

    def measure(self, entries: Sequence[Entry]) -> dict[Entry, Found]:
        """Rounds of all of them in turns; of whom no round counts is missing. See the notes."""
        workers: dict[Entry, Worker] = {}
        self.notes = []
        try:
            for entry in entries:
                try:
                    workers[entry] = self._worker(entry)
                except Unavailable as reason:
                    self.notes.append(f"{entry.contender.name} left out: {reason}")
            found = {entry: Found() for entry in workers}
            for _ in range(self.rounds):
                for entry, worker in workers.items():
                    self._round(entry, worker, found[entry])
        finally:
            for worker in workers.values():
                worker.close()
        for entry, worker in workers.items():
            if worker.void:
                self.notes.append(
                    f"{len(worker.void)} of {self.rounds} rounds of {titled(entry)},"
                    f" {entry.callers} callers, do not count and were not repeated: in them"
                    " decisions missed the store's deadline of 10 ms and were not the server's"
                )
        return {entry: one for entry, one in found.items() if one.costs}

    def _worker(self, entry: Entry) -> Worker:
        url = self.server.database()
        return Worker(Order(entry.contender.name, url, self.client_core, entry.loop, entry.refuses))

    def _round(self, entry: Entry, worker: Worker, found: Found) -> None:
        if entry.contender.is_log:
            self.server.empty(worker.order.url)
        calls, used = self.server.script_calls(), self.server.cpu_seconds()
        one = worker.round(entry.callers, self.seconds)
        used, calls = self.server.cpu_seconds() - used, self.server.script_calls() - calls
        if one is None:
            return
        found.add(one)
        found.costs.append(used / one.decisions * 1e6)
        found.a_call = one.decisions / calls if calls else 0.0


def run(quick: bool = False) -> list[Table]:
    client_core, server_core = cores()
    try:
        with running(server_core) as server:
            arena = Arena(server, quick)
            tables = [
                *(throughput(arena, refuses) for refuses in (False, True)),
                *(alone(arena), threads(arena), several(arena), cost(arena)),
            ]
            where = f"core {server_core}, the client on core {client_core}"
            if server_core == client_core:
                where = f"core {server_core}, AND SO IS THE CLIENT: there is no other, so they wait"
                where += " for each other, and no figure here says much"
            tables[0].notes = [
                f"{server.name()} on {where}; TCP over the loopback; "
                + ", ".join(f"{package} {version(package)}" for package in PACKAGES),
                *tables[0].notes,
            ]
            return tables
    except Unavailable as reason:
        return [Table("Redis", {"": ""}, notes=[f"left out: {reason}"])]


def throughput(arena: Arena, refuses: bool) -> Table:
    """Many tasks, on asyncio's own loop, and the best of them on uvloop, too."""
    title = (
        f"mostly refused ({REFUSED} an hour)" if refuses else f"all allowed ({ALLOWED:,} an hour)"
    )
    table = Table(
        f"Redis: {TASKS} tasks, {KEYS:,} keys, {title}",
        {
            "": "", "decisions/s": ",.0f", "p50 ms": ".2f", "p99 ms": ".2f",
            "Penstock / it": ".1f", "its p99 / Penstock's": ".1f",
        },
    )  # fmt: skip
    entries = [Entry(contender, refuses=refuses) for contender in [TOKEN_BUCKET, *PEERS]]
    entries += [
        Entry(contender, "uvloop", refuses=refuses)
        for contender in [TOKEN_BUCKET, LIMITS_FIXED, THROTTLED_GCRA]
    ]
    best = arena.measure(entries)
    for entry, found in best.items():
        ours = best.get(Entry(TOKEN_BUCKET, entry.loop, refuses=refuses))
        table.add(titled(entry), found.speed, found.p50 / 1000, found.p99 / 1000,
                  ratio("speed", ours, found), ratio("p99", found, ours))  # fmt: skip
    table.notes = [
        f"each task asks again as soon as it is answered; best of {arena.rounds} interleaved rounds"
        f" of {arena.seconds} s; garbage collector on",
        f"before, each had to admit {LIMIT} of {HITS} hits at {LIMIT}/hour; in the rounds all was"
        " allowed, or at least 99 % refused",
        "compared with Penstock on the same event loop",
        "pyrate-limiter: try_acquire_async, which waits for one answer before it asks for the next;"
        " no lock: the awaitable of its try_acquire",
        *arena.notes,
    ]
    return table


def alone(arena: Arena) -> Table:
    table = Table(
        "Redis: one task alone",
        {
            "": "", "decisions/s": ",.0f", "p50 us": ",.0f", "p99 us": ",.0f",
            "p50 / bare": ".2f", "p99 / bare": ".2f",
        },
    )  # fmt: skip
    entries = [
        Entry(contender, loop, callers=1)
        for loop in ("asyncio", "uvloop")
        for contender in (BARE, TOKEN_BUCKET)
    ]
    best = arena.measure(entries)
    for entry, found in best.items():
        bare = best.get(Entry(BARE, entry.loop, callers=1))
        table.add(titled(entry), found.speed, found.p50, found.p99,
                  ratio("p50", found, bare), ratio("p99", found, bare))  # fmt: skip
    table.notes = [
        "bare: redis-py alone, one EVALSHA of a GCRA script for one key, by the server's clock,"
        " answering allowed, remaining, retry and reset",
        *arena.notes,
    ]
    return table


def threads(arena: Arena) -> Table:
    table = Table(
        "Redis: threads",
        {
            "": "", "threads": ",", "decisions/s": ",.0f", "p50 us": ",.0f", "p99 us": ",.0f",
            "speed / bare": ".2f", "p50 / bare": ".2f", "p99 / bare": ".2f",
        },
    )  # fmt: skip
    counts = (1, 16, TASKS)
    entries = [Entry(who, callers=count) for count in counts for who in (BARE_THREADS, THREADS)]
    best = arena.measure(entries)
    for entry, found in best.items():
        bare = best.get(Entry(BARE_THREADS, callers=entry.callers))
        table.add(entry.contender.name, entry.callers, found.speed, found.p50, found.p99,
                  *(ratio(figure, found, bare) for figure in ("speed", "p50", "p99")))  # fmt: skip
    table.notes = arena.notes
    return table


def several(arena: Arena) -> Table:
    table = Table(
        "Redis: hit_all over three limits beside one hit",
        {
            "": "", "tasks": ",", "requests/s": ",.0f", "p50 us": ",.0f", "p99 us": ",.0f",
            "time / hit's": ".2f", "p50 / hit's": ".2f", "server us": ",.2f",
        },
    )  # fmt: skip
    entries = [Entry(who, callers=count) for count in (1, TASKS) for who in (TOKEN_BUCKET, HIT_ALL)]
    best = arena.measure(entries)
    for entry, found in best.items():
        hit = best.get(Entry(TOKEN_BUCKET, callers=entry.callers))
        ratios = ratio("speed", hit, found), ratio("p50", found, hit)
        table.add(entry.contender.name, entry.callers, found.speed, found.p50, found.p99,
                  *ratios, min(found.costs))  # fmt: skip
    table.notes = ["server us: CPU of the server, microseconds a request", *arena.notes]
    return table


def cost(arena: Arena) -> Table:
    table = Table(
        f"Redis: what a decision costs the server, {TASKS} tasks",
        {
            "": "", "decisions/s per core": ",.0f", "CPU us a decision": ".2f",
            "decisions a call": ".1f", "measured at, decisions/s": ",.0f",
        },
    )  # fmt: skip
    entries = [
        Entry(TOKEN_BUCKET),
        Entry(TOKEN_BUCKET, refuses=True),
        *(Entry(who) for who in (LEAKY_BUCKET, FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG)),
        Entry(LOCKOUT),
        Entry(LOCKOUT, refuses=True),
        Entry(SOFT),
        Entry(BARE),
    ]
    for entry, found in arena.measure(entries).items():
        name = f"{titled(entry)}, refused" if entry.refuses else titled(entry)
        took = min(found.costs)
        table.add(name, 1e6 / took, took, found.a_call, found.speed)
    table.notes = [
        "CPU, user and system, of the server's process in a round; best of"
        f" {arena.rounds} interleaved rounds",
        f"sliding_log: {LOGS_HOLD:,} an hour; its keys are empty at the beginning of a round",
        *arena.notes,
    ]
    return table


def titled(entry: Entry) -> str:
    loop = "" if entry.loop == "asyncio" else f", {entry.loop}"
    return f"{entry.contender.name}{loop}"


def ratio(figure: str, one: Found | None, other: Found | None) -> float | None:
    """None where one of them is missing."""
    if one is None or other is None:
        return None
    return float(getattr(one, figure) / getattr(other, figure))
