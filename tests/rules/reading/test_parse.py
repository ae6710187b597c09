"""Rules that are right: what every key becomes in the model, and what is only warned of."""

from __future__ import annotations

from datetime import time
from pathlib import Path
from typing import Any

import pytest

from penstock.rules.model import Domain, Rule, Step
from penstock.rules.reading.parse import parse_text

DOCS = Path(__file__).parents[3] / "docs/reference/rules.md"


def domain(steps: str = "", **top: str) -> Domain:
    """A domain with these lines under ``descriptors``, and other keys at the top."""
    lines = ["domain: api", *(f"{key}: {value}" for key, value in top.items())]
    if steps:
        lines += ["descriptors:", *(f"  {line}" for line in steps.splitlines())]
    return parse_text("\n".join(lines))


def step(keys: str, **top: str) -> Step:
    """One step, from ``key: a`` and these keys in flow style."""
    return domain(f"- {{key: a, {keys}}}", **top).steps[0]


def rule(keys: str, **top: str) -> Rule:
    parsed = step(keys, **top).rule
    assert parsed is not None
    return parsed


def limits(keys: str, **top: str) -> list[str]:
    return [str(limit.limit) for limit in rule(keys, **top).limits]


def test_the_first_example_of_the_docs() -> None:
    text = DOCS.read_text().split("```yaml\n", 1)[1].split("```", 1)[0]
    api = parse_text(text)
    plan, path = api.steps
    assert (plan.key, plan.value, plan.rule) == ("plan", "free", None)
    (user,) = plan.children
    assert user.rule is not None
    assert user.rule.id == "api/plan=free/user"
    assert [str(limit.limit) for limit in user.rule.limits] == ["100/hour fixed_window"]
    (address,) = path.children
    assert address.rule is not None
    assert address.rule.id == "api/path=%2Flogin/remote_address"
    assert [(str(limit.limit), limit.name) for limit in address.rule.limits] == [
        ("5/minute lockout 15m", "api/path=%2Flogin/remote_address 5/minute lockout 15m"),
        ("50/day sliding_window", "slow-brute-force"),
    ]


def test_all_examples_of_the_docs() -> None:
    for block in DOCS.read_text().split("```yaml\n")[1:]:
        text = block.split("```", 1)[0]
        if not text.startswith("domain"):
            text = "domain: api\ndescriptors:\n" + text
        parse_text(text)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("rate_limit: {unit: second, requests_per_unit: 1}", ["1/second fixed_window"]),
        ("rate_limit: {unit: MINUTE, requests_per_unit: 20}", ["20/minute fixed_window"]),
        ("rate_limit: {unit: Hour, requests_per_unit: 20}", ["20/hour fixed_window"]),
        ("rate_limit: {unit: week, requests_per_unit: 20}", ["20/week fixed_window"]),
        ("rate_limit: {unit: month, requests_per_unit: 20}", ["20/month fixed_window"]),
        ("rate_limit: {unit: year, requests_per_unit: 1000000000000}",
         ["1000000000000/year fixed_window"]),
        ("limits: 5/minute", ["5/minute"]),
        ("limits: '5/minute'", ["5/minute"]),
        ("limits: [5/minute, 100 per day]", ["5/minute", "100/day"]),
        ("limits: {limit: 5/minute}", ["5/minute"]),
        ("limits: [{limit: 5/minute, burst: 10}]", ["5/minute burst 10"]),
        ("limits: {limit: 5/minute, debt: 10}", ["5/minute debt 10"]),
        ("limits: {limit: 5/minute, algorithm: leaky_bucket}", ["5/minute leaky_bucket"]),
        ("limits: {limit: 5/minute, algorithm: sliding_window, cells: 20}",
         ["5/minute sliding_window cells 20"]),
        ("limits: {limit: 5/minute, algorithm: sliding_window, rounding: up}",
         ["5/minute sliding_window rounding up"]),
        ("limits: {limit: 5/minute sliding_window cells 1, rounding: down}",
         ["5/minute sliding_window cells 1"]),
        ("limits: 5/minute sliding_window rounding up", ["5/minute sliding_window rounding up"]),
        ("limits: {limit: 5/day, align: first_hit}", ["5/day fixed_window align first_hit"]),
        ("limits: {limit: 5/day, tz: Asia/Taipei}", ["5/day fixed_window tz Asia/Taipei"]),
        ("limits: {limit: 5/day, algorithm: sliding_log, count_rejected: TRUE}",
         ["5/day sliding_log count_rejected"]),
        ("limits: {limit: 5/day, algorithm: sliding_log, count_rejected: false}",
         ["5/day sliding_log"]),
        ("limits: {limit: 5/day, lockout: 15m}", ["5/day lockout 15m"]),
        ("limits: {limit: 100/day, soft: 20% for 10m}", ["100/day soft 20 for 10m"]),
        ("limits: {limit: 100/day, warm_up: 1h}", ["100/day warm_up 1h"]),
        ("limits: {limit: 5/day, on_failure: local, share: 0.25}",
         ["5/day on_failure local share 0.25"]),
        ("limits: {limit: 5/day, share: 1}", ["5/day share 1.0"]),
        ("limits: {limit: 5/day sliding_log, algorithm: sliding_log}", ["5/day sliding_log"]),
        ("limits: {limit: 5/day tz UTC, algorithm: fixed_window}", ["5/day fixed_window tz UTC"]),
        ("limits: {limit: 5/day, burst: null, name: ~}", ["5/day"]),
        ("rate_limit: {unit: day, requests_per_unit: 9}, limits: 5/minute",
         ["9/day fixed_window", "5/minute"]),
    ],
)  # fmt: skip
def test_limits(keys: str, expected: list[str]) -> None:
    assert limits(keys) == expected


