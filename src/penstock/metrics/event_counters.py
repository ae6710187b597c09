"""EventCounters: counts events of stores, circuit breakers and rules.

Events are rare and come from any thread, so there is a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.breaker import CircuitBreaker, CircuitChanged
from penstock.clock import SECOND, Clock
from penstock.events import Damaged, Degraded, Event, RulesLoaded, RulesRejected, StoreDown, StoreUp
from penstock.metrics.labels import short
from penstock.metrics.snapshot import Snapshot

_STATES = {"closed": 0, "half-open": 1, "open": 2}
# How many stores and breakers are distinguished; there are few, unless they are named by key.
_MOST = 100


class EventCounters:
    """Counts events; calls ``loaded`` when new rules have come into force."""

    def __init__(self, clock: Clock, loaded: Callable[[], None]) -> None:
        self._clock = clock
        self._loaded = loaded
        self._lock = threading.Lock()
        self._stores: dict[str, int] = {}
        self._downs: dict[str, int] = {}
        self._degraded: dict[tuple[str, str, str], int] = {}
        self._damaged: dict[str, int] = {}
        self._circuits: dict[str, int] = {}
        self._rules_loaded = 0
        self._rules_rejected = 0
        self._rules_ok = 1
        self._loaded_at = 0

    def register(self, source: object, name: str) -> None:
        """Register a source of events, which is healthy so far."""
        with self._lock:
            if isinstance(source, CircuitBreaker):
                self._circuits[short(name)] = _STATES[source.state]
            else:
                self._stores.setdefault(short(name), 1)
                self._downs.setdefault(short(name), 0)

    def rules_loaded(self) -> None:
        with self._lock:
            self._rules_loaded += 1
            self._rules_ok = 1
            self._loaded_at = self._clock.now()

    def count(self, event: Event) -> None:
        if isinstance(event, RulesLoaded):
            self.rules_loaded()
            self._loaded()
            return
        with self._lock:
            if isinstance(event, RulesRejected):
                self._rules_rejected += 1
                self._rules_ok = 0
            elif isinstance(event, CircuitChanged):
                self._circuits[_bounded(self._circuits, event.store)] = _STATES[event.state]
            elif isinstance(event, StoreDown):
                name = _bounded(self._stores, event.store)
                self._stores[name] = 0
                self._downs[name] = self._downs.get(name, 0) + 1
            elif isinstance(event, StoreUp):
                self._stores[_bounded(self._stores, event.store)] = 1
            elif isinstance(event, Degraded):
                key = (short(event.store), event.verb, event.policy)
                if key not in self._degraded and len(self._degraded) >= _MOST:
                    key = ("other", event.verb, event.policy)
                self._degraded[key] = self._degraded.get(key, 0) + 1
            elif isinstance(event, Damaged):
                name = _bounded(self._damaged, event.store)
                self._damaged[name] = self._damaged.get(name, 0) + 1

    def collect(self, out: Snapshot) -> None:
        with self._lock:
            for name, state in self._stores.items():
                out.set("penstock_store_up", (name,), state)
            for name, downs in self._downs.items():
                out.set("penstock_store_downs_total", (name,), downs)
            for key, count in self._degraded.items():
                out.set("penstock_store_degraded_total", key, count)
            for name, count in self._damaged.items():
                out.set("penstock_store_damaged_total", (name,), count)
            for name, state in self._circuits.items():
                out.set("penstock_circuit_state", (name,), state)
            out.set("penstock_rules_loaded_total", (), self._rules_loaded)
            out.set("penstock_rules_rejected_total", (), self._rules_rejected)
            if self._rules_loaded:
                out.set("penstock_rules_ok", (), self._rules_ok)
                at = self._loaded_at / SECOND
                out.set("penstock_rules_loaded_timestamp_seconds", (), at)


def _bounded(names: dict[str, int], name: str) -> str:
    name = short(name)
    return name if name in names or len(names) < _MOST else "other"
