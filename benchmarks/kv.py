"""Small values beside redis-py, diskcache and SQLite; and a gate with many overrides."""

from __future__ import annotations

import gc
import importlib.util
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import redis_server
from benchmarks.report import Table

VALUE = "domain: api\n" + "- {key: user, limits: 100/minute}\n" * 30  # 1 KB
OVERRIDES = 10_000
RULES = 5_000_000  # bytes


def run(quick: bool = False) -> list[Table]:
    count = 200 if quick else 2_000
    return [_speed(count), _control()]


def _speed(count: int) -> Table:
    from penstock.kv import KeyValue

    table = Table("Small values: microseconds a call, 1 KB", {"": "", "put": ",.1f", "get": ",.1f"})
    with tempfile.TemporaryDirectory() as folder:
        with KeyValue("memory:") as kv:
            table.add("Penstock, memory", *_both(kv.put, kv.get, count))
        with KeyValue(f"file:{folder}/kv.db") as kv:
            table.add("Penstock, file (on disk)", *_both(kv.put, kv.get, count))
        table.add("sqlite3 alone, the same durability", *_sqlite(Path(folder, "plain.db"), count))
        table.add("diskcache", *_diskcache(folder, count))
        with redis_server.running(redis_server.cores()[1]) as server:
            url = f"redis://127.0.0.1:{server.port}/0"
            with KeyValue(url) as kv:
                table.add("Penstock, Redis: get local", *_both(kv.put, kv.get, count))
                primary = _both(kv.put, lambda key: kv.get(key, read="primary"), count)
                table.add("Penstock, Redis: get primary", *primary)
            import redis

            with redis.Redis.from_url(url) as client:
                table.add("redis-py alone", *_both(client.set, client.get, count))
    table.notes.append("one thread, one call after the other; best of three rounds; a put of"
                       " Penstock also compresses, numbers and logs the value")  # fmt: skip
    return table


def _both(put: Callable[..., Any], get: Callable[[str], Any], count: int) -> tuple[float, float]:
    best = [1e9, 1e9]
    for _ in range(3):
        start = time.perf_counter()
        for number in range(count):
            put(f"k/{number % 100}", VALUE)
        middle = time.perf_counter()
        for number in range(count):
            get(f"k/{number % 100}")
        end = time.perf_counter()
        best = [min(best[0], middle - start), min(best[1], end - middle)]
    return best[0] / count * 1e6, best[1] / count * 1e6


def _sqlite(path: Path, count: int) -> tuple[float, float]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE t (k TEXT PRIMARY KEY, v BLOB) WITHOUT ROWID")
    try:
        return _both(
            lambda key, value: connection.execute("REPLACE INTO t VALUES (?, ?)", (key, value)),
            lambda key: connection.execute("SELECT v FROM t WHERE k = ?", (key,)).fetchone(),
            count,
        )
    finally:
        connection.close()


def _diskcache(folder: str, count: int) -> tuple[float | None, float | None]:
    if importlib.util.find_spec("diskcache") is None:
        return None, None
    import diskcache

    with diskcache.Cache(os.path.join(folder, "diskcache")) as cache:
        return _both(cache.set, cache.get, count)


def _control() -> Table:
    from penstock import Gate
    from penstock.control import rule_sets
    from penstock.control.steps import run as run_flow
    from penstock.control.switch_entries import key_of, value_of
    from penstock.kv import KeyValue

    columns = {"": "", "seconds": ",.2f", "MB": ",.1f", "ns a check": ",.0f"}
    table = Table("A gate that follows a store", columns)
    small = {"api.yaml": b"domain: api\ndescriptors: [{key: user, limits: 1000000/hour}]\n"}
    rule = "  - {{key: path, value: /some/path/{}, limits: 100/minute}}\n"
    text = "".join(rule.format(number) for number in range(RULES // len(rule)))
    head = "domain: api\ndescriptors:\n  - {key: user, limits: 1000000/hour}\n"
    large = {"api.yaml": (head + text).encode()}
    for name, files, overrides in (
        ("one rule", small, 0),
        (f"{OVERRIDES:,} overrides", small, OVERRIDES),
        (f"rules of {RULES // 10**6} MB", large, 0),
    ):
        with KeyValue("memory:") as kv:
            run_flow(kv, rule_sets.push(files))
            for number in range(overrides):
                command = {"do": "override", "key": "user", "value": f"o{number}", "factor": 2,
                           "limit": None}  # fmt: skip
                kv.put(key_of(command), value_of(command))
            gc.collect()
            before, start = _resident(), time.perf_counter()
            gate = Gate.from_store(kv)
            seconds = time.perf_counter() - start
            gc.collect()
            size = (_resident() - before) / 1e6
            try:
                table.add(name, seconds, size, _check(gate))
            finally:
                gate.close()
    table.notes.append(
        "until the gate has everything in force, and how much larger the process is then; a check"
        " of a user without an override, CPU time, best of 30 rounds"
    )
    return table


def _check(gate: Any, count: int = 5_000) -> float:
    best = 1e9
    for _ in range(30):
        start = time.thread_time()
        for _ in range(count):
            gate.check({"user": "7"})
        best = min(best, time.thread_time() - start)
    return best / count * 1e9


def _resident() -> int:
    """Bytes of memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
