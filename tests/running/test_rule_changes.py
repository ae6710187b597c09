"""What the log says that a reload has changed."""

from __future__ import annotations

import pytest

from penstock.rules.reading.loading import read_rules
from penstock.running.rule_changes import RuleChanges

RULES = """\
domain: api
descriptors:
  - key: user
    limits: 5/hour
  - key: plan
    value: free
    descriptors:
      - key: ip
        limits: [1/second, 100/hour]
  - key: path
    limits: 9/minute
"""


def between(before: str, after: str) -> RuleChanges:
    return RuleChanges.between(read_rules(before), read_rules(after))


@pytest.mark.parametrize(
    ("after", "line"),
    [
        (RULES, "none added, none changed, none removed"),
        # The same rules, further down.
        ("# A comment.\n\n" + RULES, "none added, none changed, none removed"),
        (RULES.replace("5/hour", "6/hour"), "none added, 1 changed (api/user), none removed"),
        (
            RULES.replace("100/hour", "101/hour").replace("9/minute", "9/minute burst 10"),
            "none added, 2 changed (api/path, api/plan=free/ip), none removed",
        ),
        (
            RULES.replace("key: user", "key: account"),
            "1 added (api/account), none changed, 1 removed (api/user)",
        ),
        (
            RULES.replace("domain: api", "domain: web"),
            "3 added (web/path, web/plan=free/ip, web/user), none changed,"
            " 3 removed (api/path, api/plan=free/ip, api/user)",
        ),
        # What a step above a rule says is a part of it.
        (
            RULES.replace("value: free", "value: free\n    deny: [free]"),
            "none added, 1 changed (api/plan=free/ip), none removed",
        ),
    ],
)
def test_the_line(after: str, line: str) -> None:
    assert str(between(RULES, after)) == line


def test_lists_of_a_domain() -> None:
    one = RULES + "deny: {ip: [192.0.2.1]}\n"
    other = RULES + "deny: {ip: [192.0.2.1, 192.0.2.2]}\n"
    lists = "allow and deny lists of api"
    assert between(RULES, one) == RuleChanges(added=(lists,))
    assert between(one, one) == RuleChanges()
    assert between(one, other) == RuleChanges(changed=(lists,))


def test_the_line_is_bounded() -> None:
    names = tuple(f"api/{at:02}{'x' * 200}" for at in range(10_000))
    line = str(RuleChanges(added=names, removed=names))
    assert line.startswith("10000 added (api/00xxx")
    assert "and 9990 more), none changed, 10000 removed (" in line
    assert len(line) < 2_000


PLANS = """\
domain: api
descriptors:
  - key: user
    plans: {by: user, tiers: {free: 5/hour, paid: 50/hour}}
"""


@pytest.mark.parametrize("change", [("50/hour", "60/hour"), ("paid:", "gold:")])
def test_limits_of_plans_are_compared_wherever_they_stand(change: tuple[str, str]) -> None:
    assert between(PLANS, "# A comment.\n" + PLANS) == RuleChanges()
    assert between(PLANS, PLANS.replace(*change)) == RuleChanges(changed=("api/user",))
