"""Chooses the way: fast where the rules and the installation allow it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._mode import REPLAY_COMPILED
from penstock.replay.deciding.settings import ReplayClock, Settings
from penstock.replay.deciding.slow import SlowReplay
from penstock.replay.reading.formats import LogError
from penstock.replay.reading.requests import Requests
from penstock.rules.deciding.check import only_domain
from penstock.rules.model import RuleSet
from penstock.rules.walk import all_rules

if TYPE_CHECKING:
    from penstock.replay.deciding.fast import FastReplay

# What the report reads beside what the rules use.
REPORT_WORDS = ("header:user-agent", "target")
REPORT_NUMBERS = ("status",)


def needs(rules: RuleSet, settings: Settings) -> tuple[list[str] | None, list[str]]:
    """The fields and numbers of a log that a replay of these rules reads; None stands for all."""
    gate = settings.gate(rules, ReplayClock())
    _, dimensions = settings.descriptors(gate).in_force()
    fields = settings.fields(dimensions)
    numbers = [*REPORT_NUMBERS, *([settings.cost] if settings.cost else [])]
    if any(rule.concurrency for rule in all_rules(rules)):
        numbers.append("duration")
    return None if fields is None else [*fields, *REPORT_WORDS], numbers


def replay_of(
    rules: RuleSet, requests: Requests, settings: Settings, *, slow: bool = False
) -> FastReplay | SlowReplay:
    """A replay of these rules. ``slow`` is for tests: both ways answer the same."""
    if settings.cost and settings.cost not in requests.numbers:
        known = ", ".join(requests.numbers) or "none"
        raise LogError(f"there is no number {settings.cost!r} to count by; there are: {known}")
    if REPLAY_COMPILED and not slow:
        from penstock.replay.deciding.fast import FastReplay, why_slow

        gate = settings.gate(rules, ReplayClock())
        shapes, _ = settings.descriptors(gate).in_force()
        domain = only_domain(gate.compiled, settings.domain)
        if not why_slow(gate, domain, shapes, settings.cost):
            return FastReplay(rules, requests, settings)
    return SlowReplay(rules, requests, settings)
