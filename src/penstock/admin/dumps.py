"""Rules as JSON; and ``/rlconfig`` and ``/stats``, as Envoy's service prints them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.async_gate import AnyGate
from penstock.clock import SECOND
from penstock.durations import DAY, HOUR, MINUTE, MONTH, WEEK, YEAR, format_duration
from penstock.limits import Limit
from penstock.metrics import families
from penstock.metrics.snapshot import Snapshot
from penstock.rules.deciding.overrides import touched_by
from penstock.rules.deciding.switches import State
from penstock.rules.model import ENFORCE, OFF, SHADOW, Period, Rule, RuleLimit
from penstock.rules.walk import limits_of, rules_of

_UNITS = {
    SECOND: "SECOND", MINUTE: "MINUTE", HOUR: "HOUR", DAY: "DAY", WEEK: "WEEK", MONTH: "MONTH",
    YEAR: "YEAR",
}  # fmt: skip
_SERVICE = "ratelimit.service"
# The outcomes that each of Envoy's names sums up.
_SUMS = {
    "total_hits": families.OUTCOMES,
    "over_limit": (families.REFUSED, families.SHADOWED),
    "near_limit": (families.NEAR_LIMIT,),
    "within_limit": (families.ALLOWED, families.NEAR_LIMIT, families.OVERRUN),
    "shadow_mode": (families.SHADOWED,),
}
# The families of leases, with their labels beside the store.
_LEASES = {
    "keys": ("leases",),
    "units": ("lease_units",),
    "decided_here": ("lease_decisions_total", "here"),
    "decided_directly": ("lease_decisions_total", "directly"),
    "calls": ("lease_calls_total",),
    "failures": ("lease_failures_total",),
    "granted": ("lease_granted_units_total",),
    "returned": ("lease_returned_units_total",),
    "lapsed": ("lease_lapsed_units_total",),
    "stretched": ("lease_stretch",),
}
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def rules(gate: AnyGate) -> dict[str, Any]:
    """All rules in the order of their files, with their current mode."""
    in_force = gate.rules
    state = gate.switches.state()
    touched = touched_by(in_force, state.overrides) if state.overrides else {}
    domains = []
    for name, domain in in_force.domains.items():
        # In the order of their files, also if a domain is split over several.
        ordered = sorted(rules_of(domain), key=lambda rule: (rule.place, rule.id))
        lists = {
            which: {key: list(values.entries) for key, values in getattr(domain, which).items()}
            for which in ("allow", "deny")
        }
        rows = [_rule(rule, state, touched.get(rule.id, 0)) for rule in ordered]
        domains.append({"domain": name, "rules": rows, **lists})
    return {"files": list(in_force.files), "domains": domains}


def _rule(rule: Rule, state: State, overrides: int) -> dict[str, Any]:
    modes = state.modes
    row: dict[str, Any] = {
        "id": rule.id,
        "place": str(rule.place),
        "limits": _limits(rule.limits, modes),
        "shadow": rule.shadow,
        "switched": modes.get(rule.id),
        "mode": mode_of(rule, state),
        "overrides": overrides,
        "line": line_of(rule, state, overrides),
    }
    for name in ("unlimited", "closed", "quota"):
        if getattr(rule, name):
            row[name] = True
    if rule.name is not None:
        row["name"] = rule.name
    if rule.cost != 1:
        row["cost"] = rule.cost
    if rule.replaces:
        row["replaces"] = sorted(rule.replaces)
    if rule.plans is not None:
        tiers = {tier: _limits(limits, modes) for tier, limits in rule.plans.tiers.items()}
        row["plans"] = {"by": rule.plans.by, "tiers": tiers, "default": rule.plans.default}
    if rule.split is not None:
        split = rule.split
        row["split"] = {"percent": split.percent, "limits": _limits(split.limits, modes)}
    if rule.concurrency:
        (each,) = rule.concurrency
        lease = each.limit.period_ns / SECOND
        switched = modes.get(each.name)
        row["concurrency"] = {
            "name": each.name, "slots": each.limit.amount, "slot_lease": lease,
            "switched": switched,
        }  # fmt: skip
    if rule.meter is not None:
        use = rule.meter
        row["meter"] = {
            "name": use.name, "meter": use.meter, "plan_by": use.plan_by,
            "on_failure": use.on_failure, "switched": modes.get(use.name),
        }  # fmt: skip
    if rule.lease is not None:
        own = type(rule.lease) is int
        row["lease"] = {"horizon": rule.lease / SECOND} if own else rule.lease
    if rule.schedule:
        row["schedule"] = [_period(period, modes) for period in rule.schedule]
    return row


def _limits(limits: Sequence[RuleLimit], modes: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"name": each.name, "limit": str(each.limit), "switched": modes.get(each.name)}
        for each in limits
    ]


def _period(period: Period, modes: Mapping[str, str]) -> dict[str, Any]:
    return {
        "days": [_DAYS[day] for day in sorted(period.days)],
        "from": f"{period.start:%H:%M}",
        "to": f"{period.end:%H:%M}",
        "zone": period.zone,
        "limits": _limits(period.limits, modes),
    }


def mode_of(rule: Rule, state: State) -> str:
    """The effective mode of a rule, from its file and all switches."""
    modes = (state.mode, state.modes.get(rule.id, ENFORCE))
    if OFF in modes:
        return OFF
    return SHADOW if rule.shadow or SHADOW in modes else ENFORCE


def line_of(rule: Rule, state: State, overrides: int = 0) -> str:
    """``api/user: unit=MINUTE requests_per_unit=100, shadow_mode: false``, as in Envoy's service.

    Limits that this format cannot express are shown as text: ``limits=10/second burst 20``.
    The switches follow: ``switched: off``, those of its limits, and the number of overrides.
    """
    if rule.unlimited:
        limits = "unlimited"
    elif rule.closed:
        limits = "requests_per_unit=0"
    elif len(rule.limits) == 1 and _plain(rule.limits[0].limit):
        limit = rule.limits[0].limit
        limits = f"unit={_UNITS[limit.period_ns]} requests_per_unit={limit.amount}"
    else:
        limits = "limits=" + " & ".join(str(each.limit) for each in rule.limits)
    for each in rule.concurrency:
        slots = (
            f"concurrency={each.limit.amount} slot_lease={format_duration(each.limit.period_ns)}"
        )
        limits = f"{limits} {slots}" if rule.limits or rule.unlimited or rule.closed else slots
    if rule.meter is not None:
        quota = f"quota={rule.meter.meter}"
        limits = f"{limits} {quota}" if rule.limits or rule.concurrency else quota
    mode = mode_of(rule, state)
    more = [f"shadow_mode: {str(mode == SHADOW).lower()}"]
    parts = {
        "quota_mode": rule.quota, "plans": rule.plans, "split": rule.split,
        "schedule": rule.schedule,
    }  # fmt: skip
    more += [f"{name}: true" for name, value in parts.items() if value]
    if mode == OFF:
        more.append("switched: off")
    names = [each.name for _, of_set in limits_of(rule) for each in of_set]
    names += [rule.meter.name] if rule.meter is not None else []
    for name in dict.fromkeys(names):
        switched = state.modes.get(name, ENFORCE)
        if switched != ENFORCE:
            more.append(f"{name}: {switched}")
    if overrides:
        more.append(f"overrides: {overrides}")
    return ", ".join([f"{rule.id}: {limits}", *more])


def _plain(limit: Limit) -> bool:
    """Whether it is a window as in Envoy's service."""
    unit = _UNITS.get(limit.period_ns)
    return unit is not None and str(
        Limit(limit.amount, unit.lower(), algorithm="fixed_window")
    ) == str(limit)