@pytest.mark.parametrize(
    ("defaults", "keys", "expected"),
    [
        ("{algorithm: token_bucket}", "rate_limit: {unit: day, requests_per_unit: 5}", "5/day"),
        ("{algorithm: sliding_log}", "rate_limit: {unit: day, requests_per_unit: 5}",
         "5/day sliding_log"),
        ("{algorithm: sliding_log}", "limits: 5/day", "5/day sliding_log"),
        ("{algorithm: sliding_log}", "limits: 5/day leaky_bucket", "5/day leaky_bucket"),
        ("{algorithm: sliding_log}", "limits: {limit: 5/day, algorithm: token_bucket}", "5/day"),
        ("{algorithm: sliding_log}", "limits: 5/day tz UTC", "5/day fixed_window tz UTC"),
        ("{algorithm: sliding_log}", "limits: {limit: 5/day, tz: UTC}",
         "5/day fixed_window tz UTC"),
        ("{on_failure: closed}", "limits: 5/day", "5/day on_failure closed"),
        ("{on_failure: closed}", "limits: 5/day on_failure open", "5/day on_failure open"),
        ("{on_failure: closed}", "rate_limit: {unit: day, requests_per_unit: 5}",
         "5/day fixed_window on_failure closed"),
        ("{on_failure: local, share: 0.5}", "limits: {limit: 5/day, share: 0.1}",
         "5/day on_failure local share 0.1"),
        ("{}", "limits: 5/day", "5/day"),
        ("", "limits: 5/day", "5/day"),
    ],
)  # fmt: skip
def test_defaults(defaults: str, keys: str, expected: str) -> None:
    assert limits(keys, defaults=defaults) == [expected]


def test_defaults_may_stand_behind_the_steps() -> None:
    text = "domain: a\ndescriptors: [{key: b, limits: 5/day}]\ndefaults: {algorithm: sliding_log}"
    rule = parse_text(text).steps[0].rule
    assert rule is not None
    assert str(rule.limits[0].limit) == "5/day sliding_log"


UNLIMITED = "rate_limit: {unlimited: true}"


@pytest.mark.parametrize(
    ("keys", "field", "value"),
    [
        ("limits: 5/day", "id", "api/a"),
        ("value: b, limits: 5/day", "id", "api/a=b"),
        ("value: 'x*', limits: 5/day", "id", "api/a=x*"),
        ("value: /a=b%, limits: 5/day", "id", "api/a=%2Fa%3Db%25"),
        ('value: "x\\ny\\x85\\u2028z ö", limits: 5/day', "id", "api/a=x%0Ay%C2%85%E2%80%A8z ö"),
        ("limits: 5/day", "unlimited", False),
        (UNLIMITED, "unlimited", True),
        (UNLIMITED, "limits", ()),
        ("rate_limit: {unlimited: false, unit: day, requests_per_unit: 5}", "unlimited", False),
        ("rate_limit: {unit: day, requests_per_unit: 0}", "closed", True),
        ("rate_limit: {unit: day, requests_per_unit: 0}", "limits", ()),
        ("rate_limit: {unit: day, requests_per_unit: 1}", "closed", False),
        ("rate_limit: {unit: day, requests_per_unit: 0, name: n}", "name", "n"),
        ("rate_limit: {unlimited: true, name: n}", "name", "n"),
        ("limits: 5/day", "name", None),
        (f"{UNLIMITED}, shadow_mode: true", "shadow", True),
        (f"{UNLIMITED}, shadow_mode: False", "shadow", False),
        (f"{UNLIMITED}, shadow_mode: ", "shadow", False),
        (f"{UNLIMITED}, quota_mode: True", "quota", True),
        (f"{UNLIMITED}, cost: 7", "cost", 7),
        (UNLIMITED, "cost", 1),
        (f"{UNLIMITED}, detailed_metric: TRUE", "detailed_metric", True),
        ("rate_limit: {unlimited: true, replaces: [{name: x}, {name: y}]}",
         "replaces", frozenset("xy")),
        (f"{UNLIMITED}, metadata: {{a: 1, b: [x, '1', 1.5, -2, true, null, 010], c: {{d: e}}}}",
         "metadata", {"a": 1, "b": ["x", "1", 1.5, -2, True, None, "010"], "c": {"d": "e"}}),
        (UNLIMITED, "metadata", {}),
        (UNLIMITED, "plans", None),
        (UNLIMITED, "split", None),
        (UNLIMITED, "schedule", ()),
    ],
)  # fmt: skip
def test_rules(keys: str, field: str, value: object) -> None:
    assert getattr(rule(keys), field) == value


