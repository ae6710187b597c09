"""EventCounters: counts events of stores, circuit breakers and rules.

Events are rare and come from any thread, so there is a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.breaker import CircuitBreaker, CircuitChanged
from penstock.clock import SECOND, Clock
from penstock.events import Damaged, Degraded, Event, RulesLoaded, RulesRejected, StoreDown, StoreUp
from penstock.metrics.families import OTHER
from penstock.metrics.labels import short
from penstock.metrics.slots import SlotCounters
from penstock.metrics.snapshot import Labels, Snapshot

_UP, _DOWNS = "penstock_store_up", "penstock_store_downs_total"
_DEGRADED, _DAMAGED = "penstock_store_degraded_total", "penstock_store_damaged_total"
_CIRCUIT = "penstock_circuit_state"
_STATES = {"closed": 0, "half-open": 1, "open": 2}
# How many stores and breakers are distinguished; there are few, unless they are named by key.
_MOST = 100


class EventCounters:
    """Counts events; calls ``loaded`` when new rules have come into force."""

    def __init__(self, clock: Clock, loaded: Callable[[], None]) -> None:
        self._clock = clock
        self._loaded = loaded
        self._lock = threading.Lock()
        self._values: dict[str, dict[Labels, int]] = {}  # by family
        self._slots = SlotCounters()
        self._rules_loaded = 0
        self._rules_rejected = 0
        self._rules_ok = 1
        self._loaded_at = 0

    def register(self, source: object, name: str) -> None:
        """Register a source of events, which is healthy so far."""
        labels = (short(name),)
        with self._lock:
            if isinstance(source, CircuitBreaker):
                self._of(_CIRCUIT)[labels] = _STATES[source.state]
            else:
                self._of(_UP).setdefault(labels, 1)
                self._of(_DOWNS).setdefault(labels, 0)

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
                self._of(_CIRCUIT)[self._labels(_CIRCUIT, event)] = _STATES[event.state]
            elif isinstance(event, StoreDown):
                labels = self._labels(_UP, event)
                self._of(_UP)[labels] = 0
                self._add(_DOWNS, labels)
            elif isinstance(event, StoreUp):
                self._of(_UP)[self._labels(_UP, event)] = 1
            elif isinstance(event, Degraded):
                self._add(_DEGRADED, self._labels(_DEGRADED, event, event.verb, event.policy))
            elif isinstance(event, Damaged):
                self._add(_DAMAGED, self._labels(_DAMAGED, event))
            else:
                self._slots.count(event, self._clock.now())

    def _of(self, family: str) -> dict[Labels, int]:
        return self._values.setdefault(family, {})

    def _add(self, family: str, labels: Labels) -> None:
        values = self._of(family)
        values[labels] = values.get(labels, 0) + 1

    def _labels(self, family: str, event: Event, *more: str) -> Labels:
        values, labels = self._of(family), (short(event.store), *more)
        return labels if labels in values or len(values) < _MOST else (OTHER, *more)

    def collect(self, out: Snapshot) -> None:
        with self._lock:
            for family, values in self._values.items():
                for labels, value in values.items():
                    out.set(family, labels, value)
            self._slots.collect(out, self._clock.now())
            out.set("penstock_rules_loaded_total", (), self._rules_loaded)
            out.set("penstock_rules_rejected_total", (), self._rules_rejected)
            if self._rules_loaded:
                out.set("penstock_rules_ok", (), self._rules_ok)
                at = self._loaded_at / SECOND
                out.set("penstock_rules_loaded_timestamp_seconds", (), at)
