"""Counters as Envoy's service prints them at ``/stats``: one ``name: value`` a line.

::

    ratelimit.service.rate_limit.api.plan_free.user.over_limit: 3
"""

from __future__ import annotations

from penstock.metrics import families
from penstock.metrics.snapshot import Snapshot

_SERVICE = "ratelimit.service"
# The outcomes that each of Envoy's names sums up.
_SUMS = {
    "total_hits": families.OUTCOMES,
    "over_limit": (families.REFUSED, families.SHADOWED),
    "near_limit": (families.NEAR_LIMIT,),
    "within_limit": (families.ALLOWED, families.NEAR_LIMIT, families.OVERRUN),
    "shadow_mode": (families.SHADOWED,),
}


def stats_text(snapshot: Snapshot) -> str:
    """The counters of every rule, and how often rules were loaded."""
    counted: dict[tuple[str, str], dict[str, int]] = {}
    for (domain, rule, outcome), value in snapshot.values.get(
        "penstock_decisions_total", {}
    ).items():
        if isinstance(value, (int, float)):
            counted.setdefault((domain, rule), {})[outcome] = int(value)
    lines = []
    for (_, rule), outcomes in counted.items():
        name = _one_line(rule.replace("/", ".").replace("=", "_"))
        for word, parts in _SUMS.items():
            total = sum(outcomes.get(part, 0) for part in parts)
            lines.append(f"{_SERVICE}.rate_limit.{name}.{word}: {total}")
    for word, family in (
        ("config_load_success", "penstock_rules_loaded_total"),
        ("config_load_error", "penstock_rules_rejected_total"),
    ):
        lines.append(f"{_SERVICE}.{word}: {snapshot.get(family)}")
    return "\n".join(sorted(lines)) + "\n"


def _one_line(name: str) -> str:
    return "".join(each if each.isprintable() and each != ":" else "_" for each in name)
