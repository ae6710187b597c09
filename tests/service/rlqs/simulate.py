"""How much of a limit stays unused when Envoys divide it. Prints a table.

Four Envoys and one limit, in virtual time, compared with one bucket that sees all requests. Each
line also says by how much the limit was exceeded in any interval: never.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from service.rlqs.envoys import Envelope, World  # the path has to be there first

RATE = 200
STEP = 20
Demand = Callable[[float], Sequence[float]]


def steady(total: float) -> Demand:
    return lambda t: [total * part for part in (0.7, 0.2, 0.08, 0.02)]


def drifting(total: float) -> Demand:
    return lambda t: [total / 4 * (1 + 0.8 * math.sin(t / 40 + 1.57 * i)) for i in range(4)]


def hot_spot(total: float, period: float) -> Demand:
    return lambda t: [total * (0.85 if i == int(t / period) % 4 else 0.05) for i in range(4)]


def simulate(demand: Demand, seconds: int = 240, can_prove: bool = True) -> tuple[float, float]:
    """The part of what one bucket would have allowed that was not, and the largest excess."""
    rules = f"domain: envoys\ndescriptors:\n- key: user\n  limits: {RATE}/second\n"
    world = World(rules, can_prove=can_prove)
    envoys = [world.envoy(f"envoy-{number}") for number in range(4)]
    start = world.now
    envelope = Envelope(RATE, RATE, start)
    ideal, level, before = 0.0, float(RATE), 0
    owed = [0.0] * 4
    while world.now < start + 1000 * seconds:
        elapsed = (world.now - start) / 1000
        if elapsed < 40:
            ideal, before = 0.0, envelope.admitted  # Envoys have to be known first
        demands = demand(elapsed)
        level = min(RATE, level + RATE * STEP / 1000)
        offered = sum(demands) * STEP / 1000
        ideal += min(level, offered)
        level -= min(level, offered)
        for number, envoy in enumerate(envoys):
            owed[number] += demands[number] * STEP / 1000
            for _ in range(int(owed[number])):
                owed[number] -= 1
                if envoy.request():
                    envelope.admit(world.now)
        world.run_until(world.now + STEP)
    return 1 - (envelope.admitted - before) / ideal, -envelope.lowest


CASES: list[tuple[str, Demand]] = [
    ("steady, 2 x the limit", steady(2 * RATE)),
    ("steady, 0.9 x", steady(0.9 * RATE)),
    ("drifting, 1.5 x", drifting(1.5 * RATE)),
    ("drifting, 0.95 x", drifting(0.95 * RATE)),
    ("hot spot, every 60 s, 2 x", hot_spot(2 * RATE, 60)),
    ("hot spot, every 20 s, 2 x", hot_spot(2 * RATE, 20)),
    ("hot spot, every 60 s, 0.9 x", hot_spot(0.9 * RATE, 60)),
]


def main() -> None:
    print(f"{'':30} {'proven':>10} {'not proven':>12}   unused part of the limit")
    for name, demand in CASES:
        results = [simulate(demand, can_prove=can_prove) for can_prove in (True, False)]
        assert max(excess for _, excess in results) <= 0, "the limit was exceeded"
        parts = [f"{100 * unused:.1f} %" for unused, _ in results]
        print(f"{name:30} {parts[0]:>10} {parts[1]:>12}")


if __name__ == "__main__":
    main()
