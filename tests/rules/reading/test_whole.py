"""A file as a whole: what is warned of, where things are, how much is told and shared."""

from __future__ import annotations

import gc
import time as clock

import pytest

from penstock.errors import RulesError
from penstock.limits import Limit
from penstock.rules.model import Domain
from penstock.rules.problems import Place, Problems
from penstock.rules.reading.parse import parse_text


def domain(steps: str = "", **top: str) -> Domain:
    """A domain with these lines under ``descriptors``, and other keys at the top."""
    lines = ["domain: api", *(f"{key}: {value}" for key, value in top.items())]
    if steps:
        lines += ["descriptors:", *(f"  {line}" for line in steps.splitlines())]
    return parse_text("\n".join(lines))


def warnings(text: str) -> list[str]:
    problems = Problems()
    parse_text(text, "f", problems)
    return [str(warning) for warning in sorted(problems.warnings)]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # A pattern before it takes all.
        ("[{key: k, value: 'a*', limits: 1/s}, {key: k, value: 'ab*', limits: 1/s}]",
         ["f:2:51: this step never matches: 'a*' at line 2 takes all of its values"]),
        ("[{key: k, value: '*', limits: 1/s}, {key: k, limits: 1/s}]",
         ["f:2:50: this step never matches: '*' at line 2 takes all of its values"]),
        ("[{key: k, limits: 1/s}, {key: k, value: '**', limits: 1/s}]",
         ["f:2:15: this step never matches: '**' at line 2 takes all of its values"]),
        ("[{key: k, value: '*b*', limits: 1/s}, {key: k, value: 'a*b*', limits: 1/s}]",
         ["f:2:52: this step never matches: '*b*' at line 2 takes all of its values"]),
        # Nothing is hidden.
        ("[{key: k, value: 'ab*', limits: 1/s}, {key: k, value: 'a*', limits: 1/s}]", []),
        ("[{key: k, value: 'a*', limits: 1/s}, {key: k, value: 'ab', limits: 1/s}]", []),
        ("[{key: k, value: 'a*', limits: 1/s}, {key: j, value: 'ab*', limits: 1/s}]", []),
        ("[{key: k, value: 'a*', limits: 1/s}, {key: k, limits: 1/s}]", []),
        ("[{key: k, value: 'a*b', limits: 1/s}, {key: k, value: 'a*', limits: 1/s}]", []),
        ("[{key: k, value: 'a*c', limits: 1/s}, {key: k, value: 'ab*bc*', limits: 1/s}]", []),
        # A step that does nothing.
        ("[{key: k}]",
         ["f:2:15: this step has no limit and no descriptors: what it matches is not counted"
          " (to say so, write 'rate_limit: {unlimited: true}')"]),
        ("[{key: k, descriptors: []}]", []),
        ("[{key: k, deny: [x]}]", []),
        ("[{key: k, shadow_mode: true, cost: 2, descriptors: []}]",
         [f"f:2:{column}: '{key}' has no effect: this step has no limit, and nothing is inherited"
          for column, key in ((37, "shadow_mode"), (49, "cost"))]),
        ("[{key: k, limits: 1/s, slot_lease: 5s}]",
         ["f:2:49: 'slot_lease' has no effect without 'concurrency'"]),
        ("[{key: k, slot_lease: 5s, descriptors: []}]",
         ["f:2:36: 'slot_lease' has no effect: this step has no limit, and nothing is inherited"]),
        ("[{key: k, concurrency: 5}]", []),
        ("[{key: k, concurrency: 5, lease: true}]",
         ["f:2:47: 'lease' has no effect on 'concurrency'"]),
        ("[{key: k, lease: true, descriptors: []}]",
         ["f:2:31: 'lease' has no effect: this step has no limit, and nothing is inherited"]),
        ("[{key: k, limits: 100/s, lease: false}]", []),
        # Limits that say the same, or nothing.
        ("[{key: k, limits: [1/s, {limit: 1/s, name: n}]}]",
         ["f:2:38: the same limit has another name at line 2"]),
        ("[{key: k, rate_limit: {unlimited: true, requests_per_unit: 5}}]",
         ["f:2:73: 'requests_per_unit' has no effect beside 'unlimited'"]),
        # Names that nobody has.
        ("[{key: k, rate_limit: {unlimited: true, replaces: [{name: fsat}]}},"
         " {key: j, limits: {limit: 1/s, name: fast}}]",
         ["f:2:15: 'replaces' names 'fsat', but no limit of this domain has that name"
          " (did you mean 'fast'?)"]),
        ("[{key: k, rate_limit: {unlimited: true, replaces: [{name: a}, {name: b}, {name: c},"
         " {name: d}, {name: e}]}}, {key: j, limits: {limit: 1/s, name: a}, plans: {by: j,"
         " tiers: {x: {limit: 1/s, name: b}}}, split: {percent: 1, limits: {limit: 1/s, name: c}},"
         " schedule: [{from: 00:00, to: 01:00, limits: {limit: 1/s, name: d}}], descriptors:"
         " [{key: i, rate_limit: {unlimited: true, name: e}}]}]", []),
    ],
)  # fmt: skip
def test_warnings(steps: str, expected: list[str]) -> None:
    assert warnings(f"domain: api\ndescriptors: {steps}\n") == expected