@pytest.mark.parametrize(
    ("keys", "field", "value"),
    [
        ("value: free", "value", "free"),
        ("value: 1", "value", "1"),
        ("value: 01.50", "value", "01.50"),
        ("value: true", "value", "true"),
        ("value: 2020-01-01", "value", "2020-01-01"),
        ("value: 'null'", "value", "null"),
        ("value: null", "value", None),
        ("value: ~", "value", None),
        ("value: ", "value", None),
        ("value: ''", "value", None),
        ("value: 'a*'", "is_wildcard", True),
        ("value: 'a'", "is_wildcard", False),
        ("value: 'a*', share_threshold: true", "share_threshold", True),
        ("value: a, share_threshold: false", "share_threshold", False),
        ("value_to_metric: true", "value_to_metric", True),
        ("group: subnet", "group", (24, 64)),
        ("group: {ipv4: 16, ipv6: 56}", "group", (16, 56)),
        ("group: {ipv6: 48}", "group", (24, 48)),
        ("group: {}", "group", (24, 64)),
        ("group: ", "group", None),
        ("allow: ", "allow", None),
        ("rate_limit: , limits: ~", "rule", None),
        ("descriptors: ", "children", ()),
        ("descriptors: []", "children", ()),
    ],
)
def test_steps(keys: str, field: str, value: object) -> None:
    assert getattr(step(keys), field) == value


def test_keys_are_texts_whatever_they_look_like() -> None:
    assert [found.key for found in domain("- key: 1\n- key: true\n- key: 'null'").steps] == [
        "1", "true", "null",
    ]  # fmt: skip


def test_plans() -> None:
    plans = rule(
        "plans: {by: a, default: 1, tiers: {1: 5/day, free: [1/s, {limit: 9/m, name: n}], all: []}}"
    ).plans
    assert plans is not None
    assert (plans.by, plans.default) == ("a", "1")
    assert {name: [limit.name for limit in found] for name, found in plans.tiers.items()} == {
        "1": ["api/a 5/day"], "free": ["api/a 1/second", "n"], "all": [],
    }  # fmt: skip


def test_plans_may_look_at_any_pair_of_the_descriptor() -> None:
    api = domain(
        "- key: plan\n  descriptors:\n    - key: user\n      plans: {by: plan, tiers: {x: 5/day}}"
    )
    rule = api.steps[0].children[0].rule
    assert rule is not None
    assert rule.plans is not None
    assert (rule.plans.by, rule.plans.default) == ("plan", None)


@pytest.mark.parametrize(
    ("keys", "percent", "salt"),
    [
        ("percent: 10, limits: 5/day", 10.0, "api/a"),
        ("percent: 0.5, limits: 5/day, salt: pepper", 0.5, "pepper"),
        ("percent: 100, limits: 5/day, salt: 7", 100.0, "7"),
    ],
)
def test_split(keys: str, percent: float, salt: str) -> None:
    split = rule(f"split: {{{keys}}}").split
    assert split is not None
    assert (split.percent, split.salt) == (percent, salt)
    assert [str(limit.limit) for limit in split.limits] == ["5/day"]


@pytest.mark.parametrize(
    ("keys", "days", "start", "end", "zone"),
    [
        ("from: 09:00, to: 18:30", range(7), time(9), time(18, 30), "UTC"),
        ('from: "22:00", to: "06:00", tz: Asia/Taipei', range(7), time(22), time(6), "Asia/Taipei"),
        ("from: 00:00, to: 24:00", range(7), time(), time(), "UTC"),
        ("from: 18:00, to: 24:00", range(7), time(18), time(), "UTC"),
        ("from: 00:00, to: 23:59, days: [sat, SUNDAY, Mon]", (0, 5, 6), time(), time(23, 59),
         "UTC"),
        ("from: 00:00, to: 01:00, days: [tue, tuesday]", (1,), time(), time(1), "UTC"),
    ],
)  # fmt: skip
def test_schedule(keys: str, days: Any, start: time, end: time, zone: str) -> None:
    (period,) = rule(f"schedule: [{{{keys}, limits: 5/day}}]").schedule
    assert (period.days, period.start, period.end, period.zone) == (
        frozenset(days), start, end, zone,
    )  # fmt: skip
    assert [limit.name for limit in period.limits] == ["api/a 5/day"]
