"""Rules: what a request costs by how many there are, and how long they take to load."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.report import Table
from penstock import Gate, Limiter

REQUESTS = 2_000
ROUNDS = 15


def run(quick: bool = False) -> list[Table]:
    return [_requests(quick), _loading(quick)]


def _requests(quick: bool) -> Table:
    sizes = (10, 1_000, 10_000) if quick else (10, 1_000, 10_000, 100_000)
    gates = {f"{size:,} rules, 3 exact pairs": _exact(size) for size in sizes}
    gates["10,000 rules, the last pair any value"] = _any(10_000)
    gates["two descriptors, three limits"] = _several()
    patterns = [f"/v{number}/*" for number in range(200)]
    for which, path in (("last", "/v199/x"), ("none", "/other/x")):
        gates[f"200 wildcards, {which} matches"] = _wild(patterns, path)
    best = dict.fromkeys(gates, float("inf"))
    limiter, floor = Limiter("1000000/second"), float("inf")
    for _ in range(ROUNDS):  # interleaved: what disturbs, disturbs all
        for name, ask in gates.items():
            best[name] = min(best[name], ask())
        start = time.perf_counter_ns()
        for _ in range(REQUESTS):
            limiter.hit("user:42")
        floor = min(floor, (time.perf_counter_ns() - start) / REQUESTS)
    table = Table(
        "Rules: one request, memory store, full verdict",
        {"rules": "", "us a request": ".2f", "x of 10 rules": ".2f"},
    )
    smallest = next(iter(best.values()))
    for name, found in best.items():
        table.add(name, found / 1e3, found / smallest)
    note = f"Limiter.hit alone: {floor:.0f} ns; {REQUESTS} hot requests, best of {ROUNDS}"
    table.notes.append(note)
    return table


def _loading(quick: bool) -> Table:
    table = Table("Rules: loading", {"rules": "", "seconds": ".2f"})
    for size in (1_000, 10_000) if quick else (1_000, 10_000, 100_000):
        text = _text(size)
        start = time.perf_counter()
        Gate.from_rules(text)
        table.add(f"{size:,} rules of 3 levels", time.perf_counter() - start)
    return table


def _text(size: int) -> str:
    """``size`` rules: a hundred to a branch, so that every level is a real one."""
    lines = ["domain: api", "descriptors:"]
    for number in range(size):
        if number % 100 == 0:
            lines += [
                f"- key: region\n  value: r{number // 100}\n  descriptors:",
                "  - key: service\n    value: shop\n    descriptors:",
            ]
        lines.append(f"    - {{key: path, value: p{number}, limits: 1000000/second}}")
    return "\n".join(lines)


def _timed(gate: Gate, requests: list[tuple[dict[str, str], ...]]) -> Callable[[], float]:
    assert gate.check(*requests[0])

    def ask() -> float:
        check = gate.check
        start = time.perf_counter_ns()
        for request in requests:
            check(*request)
        return (time.perf_counter_ns() - start) / len(requests)

    return ask


def _exact(size: int) -> Callable[[], float]:
    gate = Gate.from_rules(_text(size))
    hot = [number * (size // 10) for number in range(10)]
    pairs = [
        {"region": f"r{number // 100}", "service": "shop", "path": f"p{number}"} for number in hot
    ]
    return _timed(gate, [(pairs[at % 10],) for at in range(REQUESTS)])


def _any(size: int) -> Callable[[], float]:
    lines = ["domain: api", "descriptors:"]
    below = "descriptors: [{key: user, limits: 1000000/second}]"
    lines += [f"- {{key: path, value: p{number}, {below}}}" for number in range(size)]
    gate = Gate.from_rules("\n".join(lines))
    return _timed(gate, [({"path": "p77", "user": f"u{at % 10}"},) for at in range(REQUESTS)])


def _several() -> Callable[[], float]:
    gate = Gate.from_rules(
        {
            "domain": "api",
            "descriptors": [
                {"key": "user", "limits": ["1000000/second", "100000000/minute"]},
                {"key": "ip", "limits": "2000000/second"},
            ],
        }
    )
    return _timed(gate, [({"user": f"u{at % 10}"}, {"ip": "a"}) for at in range(REQUESTS)])


def _wild(patterns: list[str], path: str) -> Callable[[], float]:
    steps = [{"key": "path", "value": value, "limits": "1000000/second"} for value in patterns]
    gate = Gate.from_rules({"domain": "api", "descriptors": steps})
    return _timed(gate, [({"path": path},) for _ in range(REQUESTS)])
