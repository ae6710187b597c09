"""Reads steps, and the rules at which they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.rules.model import Rule, Step, id_part
from penstock.rules.problems import Place
from penstock.rules.reading.keywords import GROUP_LENGTHS, STEP
from penstock.rules.reading.levels import check_level
from penstock.rules.reading.limits import LimitReader
from penstock.rules.reading.lists import read_values
from penstock.rules.reading.tree import MappingNode, ScalarNode, SyntaxNode
from penstock.rules.reading.values import Fields, Reading, read_fields, read_list, to_python
from penstock.rules.reading.variants import read_plans, read_schedule, read_split

Progress = Callable[[int], None]

# Where the networks end whose addresses share a counter, unless the file says otherwise.
SUBNET = (24, 64)
_PROGRESS_EVERY = 1000
_MAKES_A_RULE = ("rate_limit", "limits", "plans", "split", "schedule")
_NEEDS_A_RULE = ("cost", "shadow_mode", "quota_mode", "detailed_metric")


class StepReader:
    """Reads the steps of one file."""

    def __init__(
        self, reading: Reading, limits: LimitReader, progress: Progress | None, rules: int = 0
    ) -> None:
        self._reading = reading
        self._limits = limits
        self._progress = progress
        self.rules = rules  # counted on from the files before

    def steps(self, node: SyntaxNode, path: str, keys: tuple[str, ...] = ()) -> tuple[Step, ...]:
        """The steps of one level, below the rule id ``path`` and the keys that lead there."""
        items = read_list(self._reading, node, "'descriptors'")
        steps = [step for item in items if (step := self._step(item, path, keys)) is not None]
        check_level(self._reading, steps)
        return tuple(steps)

    def _step(self, node: SyntaxNode, path: str, keys: tuple[str, ...]) -> Step | None:
        fields = read_fields(self._reading, node, STEP, "a step")
        if fields is None:
            return None
        values, nodes = fields.values, fields.nodes
        key = values.get("key", "")
        value = values.get("value") or None
        path = (
            f"{path}/{id_part(key)}" if value is None else f"{path}/{id_part(key)}={id_part(value)}"
        )
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
            **self._more(nodes),
        )  # fmt: skip
        if step.share_threshold and not step.is_wildcard:
            self._reading.error(
                fields.place("share_threshold"), "'share_threshold' needs a 'value' with a '*'"
            )
        return step

    def _check_without_rule(self, fields: Fields, place: Place) -> None:
        for name in _NEEDS_A_RULE:
            if name in fields.nodes:
                self._reading.warn(
                    fields.place(name),
                    f"{name!r} has no effect: this step has no limit, and nothing is inherited",
                )
        if fields.nodes.keys().isdisjoint(("descriptors", "allow", "deny")):
            self._reading.warn(
                place,
                "this step has no limit and no descriptors: what it matches is not counted"
                " (to say so, write 'rate_limit: {unlimited: true}')",
            )

    def _more(self, nodes: dict[str, SyntaxNode]) -> dict[str, Any]:
        """What few steps have."""
        more: dict[str, Any] = {}
        if "group" in nodes:
            more["group"] = self._group(nodes["group"])
        for name in ("allow", "deny"):
            if name in nodes:
                more[name] = read_values(self._reading, nodes[name], repr(name))
        return more

    def _group(self, node: SyntaxNode) -> tuple[int, int]:
        if isinstance(node, MappingNode):
            fields = read_fields(self._reading, node, GROUP_LENGTHS, "'group'")
            lengths = {} if fields is None else fields.values
            return lengths.get("ipv4", SUBNET[0]), lengths.get("ipv6", SUBNET[1])
        if not isinstance(node, ScalarNode) or node.text != "subnet":
            self._reading.error(
                node.place,
                f"'group' must be subnet, or lengths: {{ipv4: 24, ipv6: 64}}, not {node}",
            )
        return SUBNET

    def _rule(self, fields: Fields, place: Place, path: str, keys: tuple[str, ...]) -> Rule:
        self.rules += 1
        if self._progress is not None and self.rules % _PROGRESS_EVERY == 0:
            self._progress(self.rules)
        reading, values, nodes = self._reading, fields.values, fields.nodes
        parts: dict[str, Any] = {}
        if "rate_limit" in nodes:
            parts = self._rate_limit(fields, path)
        if "limits" in nodes:
            limits = self._limits.limits(nodes["limits"], path, "'limits'")
            if "limits" in parts:
                limits = parts["limits"] + limits
                self._limits.check_together(limits)
            parts["limits"] = limits
        if "plans" in nodes:
            parts["plans"] = read_plans(reading, self._limits, nodes["plans"], path, keys)
        if "split" in nodes:
            parts["split"] = read_split(reading, self._limits, nodes["split"], path)
        if "schedule" in nodes:
            parts["schedule"] = read_schedule(reading, self._limits, nodes["schedule"], path)
        if "metadata" in nodes:
            parts["metadata"] = self._metadata(nodes["metadata"])
        for name, field in _AS_IN_THE_MODEL.items():
            if name in values:
                parts[field] = values[name]
        return Rule(path, place, **parts)

    def _rate_limit(self, fields: Fields, path: str) -> dict[str, Any]:
        found = self._limits.rate_limit(fields.nodes["rate_limit"], path)
        if (found.unlimited or found.closed) and "limits" in fields.nodes:
            word = "unlimited: true" if found.unlimited else "requests_per_unit: 0"
            self._reading.error(fields.place("limits"), f"'limits' has no meaning beside '{word}'")
        parts: dict[str, Any] = {}
        if found.limit is not None:
            parts["limits"] = (found.limit,)
        if found.unlimited:
            parts["unlimited"] = True
        if found.closed:
            parts["closed"] = True
            parts["closed_period_ns"] = found.closed_period_ns
        if found.name is not None:
            parts["name"] = found.name
        if found.replaces:
            parts["replaces"] = found.replaces
        return parts

    def _metadata(self, node: SyntaxNode) -> dict[str, object]:
        if isinstance(node, MappingNode):
            return dict(to_python(node))
        self._reading.error(node.place, f"'metadata' must be a mapping, not {node}")
        return {}


_AS_IN_THE_MODEL = {
    "shadow_mode": "shadow",
    "quota_mode": "quota",
    "cost": "cost",
    "detailed_metric": "detailed_metric",
}
