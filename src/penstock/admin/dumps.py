"""Rules and switches as JSON, and rules as Envoy's service prints them at ``/rlconfig``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.async_gate import AnyGate
from penstock.clock import SECOND
from penstock.durations import DAY, HOUR, MINUTE, MONTH, WEEK, YEAR
from penstock.limit import Limit
from penstock.rules.deciding.overrides import touched_by
from penstock.rules.deciding.switches import _EVER, State
from penstock.rules.model import ENFORCE, OFF, SHADOW, Period, Rule, RuleLimit
from penstock.rules.walk import limits_of, rules_of

EVER = _EVER
_UNITS = {
    SECOND: "SECOND", MINUTE: "MINUTE", HOUR: "HOUR", DAY: "DAY", WEEK: "WEEK", MONTH: "MONTH",
    YEAR: "YEAR",
}  # fmt: skip
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
    own = state.modes.get(rule.id, ENFORCE)
    if OFF in (state.mode, own):
        return OFF
    return SHADOW if rule.shadow or SHADOW in (state.mode, own) else ENFORCE


def line_of(rule: Rule, state: State, overrides: int = 0) -> str:
    """``api/user: unit=MINUTE requests_per_unit=100, shadow_mode: false``, as in Envoy's service.

    Limits that this format cannot express are shown as text: ``limits=10/second burst 20``.
    After it come the switches: ``switched: off``, its limits, and the number of overrides.
    """
    if rule.unlimited:
        what = "unlimited"
    elif rule.closed:
        what = "requests_per_unit=0"
    elif len(rule.limits) == 1 and _plain(rule.limits[0].limit):
        limit = rule.limits[0].limit
        what = f"unit={_UNITS[limit.period_ns]} requests_per_unit={limit.amount}"
    else:
        what = "limits=" + " & ".join(str(each.limit) for each in rule.limits)
    mode = mode_of(rule, state)
    more = [f"shadow_mode: {str(mode == SHADOW).lower()}"]
    more += [
        f"{word}: true"
        for word, held in (
            ("quota_mode", rule.quota),
            ("plans", rule.plans),
            ("split", rule.split),
            ("schedule", rule.schedule),
        )
        if held
    ]
    if mode == OFF:
        more.append("switched: off")
    names = dict.fromkeys(each.name for _, limits in limits_of(rule) for each in limits)
    for name in names:
        switched = state.modes.get(name, ENFORCE)
        if switched != ENFORCE:
            more.append(f"{name}: {switched}")
    if overrides:
        more.append(f"overrides: {overrides}")
    return ", ".join([f"{rule.id}: {what}", *more])


def _plain(limit: Limit) -> bool:
    """Whether it is a window as in Envoy's service."""
    unit = _UNITS.get(limit.period_ns)
    return unit is not None and str(
        Limit(limit.amount, unit.lower(), algorithm="fixed_window")
    ) == str(limit)


def switches(gate: AnyGate) -> dict[str, Any]:
    """All switches, with the seconds left; null means until it is removed."""
    state = gate.switches.state()
    now = gate.clock.now()
    overrides = [
        {
            "key": key,
            "value": value,
            "factor": one.factor,
            "limit": None if one.limit is None else str(one.limit),
            "left": _left(one.until, now),
        }
        for (key, value), one in state.overrides.items()
    ]
    lists = {
        which: [
            {"key": key, "entry": entry, "left": _left(until, now)}
            for key, entries in getattr(state, which).items()
            for entry, until in entries.items()
        ]
        for which in ("allow", "deny")
    }
    return {"mode": state.mode, "modes": dict(state.modes), "overrides": overrides, **lists}


def _left(until: int, now: int) -> float | None:
    return None if until >= EVER else max(0, until - now) / SECOND