def test_many_patterns_are_compared_in_bounded_time() -> None:
    steps = "".join(f"  - {{key: k, value: '*{i}*', limits: 1/s}}\n" for i in range(20_000))
    before = clock.process_time()
    assert warnings(f"domain: api\ndescriptors:\n{steps}") == []
    assert clock.process_time() - before < 5


def test_places() -> None:
    api = parse_text("domain: api\ndescriptors:\n  - key: a\n    limits:\n      - 5/day\n", "f")
    rule = api.steps[0].rule
    assert rule is not None
    assert [api.place, api.steps[0].place, rule.place, rule.limits[0].place] == [
        Place("f", 1, 9), Place("f", 3, 5), Place("f", 3, 5), Place("f", 5, 9),
    ]  # fmt: skip


def test_equal_limits_are_one_object() -> None:
    one, two = domain("- {key: a, limits: 5/day}\n- {key: b, limits: 5/day}").steps
    assert one.rule is not None
    assert two.rule is not None
    assert one.rule.limits[0].limit is two.rule.limits[0].limit == Limit.parse("5/day")


def test_a_problem_behind_an_alias_is_told_once() -> None:
    text = (
        "domain: api\ndescriptors:\n  - {key: a, descriptors: &below [{key: b, limit: 5/day}]}\n"
        "  - {key: c, descriptors: *below}\n"
    )
    with pytest.raises(RulesError) as caught:
        parse_text(text)
    assert len(caught.value.problems) == 1


def test_a_merge_key() -> None:
    api = parse_text(
        "domain: api\ndescriptors:\n  - &base {key: a, value: x, limits: 5/day, cost: 2}\n"
        "  - {<<: *base, value: y}\n"
    )
    rule = api.steps[1].rule
    assert rule is not None
    assert (rule.id, rule.cost) == ("api/a=y", 2)


def test_so_many_problems_are_told_and_no_more() -> None:
    wrong = "".join(f"  - {{kee: k{i}}}\n" for i in range(Problems.MOST + 1))
    right = "".join(f"  - {{key: k{i}, limits: 5/day}}\n" for i in range(5000))
    progress: list[int] = []
    with pytest.raises(RulesError) as caught:
        parse_text("domain: api\ndescriptors:\n" + wrong + right, progress=progress.append)
    assert len(caught.value.problems) == Problems.MOST
    assert progress == [0], "nobody reads on for problems that nobody will see"


def test_what_is_too_long_is_neither_read_nor_shown() -> None:
    long = "1s" * 1_000_000
    text = (
        "domain: api\ndescriptors:\n  - key: a\n    limits:\n"
        f"      - 5/{long}\n      - {{limit: 5/day, lockout: {long}}}\n    cost: {long}\n"
    )
    before = clock.process_time()
    with pytest.raises(RulesError) as caught:
        parse_text(text, "f")
    assert clock.process_time() - before < 2
    shown = [str(problem).replace("1s" * 27, "~") for problem in caught.value.problems]
    assert shown == [
        "f:5:9: a limit of 2000002 characters: '5/~1...'",
        "f:6:33: 'lockout' has 2000000 characters",
        "f:7:11: 'cost' must be a whole number, not '~1s1...'",
    ]


def test_progress() -> None:
    steps = "".join(f"  - {{key: k{i}, limits: 5/day}}\n" for i in range(2500))
    progress: list[int] = []
    parse_text("domain: api\ndescriptors:\n" + steps, progress=progress.append)
    assert progress == [1000, 2000, 2500]


def test_the_search_for_cycles_goes_on_afterwards() -> None:
    assert gc.isenabled()
    domain()
    assert gc.isenabled()
    with pytest.raises(RulesError):
        parse_text("")
    assert gc.isenabled()
    gc.disable()
    try:
        domain()
        assert not gc.isenabled()
    finally:
        gc.enable()
