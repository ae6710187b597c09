"""Load on a fleet, over HTTP and from Envoy, that notes by which limits it was answered."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from running.e2e.fleet import Fleet
from running.e2e.gateways import Config, EnvoyConfig
from running.e2e.running import Running, ask

PAUSE = 0.02  # seconds between two questions of a client
# What became of each descriptor: the reason, and the limit in force.
State = tuple[tuple[str, str | None], ...]


class Sample(NamedTuple):
    """``asked`` is when the question was sent, by the wall clock."""

    asked: float
    instance: int
    state: State


class FleetLoad:
    """Every question is on a connection of its own, so both workers of an instance get some."""

    def __init__(self, fleet: Fleet, edges: list[str], tenant: str) -> None:
        self.samples: list[Sample] = []
        self.statuses: Counter[str] = Counter()
        self.errors: list[str] = []
        self._question = json.dumps(
            {"domain": "edge", "descriptors": [{"tenant": tenant, "left": "1"},
                                               {"tenant": tenant, "right": "1"}]}
        ).encode()  # fmt: skip
        self._tenant = tenant
        self._stop = threading.Event()
        loops: list[Callable[[], None]] = []
        for number, instance in enumerate(fleet.instances):
            loops += [lambda n=number, http=instance.http: self._ask_http(n, http)] * 2
        loops += [lambda edge=edge: self._ask_envoy(edge) for edge in edges]
        self._threads = [threading.Thread(target=self._repeat, args=(each,)) for each in loops]
        for thread in self._threads:
            thread.start()

    def _repeat(self, ask_once: Callable[[], None]) -> None:
        while not self._stop.wait(PAUSE):
            try:
                ask_once()
            except (OSError, ValueError, KeyError) as error:
                self.errors.append(repr(error))

    def _ask_http(self, instance: int, where: str) -> None:
        asked = time.time()
        answer = ask(where, "/v1/check", "POST", self._question)
        self.statuses[f"http {answer.status}"] += 1
        statuses = json.loads(answer.body)["statuses"]
        state = tuple((each["reason"], (each.get("limit") or {}).get("text")) for each in statuses)
        self.samples.append(Sample(asked, instance, state))

    def _ask_envoy(self, edge: str) -> None:
        """Every fiftieth user is refused from its third request on."""
        count = sum(self.statuses.values())
        headers = {
            "x_tenant": self._tenant,
            "x_left": "1",
            "x_right": "1",
            "x_user": f"{count % 50}",
        }
        answer = ask(edge, **headers)
        self.statuses[f"envoy {answer.status}"] += 1

    def states(self, instances: int) -> list[State | None]:
        """What each instance answered last."""
        last: dict[int, State] = {}
        for sample in self.samples[-200:]:
            last[sample.instance] = sample.state
        return [last.get(number) for number in range(instances)]

    def lag(self, since: float, old: State) -> float:
        """For how many seconds after a change a question was still answered by the old state."""
        late = [each.asked - since for each in self.samples if each.state == old]
        return max([0.0, *[each for each in late if each > 0]])

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def start_envoy(app: int, admin: int, ports: list[int], fleet: Fleet) -> Running:
    """A listener before each instance."""
    config = EnvoyConfig(app, admin)
    for port, instance in zip(ports, fleet.instances, strict=True):
        limits = [_limited("tenant", "left"), _limited("tenant", "right"), _limited("user")]
        config.listen(port, instance.grpc, rate_limits=limits, domain="edge")
    return config.start()


def envoy_errors(admin: str) -> int:
    """Questions that Envoy has got no answer to, or sent too late."""
    stats = json.loads(ask(admin, "/stats?format=json&filter=ratelimit.error").body)
    return sum(each["value"] for each in stats["stats"] if "value" in each)


def _limited(*names: str) -> Config:
    """A descriptor, if the request has these headers."""
    return {
        "actions": [
            {"request_headers": {"header_name": f"x-{name}", "descriptor_key": name}}
            for name in names
        ]
    }
