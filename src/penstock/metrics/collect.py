"""From counters to a snapshot: runs when metrics are read, so it need not be fast."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from penstock import _mode
from penstock._version import __version__
from penstock.errors import StoreError
from penstock.metrics.counters import DomainCounters, RuleCounters
from penstock.metrics.families import ALLOWED, NEAR_LIMIT, OUTCOMES, REFUSED
from penstock.metrics.labels import short
from penstock.metrics.rule_labels import RuleLimits
from penstock.metrics.snapshot import Labels, Snapshot
from penstock.rules.deciding.verdict import UNMATCHED
from penstock.stores.base import Store

if TYPE_CHECKING:
    from penstock.stores.leased import LeasedStore
    from penstock.stores.regions import RegionStore

# Exposed even while they are zero, so that a graph starts when counting does.
_ALWAYS = (ALLOWED, NEAR_LIMIT, REFUSED)


def collect_domains(out: Snapshot, counters: Iterable[DomainCounters]) -> None:
    for at in counters:
        domain = short(at.domain)
        latency = list(at.latency)
        out.add("penstock_requests_total", (domain, ALLOWED), sum(latency) - at.refused)
        out.add("penstock_requests_total", (domain, REFUSED), at.refused)
        out.add("penstock_decision_seconds", (domain,), [*latency, at.seconds])
        out.add("penstock_without_rule_total", (domain, UNMATCHED), at.unmatched)
        for reason, count in list(at.reasons.items()):
            out.add("penstock_without_rule_total", (domain, reason), count)


def collect_rules(out: Snapshot, counters: Iterable[RuleCounters]) -> None:
    for each in counters:
        where = (short(each.domain), short(each.rule))
        _collect_outcomes(out, "penstock_decisions_total", where, each)
        out.add("penstock_degraded_decisions_total", where, each.degraded)


def collect_details(out: Snapshot, counters: Iterable[RuleCounters]) -> None:
    for each in counters:
        where = (short(each.domain), short(each.rule), each.values)
        _collect_outcomes(out, "penstock_detailed_decisions_total", where, each)


def _collect_outcomes(out: Snapshot, name: str, where: Labels, counters: RuleCounters) -> None:
    for outcome in OUTCOMES:
        count = getattr(counters, outcome)
        if count or outcome in _ALWAYS:
            out.add(name, (*where, outcome), count)


def collect_limits(out: Snapshot, limits: RuleLimits) -> None:
    for domain, rule, name, units, seconds, burst in limits.rows:
        where = (domain, rule, name)
        out.set("penstock_limit_units", where, units)
        out.set("penstock_limit_period_seconds", where, seconds)
        out.set("penstock_limit_burst_units", where, burst)
    out.set("penstock_limits_not_shown", (), limits.not_shown)
    out.set("penstock_rules", (), limits.rules)


def collect_store(out: Snapshot, store: object) -> None:
    """The metrics of a store with a bounded number of keys; other stores have none."""
    name = getattr(store, "name", None)
    if not isinstance(name, str):
        return
    for attribute in ("max_keys", "evictions", "repairs"):
        try:
            count = getattr(store, attribute, None)
        except StoreError:  # a truncated file
            continue
        if isinstance(count, int):
            family = attribute if attribute == "max_keys" else f"{attribute}_total"
            out.set(f"penstock_store_{family}", (short(name),), count)


def collect_leases(out: Snapshot, store: Store) -> None:
    """The metrics of a `LeasedStore`, whose module needs redis-py; other stores have none."""
    if not store.can_lease:
        return
    leased = cast("LeasedStore", store)
    where, stats = (short(leased.name),), leased.stats()
    out.set("penstock_leases", where, stats.leases)
    out.set("penstock_lease_units", where, stats.held)
    out.set("penstock_lease_decisions_total", (*where, "here"), stats.decided_here)
    out.set("penstock_lease_decisions_total", (*where, "directly"), stats.decided_directly)
    out.set("penstock_lease_calls_total", where, stats.calls)
    out.set("penstock_lease_calls_saved", where, stats.calls_saved)
    out.set("penstock_lease_failures_total", where, stats.failures)
    out.set("penstock_lease_granted_units_total", where, stats.granted)
    out.set("penstock_lease_stretch", where, stats.stretched)
    out.set("penstock_lease_returned_units_total", where, stats.returned)
    out.set("penstock_lease_lapsed_units_total", where, stats.lapsed)
    out.set("penstock_lease_unused_ratio", where, stats.unused_share)


def collect_region(out: Snapshot, store: Store) -> None:
    """The metrics of a `RegionStore`, also below a `LeasedStore`; other stores have none."""
    below = getattr(store, "redis", store)
    if not hasattr(below, "home_name"):
        return
    stats = cast("RegionStore", below).stats()
    where = (short(stats.region),)
    out.set("penstock_region_floor", where, stats.floor)
    out.set("penstock_region_cut_off", where, int(stats.is_cut_off))
    out.set("penstock_region_share_seconds", where, round(stats.share_left, 3))
    out.set("penstock_region_agents", where, int(stats.is_agent))
    out.set("penstock_region_keys", where, stats.lent)
    out.set("penstock_region_rounds_total", where, stats.rounds)
    out.set("penstock_region_failures_total", where, stats.failures)


def collect_process(out: Snapshot, worker: str) -> None:
    """The metrics of this process; memory and descriptors only where /proc exists."""
    core = "compiled" if _mode.COMPILED else "pure"
    out.set("penstock_info", (__version__, core), 1)
    out.set("penstock_workers", (), 1)
    out.set("penstock_process_cpu_seconds_total", (worker,), time.process_time())
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        memory = pages * os.sysconf("SC_PAGE_SIZE")
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        started = time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")
        fds = len(os.listdir("/proc/self/fd")) - 1  # without the descriptor of listdir itself
    except (OSError, ValueError, IndexError):
        return
    out.set("penstock_process_start_time_seconds", (worker,), round(started, 2))
    out.set("penstock_process_resident_memory_bytes", (worker,), memory)
    out.set("penstock_process_open_fds", (worker,), fds)
