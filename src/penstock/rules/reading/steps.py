"""Reads steps, and the rules at which they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.durations import MILLISECOND, SECOND, parse_duration
from penstock.errors import LimitError
from penstock.rules.model import Rule, Step, id_part
from penstock.rules.problems import Place
from penstock.rules.reading.keywords import GROUP_LENGTHS, LEASE_TERMS, STEP
from penstock.rules.reading.levels import check_level
from penstock.rules.reading.limits import LimitReader
from penstock.rules.reading.lists import read_values
from penstock.rules.reading.quotas import read_quota
from penstock.rules.reading.tree import MappingNode, ScalarNode, SyntaxNode
from penstock.rules.reading.values import FLAGS, Fields, Reading, read_fields, read_list, to_python
from penstock.rules.reading.variants import read_plans, read_schedule, read_split

Progress = Callable[[int], None]

# Default prefix lengths, IPv4 and IPv6, of the networks whose addresses share a counter.
SUBNET = (24, 64)
# Of leases: as in `stores/leased/law.py`, which needs redis-py.
SHORTEST_HORIZON, LONGEST_HORIZON = MILLISECOND, SECOND
_PROGRESS_EVERY = 1000
_HAS_RATES = ("rate_limit", "limits", "plans", "split", "schedule")
_MAKES_A_RULE = (*_HAS_RATES, "concurrency", "quota")
_NEEDS_A_RULE = ("slot_lease", "lease", "cost", "shadow_mode", "quota_mode", "detailed_metric")


class StepReader:
    """Reads the steps of one file."""

    def __init__(
        self, reading: Reading, limits: LimitReader, progress: Progress | None, rules: int = 0
    ) -> None:
        self._reading = reading
        self._limits = limits
        self._progress = progress
        self.rules = rules  # so far, in all files

    def steps(self, node: SyntaxNode, path: str, keys: tuple[str, ...] = ()) -> tuple[Step, ...]:
        """The steps of one level. ``path`` is the rule id above it, and ``keys`` lead there."""
        items = read_list(self._reading, node, "'descriptors'", "key")
        steps = [step for item in items if (step := self._step(item, path, keys)) is not None]
        check_level(self._reading, steps)
        return tuple(steps)

    def _step(self, node: SyntaxNode, path: str, keys: tuple[str, ...]) -> Step | None:
        fields = read_fields(self._reading, node, STEP, "a step", "key")
        if fields is None:
            return None
        values, nodes = fields.values, fields.nodes
        key = values.get("key", "")
        value = values.get("value") or None
        path = f"{path}/{id_part(key)}" + ("" if value is None else f"={id_part(value)}")
        keys = (*keys, key)
        place = node.place
        rule = None
        if not nodes.keys().isdisjoint(_MAKES_A_RULE):
            rule = self._rule(fields, place, path, keys)
        children: tuple[Step, ...] = ()
        if "descriptors" in nodes:
            children = self.steps(nodes["descriptors"], path, keys)
        if rule is None:
            self._check_without_rule(fields, place)
        step = Step(
            key, value, place, rule, children,
            share_threshold=values.get("share_threshold", False),
            value_to_metric=values.get("value_to_metric", False),
            **self._group_and_lists(nodes),
        )  # fmt: skip
        if step.share_threshold and not step.is_wildcard:
            message = "'share_threshold' needs a 'value' with a '*'"
            self._reading.error(fields.place("share_threshold"), message)
        return step

    def _check_without_rule(self, fields: Fields, place: Place) -> None:
        for name in _NEEDS_A_RULE:
            if name in fields.nodes:
                message = (
                    f"{name!r} has no effect: this step has no limit, and nothing is inherited"
                )
                self._reading.warn(fields.place(name), message)
        if fields.nodes.keys().isdisjoint(("descriptors", "allow", "deny")):
            self._reading.warn(
                place,
                "this step has no limit and no descriptors: what it matches is not counted"
                " (to say so, write 'rate_limit: {unlimited: true}')",
            )

    def _group_and_lists(self, nodes: dict[str, SyntaxNode]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if "group" in nodes:
            fields["group"] = self._group(nodes["group"])
        for name in ("allow", "deny"):
            if name in nodes:
                fields[name] = read_values(self._reading, nodes[name], repr(name))
        return fields

    def _group(self, node: SyntaxNode) -> tuple[int, int]:
        if isinstance(node, MappingNode):
            fields = read_fields(self._reading, node, GROUP_LENGTHS, "'group'")
            lengths = {} if fields is None else fields.values
            return lengths.get("ipv4", SUBNET[0]), lengths.get("ipv6", SUBNET[1])
        if not isinstance(node, ScalarNode) or node.text != "subnet":
            message = f"'group' must be subnet, or lengths: {{ipv4: 24, ipv6: 64}}, not {node}"
            self._reading.error(node.place, message)
        return SUBNET

    def _rule(self, fields: Fields, place: Place, path: str, keys: tuple[str, ...]) -> Rule:
        self.rules += 1
        if self._progress is not None and self.rules % _PROGRESS_EVERY == 0:
            self._progress(self.rules)
        values, nodes = fields.values, fields.nodes
        parts: dict[str, Any] = {}
        if "rate_limit" in nodes:
            parts = self._limits.rate_limit(nodes["rate_limit"], path)
            if "limits" in nodes and ("unlimited" in parts or "closed" in parts):
                setting = "unlimited: true" if "unlimited" in parts else "requests_per_unit: 0"
                message = f"'limits' has no meaning beside '{setting}'"
                self._reading.error(fields.place("limits"), message)
        if "limits" in nodes:
            limits = self._limits.limits(nodes["limits"], path, "'limits'")
            if "limits" in parts:
                limits = parts["limits"] + limits
                self._limits.check_together(limits)
            parts["limits"] = limits
        if "plans" in nodes:
            parts["plans"] = read_plans(self._limits, nodes["plans"], path, keys)
        if "split" in nodes:
            parts["split"] = read_split(self._limits, nodes["split"], path)
        if "schedule" in nodes:
            parts["schedule"] = read_schedule(self._limits, nodes["schedule"], path)
        if "concurrency" in nodes:
            parts["concurrency"] = self._limits.concurrency(fields, path)
        elif "slot_lease" in nodes:
            message = "'slot_lease' has no effect without 'concurrency'"
            self._reading.warn(fields.place("slot_lease"), message)
        if "quota" in nodes:
            parts["meter"] = read_quota(self._reading, nodes["quota"], path)
            if parts.get("unlimited") or parts.get("closed"):
                message = "'quota' has no meaning beside a 'rate_limit' that is unlimited or 0"
                self._reading.error(fields.place("quota"), message)
        if "lease" in nodes:
            parts["lease"] = self._lease(nodes["lease"])
            if nodes.keys().isdisjoint(_HAS_RATES):
                beside = "concurrency" if "concurrency" in nodes else "quota"
                message = f"'lease' has no effect on {beside!r}"
                self._reading.warn(fields.place("lease"), message)
        if "metadata" in nodes:
            parts["metadata"] = self._metadata(nodes["metadata"])
        for name, field in _RULE_FIELDS.items():
            if name in values:
                parts[field] = values[name]
        return Rule(path, place, **parts)

    def _lease(self, node: SyntaxNode) -> bool | int | None:
        if isinstance(node, MappingNode):
            fields = read_fields(self._reading, node, LEASE_TERMS, "'lease'")
            text = None if fields is None else fields.values.get("horizon")
            return None if text is None or fields is None else self._horizon(fields, text)
        if isinstance(node, ScalarNode) and node.plain and node.text in FLAGS:
            return FLAGS[node.text]
        message = f"'lease' must be true, false or {{horizon: 100ms}}, not {node}"
        self._reading.error(
            node.place, f"{message} (how long a slot of 'concurrency' is held is 'slot_lease')"
        )
        return None

    def _horizon(self, fields: Fields, text: str) -> int | None:
        place = fields.place("horizon")
        try:
            horizon = parse_duration(text, "'horizon'")
        except LimitError as error:
            self._reading.error(place, str(error))
            return None
        if SHORTEST_HORIZON <= horizon <= LONGEST_HORIZON:
            return horizon
        self._reading.error(place, f"'horizon' must be from 1ms to 1s, not {text}")
        return None

    def _metadata(self, node: SyntaxNode) -> dict[str, object]:
        if isinstance(node, MappingNode):
            return dict(to_python(node))
        self._reading.error(node.place, f"'metadata' must be a mapping, not {node}")
        return {}


# What the model calls these keys.
_RULE_FIELDS = {
    "shadow_mode": "shadow",
    "quota_mode": "quota",
    "cost": "cost",
    "detailed_metric": "detailed_metric",
}
