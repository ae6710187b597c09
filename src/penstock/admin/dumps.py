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
    """All rules, as they stand in their files, and how each is in force."""
    found = gate.rules
    state = gate.switches.state()
    touched = touched_by(found, state.overrides) if state.overrides else {}
    domains = []
    for name, domain in found.domains.items():
        # Those of another file or place in it come where they stand there.
        ordered = sorted(rules_of(domain), key=lambda rule: (rule.place, rule.id))
        lists = {
            which: {key: list(values.entries) for key, values in getattr(domain, which).items()}
            for which in ("allow", "deny")
        }
        told = [_rule(rule, state, touched.get(rule.id, 0)) for rule in ordered]
        domains.append({"domain": name, "rules": told, **lists})
    return {"files": list(found.files), "domains": domains}


def _rule(rule: Rule, state: State, overrides: int) -> dict[str, Any]:
    modes = state.modes
    told: dict[str, Any] = {
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
            told[name] = True
    if rule.name is not None:
        told["name"] = rule.name
    if rule.cost != 1:
        told["cost"] = rule.cost
    if rule.replaces:
        told["replaces"] = sorted(rule.replaces)
    if rule.plans is not None:
        tiers = {tier: _limits(limits, modes) for tier, limits in rule.plans.tiers.items()}
        told["plans"] = {"by": rule.plans.by, "tiers": tiers, "default": rule.plans.default}
    if rule.split is not None:
        split = rule.split
        told["split"] = {"percent": split.percent, "limits": _limits(split.limits, modes)}
    if rule.schedule:
        told["schedule"] = [_period(period, modes) for period in rule.schedule]
    return told


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
    """How a rule is in force: what its file and all switches come to."""
    own = state.modes.get(rule.id, ENFORCE)
    if OFF in (state.mode, own):
        return OFF
    return SHADOW if rule.shadow or SHADOW in (state.mode, own) else ENFORCE


def line_of(rule: Rule, state: State, overrides: int = 0) -> str:
    """``api/user: unit=MINUTE requests_per_unit=100, shadow_mode: false``, as Envoy's has it.

    What its words cannot say stands as a limit string: ``limits=10/second burst 20``. Behind
    it stands what is switched: ``switched: off``, limits of it, and how many overrides touch it.
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
    """Whether it is a window of Envoy's."""
    unit = _UNITS.get(limit.period_ns)
    return unit is not None and str(
        Limit(limit.amount, unit.lower(), algorithm="fixed_window")
    ) == str(limit)


def switches(gate: AnyGate) -> dict[str, Any]:
    """What is switched, and for how many more seconds; null is until it is taken back."""
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