def lease_figures(snapshot: Snapshot) -> dict[str, Any] | None:
    """What leases have done, in all workers; None if the store does not lease."""
    stores = snapshot.values.get("penstock_leases", {})
    if not stores:
        return None
    ((store,),) = stores
    return {
        name: snapshot.get(f"penstock_{family}", store, *labels)
        for name, (family, *labels) in _LEASES.items()
    }


def stats_text(snapshot: Snapshot) -> str:
    """The counters of every rule, and how often rules were loaded, as Envoy's service prints them.

    ``ratelimit.service.rate_limit.api.plan_free.user.over_limit: 3``
    """
    decisions = snapshot.values.get("penstock_decisions_total", {})
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for (domain, rule, outcome), value in decisions.items():
        if isinstance(value, (int, float)):
            counts.setdefault((domain, rule), {})[outcome] = int(value)
    lines = [
        f"{_SERVICE}.config_load_success: {snapshot.get('penstock_rules_loaded_total')}",
        f"{_SERVICE}.config_load_error: {snapshot.get('penstock_rules_rejected_total')}",
    ]
    for (_, rule), by_outcome in counts.items():
        name = _one_line(rule.replace("/", ".").replace("=", "_"))
        for envoy_name, outcomes in _SUMS.items():
            total = sum(by_outcome.get(outcome, 0) for outcome in outcomes)
            lines.append(f"{_SERVICE}.rate_limit.{name}.{envoy_name}: {total}")
    return "\n".join(sorted(lines)) + "\n"


def _one_line(name: str) -> str:
    return "".join(each if each.isprintable() and each != ":" else "_" for each in name)
