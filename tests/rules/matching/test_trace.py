"""What `penstock explain` has to tell: what was looked up, what was there, and where."""

from __future__ import annotations

from textwrap import dedent

import pytest

pytest.importorskip("yaml")

from penstock.rules.matching.match import Matcher
from penstock.rules.reading.parse import parse_text
from rules.matching.match_cases import pairs

RULES = """\
domain: api
allow: { user: [root] }
deny: { user: [nobody] }
descriptors:
  - key: plan
    value: free
    descriptors:
      - key: user
        deny: [mallory]
        allow: [admin]
        limits: 100/hour
  - { key: plan, value: "f*", share_threshold: true, limits: 1/s }
  - { key: plan, value: "fr*", limits: 1/s }
  - { key: plan, limits: 1/s }
  - { key: ip, value: 10.0.0.1, limits: 1/s }
  - { key: net, group: subnet, limits: 1/s }
  - { key: empty }
"""
MATCHER = Matcher(parse_text(RULES, "rules.yaml"))

EXPLANATIONS = {
    "exact, then any value, then the rule": (
        ["plan=free", "user=42"],
        """\
        1. plan='free': exact, rules.yaml:5:5
           rules.yaml:12:5 plan='f*': fits, but an exact value goes first
           rules.yaml:13:5 plan='fr*': fits, but an exact value goes first
           rules.yaml:14:5 plan: takes any value, but an exact value goes first
        2. user='42': any value, rules.yaml:8:9
           the rule api/plan=free/user applies
        """,
    ),
    "a wildcard, and another that comes later": (
        ["plan=fresh"],
        """\
        1. plan='fresh': wildcard, rules.yaml:12:5
           rules.yaml:13:5 plan='fr*': fits, but comes later in the file
           rules.yaml:14:5 plan: takes any value, but a wildcard goes first
           rules.yaml:5:5 plan='free': is another value
           counted as 'f*'
           the rule api/plan=f* applies
        """,
    ),
    "any value, as nothing else fits": (
        ["plan=paid"],
        """\
        1. plan='paid': any value, rules.yaml:14:5
           rules.yaml:5:5 plan='free': is another value
           rules.yaml:12:5 plan='f*': does not fit
           rules.yaml:13:5 plan='fr*': does not fit
           the rule api/plan applies
        """,
    ),
    "no way back": (
        ["plan=free", "path=/x", "more=1"],
        """\
        1. plan='free': exact, rules.yaml:5:5
           rules.yaml:12:5 plan='f*': fits, but an exact value goes first
           rules.yaml:13:5 plan='fr*': fits, but an exact value goes first
           rules.yaml:14:5 plan: takes any value, but an exact value goes first
        2. path='/x': nothing
           no step has this key; there are: 'user'
           no rule applies; what was chosen above is final
           pairs after it, not looked up: 1
        """,
    ),
    "too short": (
        ["plan=free"],
        """\
        1. plan='free': exact, rules.yaml:5:5
           rules.yaml:12:5 plan='f*': fits, but an exact value goes first
           rules.yaml:13:5 plan='fr*': fits, but an exact value goes first
           rules.yaml:14:5 plan: takes any value, but an exact value goes first
           no rule applies: the descriptor ends here, the rules go on with 'user'
        """,
    ),
    "too long": (
        ["net=192.0.2.7", "user=1"],
        """\
        1. net='192.0.2.7': any value, rules.yaml:16:5
           counted as '192.0.2.0/24'
           the rule api/net does not apply: the descriptor goes on
        2. user='1': nothing
           no steps are below: the descriptor is longer than the rules
           no rule applies; what was chosen above is final
        """,
    ),
    "a misspelt key": (
        ["plam=free"],
        """\
        1. plam='free': nothing
           no step has this key (did you mean 'plan'?); there are: 'plan', 'ip', 'net', 'empty'
           no rule applies
        """,
    ),
    "a value that no step takes": (
        ["ip=10.0.0.2"],
        """\
        1. ip='10.0.0.2': nothing
           rules.yaml:15:5 ip='10.0.0.1': is another value
           no step 'ip' takes this value (did you mean '10.0.0.1'?)
           no rule applies
        """,
    ),
    "a step without limits": (
        ["empty=x"],
        """\
        1. empty='x': any value, rules.yaml:17:5
           no rule applies: this step has no limits
        """,
    ),
    "lists of a step": (
        ["plan=free", "user=mallory"],
        """\
        1. plan='free': exact, rules.yaml:5:5
           rules.yaml:12:5 plan='f*': fits, but an exact value goes first
           rules.yaml:13:5 plan='fr*': fits, but an exact value goes first
           rules.yaml:14:5 plan: takes any value, but an exact value goes first
        2. user='mallory': any value, rules.yaml:8:9
           'mallory' is on the deny list of this step: refused
           the rule api/plan=free/user applies
        """,
    ),
}


@pytest.mark.parametrize(("descriptor", "explanation"), EXPLANATIONS.values(), ids=EXPLANATIONS)
def test_explanations(descriptor: list[str], explanation: str) -> None:
    steps = MATCHER.trace(pairs(*descriptor))
    assert "\n".join(map(str, steps)) + "\n" == dedent(explanation)


@pytest.mark.parametrize(
    ("user", "note"),
    [
        ("admin", "'admin' is on the allow list of this step: not counted, unless denied"),
        ("root", "'root' is on the allow list of the domain: not counted, unless denied"),
        ("nobody", "'nobody' is on the deny list of the domain: refused"),
    ],
)
def test_lists_are_told_of(user: str, note: str) -> None:
    steps = MATCHER.trace(pairs("plan=free", f"user={user}"))
    assert note in steps[1].notes


def test_a_step_can_be_used_by_programs() -> None:
    first, second = MATCHER.trace(pairs("plan=free", "user=42"))
    assert (first.depth, first.key, first.value, first.how) == (1, "plan", "free", "exact")
    assert first.step is MATCHER.domain.steps[0]
    assert [other.step for other in first.others] == list(MATCHER.domain.steps[1:4])
    assert (second.depth, second.how, second.more) == (2, "any value", 0)


def test_a_large_level_is_not_told_in_full() -> None:
    rules = "".join(f"  - {{ key: user, value: u{n}, limits: 1/s }}\n" for n in range(1000))
    matcher = Matcher(parse_text(f"domain: api\ndescriptors:\n{rules}", "rules.yaml"))
    (step,) = matcher.trace(pairs("user=x500"))
    assert (len(step.others), step.more) == (10, 990)
    assert "and 990 more" in str(step)
    assert step.notes[0].startswith("no step 'user' takes this value (did you mean 'u500'?)")


def test_no_pairs_nothing_to_tell() -> None:
    assert MATCHER.trace([]) == []
