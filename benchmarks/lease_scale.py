"""Leases at five million requests a second: simulated fleets, and what a call costs a real server.

The simulation is `lease_fleet.py`. The cost of a call is CPU time of a real server, so it does not
depend on what else the machine does.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import plots, redis_server
from benchmarks.lease_fleet import Result, play, uneven
from benchmarks.report import OUT, Table

REQUESTS = 5_000_000  # a second
TRIPS = (2, 50)  # milliseconds
INSTANCES = (100, 1000)
# Keys, the limit of each, and its horizon in milliseconds.
KEYS = (
    (1, "2500000/second", 100),
    (1, "6000000/second", 100),
    (100, "25000/second burst 100000", 1000),
    (100, "25000/second", 1000),  # whose burst allows a horizon of 250 ms only
)
PREFIX = "scale"


def run(quick: bool, server: redis_server.Server) -> list[Table]:
    costs = _costs(server, quick)
    table = Table(
        "Leases: 5 million requests a second, simulated",
        {
            "instances": ",", "from Redis": "", "limits": "", "decided here": ".3%",
            "messages a second": ",.0f", "calls a second": ",.0f", "cores of Redis": ".2f",
            "used": ".2%",
            "fullest interval": ".0%", "spread": ".3f",
        },
    )  # fmt: skip
    results: dict[tuple[int, int, int, str], tuple[Result, float]] = {}
    for instances in INSTANCES[:1] if quick else INSTANCES:
        for trip in TRIPS:
            for keys, limit, horizon in KEYS:
                result, cores = _play(instances, trip, keys, limit, horizon, costs, quick)
                results[instances, trip, keys, limit] = result, cores
                table.add(
                    instances, f"{trip} ms", f"{keys} x {limit}", result.local_share,
                    keys * result.messages / result.seconds,
                    keys * (result.messages + result.direct) / result.seconds, cores, result.used,
                    result.worst, result.spread,
                )  # fmt: skip
    one, batched = costs["direct"], costs["direct, 64 in a call"]
    table.notes += [
        f"one call for each request: {REQUESTS * one / 1e6:.0f} cores of Redis; 64 requests in a"
        f" call: {REQUESTS * batched / 1e6:.0f}",
        "used: of what one bucket would have admitted, after the burst; fullest interval: admitted"
        " less rate x time, of the burst; spread: of admitted / offered, 10th to 90th percentile",
        "calls a second: at most; messages about several keys share calls. 100 keys: horizon 1s",
    ]
    if not quick:
        try:
            _picture(results, costs, OUT / "leases.png")
        except ModuleNotFoundError as error:  # the tables took minutes: print them all the same
            table.notes.append(f"no picture: {error.name} is not installed")
    return [_cost_table(costs, server.name()), table]


def _play(
    instances: int, trip: int, keys: int, limit: str, horizon: int, costs: Mapping[str, float],
    quick: bool,
) -> tuple[Result, float]:  # fmt: skip
    rates = uneven(instances, REQUESTS / keys)
    seconds = 2.0 if quick else 5.0
    result = play(limit, rates, trip * 1_000_000, horizon * 1_000_000, seconds, settle=8.0)
    # Messages of many keys of one instance share calls.
    cost = costs[f"lease, {instances:,} holders" + (", 64 in a call" if keys > 1 else "")]
    calls = keys * (result.messages * cost + result.direct * costs["direct"])
    return result, calls / result.seconds / 1e6


def _costs(server: redis_server.Server, quick: bool) -> dict[str, float]:
    """Microseconds of the server's CPU."""
    from penstock import Limit, Limiter
    from penstock.stores.leased import law, wire
    from penstock.stores.redis import RedisStore
    from penstock.stores.redis import script as redis_script

    rounds = 2_000 if quick else 10_000
    costs: dict[str, float] = {}
    with RedisStore(server.database(), deadline="10s") as store:
        limiter = Limiter("2500000/second", store=store)
        limiter.hit("key")
        costs["direct"] = _cpu(server, rounds, lambda: limiter.hit("key"))
        keys = [f"key:{number}" for number in range(64)]
        many = _cpu(server, rounds // 64, lambda: limiter.hit_many(keys))
        costs["direct, 64 in a call"] = many / 64
        limit = Limit.parse("2500000/second")
        terms = law.terms_of(limit)
        assert terms is not None
        policy = redis_script.policy(limit, 0)
        with store.client(timeout="10s") as client:
            name: Any = client.script_load(wire.bank_script())
            for holders in (1, *INSTANCES):
                fleet = _Holders(client, name, policy, terms, holders)
                label = f"lease, {holders:,} holder" + ("s" if holders > 1 else "")
                for count, more in ((1, ""), (64, ", 64 in a call")):
                    for _ in range(holders):
                        fleet.call(count)
                    calls = rounds if count == 1 else max(rounds // 16, holders)
                    cost = _cpu(server, calls, partial(fleet.call, count))
                    costs[label + more] = cost / count
    return costs


class _Holders:
    """Of up to 64 keys; with each call, the next one renews."""

    def __init__(self, client: Any, script: str, policy: Any, terms: Any, holders: int) -> None:
        self.client, self.script, self.policy, self.terms = client, script, policy, terms
        self.granted = [[0] * holders for _ in range(64)]
        self.holders, self.at = holders, 0

    def call(self, count: int) -> None:
        from penstock.stores.leased import wire
        from penstock.stores.leased.messages import Message

        at = self.at = (self.at + 1) % self.holders
        parcels = []
        for key in range(count):
            had = self.granted[key][at]
            message = Message(b"holder.%d" % at, had, had, 0, 5_000, 500)
            place = f"{PREFIX}:{self.holders}:{key}".encode()
            parcels.append(wire.parcel(PREFIX, place, self.policy, self.terms, message))
        replies = wire.decode(self.client.evalsha(self.script, *wire.encode(parcels)))
        for key, reply in enumerate(replies):
            self.granted[key][at] = reply.granted


def _cpu(server: redis_server.Server, rounds: int, call: Any) -> float:
    before = server.cpu_seconds()
    for _ in range(rounds):
        call()
    return 1e6 * (server.cpu_seconds() - before) / rounds


def _cost_table(costs: Mapping[str, float], name: str) -> Table:
    table = Table(
        "Leases: what Redis does", {"": "", "µs of CPU": ".1f", "a second and core": ",.0f"}
    )
    for label, cost in costs.items():
        table.add(label, cost, 1e6 / cost)
    table.notes.append(f"{name}; for each decision, or each message about one key")
    return table


def _picture(
    results: Mapping[tuple[int, int, int, str], tuple[Result, float]], costs: Mapping[str, float],
    path: Path,
) -> None:  # fmt: skip
    bars = {
        "one call for each request": REQUESTS * costs["direct"] / 1e6,
        "64 requests in a call": REQUESTS * costs["direct, 64 in a call"] / 1e6,
    }
    for instances in INSTANCES[::-1]:
        for keys, limit, _ in (KEYS[2], KEYS[0]):
            what = "1 key" if keys == 1 else f"{keys} keys"
            bars[f"leases, {instances:,} instances, {what}"] = results[instances, 2, keys, limit][1]
    figure, (axis,) = plots.canvas(8, 3.2)
    colours = [plots.ORANGE] * 2 + [plots.BLUE] * (len(bars) - 2)
    places = range(len(bars))[::-1]
    axis.barh(places, list(bars.values()), color=colours, height=0.62)
    for place, cores in zip(places, bars.values(), strict=True):
        axis.annotate(
            f"{cores:,.0f}" if cores >= 10 else f"{cores:.2g}", (cores, place),
            xytext=(5, 0), textcoords="offset points", va="center",
        )  # fmt: skip
    axis.set_yticks(places, list(bars))
    axis.tick_params(axis="y", length=0)
    axis.set_xscale("log")
    axis.set_xlim(0.005, 4 * max(bars.values()))
    axis.set_xlabel("cores of Redis for 5 million requests a second (logarithmic)")
    plots.save(figure, path)
