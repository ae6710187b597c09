"""Rules that are right: what every key becomes in the model, and what is only warned of."""

from __future__ import annotations

import gc
import os
import time as clock
from datetime import time
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import RulesError
from penstock.limit import Limit
from penstock.rules.dict_tree import read_dict
from penstock.rules.model import Domain, Rule, Step
from penstock.rules.parse import load_files, load_mapping, parse_text
from penstock.rules.problems import Place, Problems
from penstock.rules.yaml_tree import Bounds

DOCS = Path(__file__).parents[2] / "docs/reference/rules.md"


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
    found = step(keys, **top).rule
    assert found is not None
    return found


def limits(keys: str, **top: str) -> list[str]:
    return [str(limit.limit) for limit in rule(keys, **top).limits]


def warnings(text: str) -> list[str]:
    problems = Problems()
    parse_text(text, "f", problems)
    return [str(warning) for warning in sorted(problems.warnings)]


def refused(*args: Any, **kwargs: Any) -> list[str]:
    with pytest.raises(RulesError) as caught:
        load_files(*args, **kwargs)
    return [str(problem) for problem in caught.value.problems]


def test_the_first_example_of_the_docs() -> None:
    text = DOCS.read_text().split("```yaml\n", 1)[1].split("```", 1)[0]
    api = parse_text(text)
    plan, path = api.steps
    assert (plan.key, plan.value, plan.rule) == ("plan", "free", None)
    (user,) = plan.children
    assert user.rule is not None
    assert user.rule.id == "api/plan=free/user"
    assert [str(limit.limit) for limit in user.rule.limits] == ["100/hour fixed_window"]
    (ip,) = path.children
    assert ip.rule is not None
    assert ip.rule.id == "api/path=%2Flogin/ip"
    assert [(str(limit.limit), limit.name) for limit in ip.rule.limits] == [
        ("5/minute lockout 15m", "api/path=%2Flogin/ip 5/minute lockout 15m"),
        ("50/day sliding_window", "slow-brute-force"),
    ]


def test_all_examples_of_the_docs() -> None:
    for block in DOCS.read_text().split("```yaml\n")[1:]:
        text = block.split("```", 1)[0]
        if not text.startswith("domain"):
            text = "domain: api\ndescriptors:\n" + text
        parse_text(text)


@pytest.mark.parametrize(
    ("keys", "found"),
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
def test_limits(keys: str, found: list[str]) -> None:
    assert limits(keys) == found


@pytest.mark.parametrize(
    ("defaults", "keys", "found"),
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
def test_defaults(defaults: str, keys: str, found: str) -> None:
    assert limits(keys, defaults=defaults) == [found]


def test_defaults_may_stand_behind_the_steps() -> None:
    text = "domain: a\ndescriptors: [{key: b, limits: 5/day}]\ndefaults: {algorithm: sliding_log}"
    found = parse_text(text).steps[0].rule
    assert found is not None
    assert str(found.limits[0].limit) == "5/day sliding_log"


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
    found = api.steps[0].children[0].rule
    assert found is not None
    assert found.plans is not None
    assert (found.plans.by, found.plans.default) == ("plan", None)


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


def test_lists_of_a_domain() -> None:
    api = domain(
        allow="{ip: [10.0.0.0/8, '::1'], user: [admin, 7], host: }", deny="{ip: [10.6.6.6]}"
    )
    assert set(api.allow) == {"ip", "user"}
    assert "10.1.2.3" in api.allow["ip"]
    assert "7" in api.allow["user"]
    assert "10.6.6.6" in api.deny["ip"]


def test_lists_from_files(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more/trusted.txt").write_bytes(
        "\ufeff# ours\n10.0.0.0/8\n\n  admin  # the boss\nwith#in\n#out\n".encode()
    )
    (tmp_path / "r.yaml").write_text(
        "domain: api\nallow: {ip: [1.2.3.4, {file: more/trusted.txt}]}\n"
        "descriptors: [{key: a, limits: 5/day, deny: [{file: ./more/../more/trusted.txt}]}]\n"
    )
    rules = load_files([tmp_path / "r.yaml"])
    api = rules.domains["api"]
    assert api.allow["ip"].entries == ("1.2.3.4", "10.0.0.0/8", "admin", "with#in")
    assert api.steps[0].deny is not None
    assert api.steps[0].deny.entries == ("10.0.0.0/8", "admin", "with#in")
    # A watcher must know of it, too.
    assert rules.files == (str(tmp_path / "r.yaml"), str(tmp_path / "more/trusted.txt"))


def test_a_long_list(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("\n".join(f"user-{i}" for i in range(100_000)))
    (tmp_path / "r.yaml").write_text(
        "domain: api\ndescriptors: [{key: a, limits: 5/day, allow: [{file: long.txt}]}]\n"
    )
    found = load_files([tmp_path]).domains["api"].steps[0].allow
    assert found is not None
    assert len(found) == 100_000
    assert "user-99999" in found


def test_a_list_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"ok\n\xe4\n")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "r.yaml").write_text(
        "domain: api\nallow:\n  ip: [{file: latin.txt}, {file: pipe}, {file: /dev/zero}]\n"
        '  user: [{file: "a\\0b"}, {file: latin.txt}]\n'
    )
    at = f"{tmp_path}/r.yaml"
    assert [told.replace(str(tmp_path), "") for told in refused([at])] == [
        "/r.yaml:3:15: '/latin.txt' is not UTF-8 text: see its line 2",
        "/r.yaml:3:34: '/pipe' is not a file",
        "/r.yaml:3:48: '/dev/zero' is not a file",
        "/r.yaml:4:17: cannot read '/a\\x00b': embedded null byte",
    ]


@pytest.mark.parametrize(
    ("steps", "told"),
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
def test_warnings(steps: str, told: list[str]) -> None:
    assert warnings(f"domain: api\ndescriptors: {steps}\n") == told


def test_many_patterns_are_compared_in_bounded_time() -> None:
    steps = "".join(f"  - {{key: k, value: '*{i}*', limits: 1/s}}\n" for i in range(20_000))
    before = clock.process_time()
    assert warnings(f"domain: api\ndescriptors:\n{steps}") == []
    assert clock.process_time() - before < 5


def test_places() -> None:
    api = parse_text("domain: api\ndescriptors:\n  - key: a\n    limits:\n      - 5/day\n", "f")
    found = api.steps[0].rule
    assert found is not None
    assert [api.place, api.steps[0].place, found.place, found.limits[0].place] == [
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
    found = api.steps[1].rule
    assert found is not None
    assert (found.id, found.cost) == ("api/a=y", 2)


def test_so_many_problems_are_told_and_no_more() -> None:
    wrong = "".join(f"  - {{kee: k{i}}}\n" for i in range(Problems.MOST + 1))
    right = "".join(f"  - {{key: k{i}, limits: 5/day}}\n" for i in range(5000))
    told: list[int] = []
    with pytest.raises(RulesError) as caught:
        parse_text("domain: api\ndescriptors:\n" + wrong + right, progress=told.append)
    assert len(caught.value.problems) == Problems.MOST
    assert told == [0], "nobody reads on for problems that nobody will see"


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
    told: list[int] = []
    parse_text("domain: api\ndescriptors:\n" + steps, progress=told.append)
    assert told == [1000, 2000, 2500]


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


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)


def test_a_folder(tmp_path: Path) -> None:
    write(tmp_path, b="domain: b", a="domain: a")
    (tmp_path / "c.yml").write_text("domain: c")
    (tmp_path / ".hidden.yaml").write_text("not: rules")
    (tmp_path / "notes.txt").write_text("not: rules")
    # As Kubernetes mounts a ConfigMap.
    (tmp_path / "..2026_01").mkdir()
    write(tmp_path / "..2026_01", d="domain: d")
    (tmp_path / "..data").symlink_to("..2026_01")
    (tmp_path / "d.yaml").symlink_to("..data/d.yaml")
    (tmp_path / "folder.yaml").mkdir()
    rules = load_files([tmp_path])
    assert list(rules.domains) == ["a", "b", "c", "d"]
    assert [Path(file).name for file in rules.files] == ["a.yaml", "b.yaml", "c.yml", "d.yaml"]


def test_one_path_alone(tmp_path: Path) -> None:
    write(tmp_path, a="domain: a")
    assert list(load_files(str(tmp_path / "a.yaml")).domains) == ["a"]
    assert list(load_files([tmp_path, tmp_path / "a.yaml"]).domains) == ["a"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    write(tmp_path, ok="domain: ok")
    (tmp_path / "bytes.yaml").write_bytes(b"domain: \xff")
    (tmp_path / "empty").mkdir()
    names = ["empty", "none.yaml", "bytes.yaml", "ok.yaml"]
    told = refused([tmp_path / name for name in names])
    assert [text.replace(f"{tmp_path}/", "") for text in told] == [
        "bytes.yaml:1:9: the file is not UTF-8 text: byte 0xff cannot stand here",
        "empty:1:1: no *.yaml or *.yml in this folder",
        "none.yaml:1:1: cannot read 'none.yaml': No such file or directory",
    ]
    assert refused([]) == ["<rules>:1:1: no file was named"]


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.touch()
    os.truncate(path, 64_000_001)
    assert refused([path]) == [f"{path}:1:1: {str(path)!r} is larger than 64 MB"]


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert refused([tmp_path]) == [f"{tmp_path}:1:1: cannot read the folder: Permission denied"]


def test_the_problems_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, a="domain: a\nx: 1", b="domian: b", c="a: [", d="domain: d")
    assert [text.replace(f"{tmp_path}/", "").split(": ")[0] for text in refused([tmp_path])] == [
        "a.yaml:2:1", "b.yaml:1:1", "c.yaml:1:5",
    ]  # fmt: skip


STEP_A, STEP_B = "descriptors: [{key: a, limits: 5/day}]", "descriptors: [{key: b, limits: 5/day}]"


def test_a_domain_in_two_files(tmp_path: Path) -> None:
    write(tmp_path, one=f"domain: x\n{STEP_A}", two=f"{STEP_B}\ndomain: x")
    assert refused([tmp_path]) == [
        f"{tmp_path}/two.yaml:2:9: the domain 'x' a second time: first at {tmp_path}/one.yaml:1:9"
    ]
    found = load_files([tmp_path], merge_domains=True).domains["x"]
    assert [step.key for step in found.steps] == ["a", "b"]
    assert found.place == Place(f"{tmp_path}/one.yaml", 1, 9)


def test_merging_finds_what_two_files_say_twice(tmp_path: Path) -> None:
    write(tmp_path, one=f"domain: x\n{STEP_A}", two=f"domain: x\n{STEP_A}")
    assert refused([tmp_path], merge_domains=True) == [
        f"{tmp_path}/two.yaml:2:15: the step 'a' a second time on this level:"
        f" first at {tmp_path}/one.yaml:2:15"
    ]


def test_merging_joins_lists_and_keeps_defaults_apart(tmp_path: Path) -> None:
    write(
        tmp_path,
        one=f"domain: x\nallow: {{ip: [a], user: [u]}}\n{STEP_A}",
        two=f"domain: x\nallow: {{ip: [b]}}\ndeny: {{ip: [c]}}\n{STEP_B}\n"
        "defaults: {algorithm: sliding_log}",
    )
    found = load_files([tmp_path], merge_domains=True).domains["x"]
    assert {key: values.entries for key, values in found.allow.items()} == {
        "ip": ("a", "b"), "user": ("u",),
    }  # fmt: skip
    assert found.deny["ip"].entries == ("c",)
    rules = [step.rule for step in found.steps]
    assert [str(rule.limits[0].limit) for rule in rules if rule] == ["5/day", "5/day sliding_log"]


def test_merging_warns_of_what_another_file_hides(tmp_path: Path) -> None:
    write(
        tmp_path,
        one="domain: x\ndescriptors: [{key: a, value: '*', limits: 5/day}]",
        two=f"domain: x\n{STEP_A}",
    )
    problems = Problems()
    load_files([tmp_path], merge_domains=True, problems=problems)
    assert [str(warning) for warning in problems.warnings] == [
        f"{tmp_path}/two.yaml:2:15: this step never matches: '*' at {tmp_path}/one.yaml:2:15"
        " takes all of its values"
    ]


def test_a_dict() -> None:
    api = load_mapping(
        {
            "domain": "api",
            "descriptors": [
                {"key": "a", "value": 7, "limits": ("5/day", {"limit": "9/hour", "burst": 10})},
                {
                    "key": "b", "value": None, "shadow_mode": True,
                    "split": {"percent": 0.5, "limits": "5/day"}, "metadata": {"x": [1, 1.5, "1"]},
                },
            ],
        }
    )  # fmt: skip
    one, two = api.steps
    assert one.rule is not None
    assert two.rule is not None
    assert [limit.name for limit in one.rule.limits] == [
        "api/a=7 5/day", "api/a=7 9/hour burst 10",
    ]  # fmt: skip
    assert (one.value, two.value, two.rule.shadow) == ("7", None, True)
    assert two.rule.metadata == {"x": [1, 1.5, "1"]}
    assert two.rule.split is not None
    assert two.rule.split.percent == 0.5


def deep() -> dict[str, Any]:
    circle: dict[str, Any] = {"domain": "api"}
    circle["descriptors"] = [circle]
    return circle


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ({}, ["<rules>: 'domain' is missing"]),
        (["domain"], ["<rules>: a file of rules must be a mapping, not a list"]),
        ("domain", ["<rules>: a file of rules must be a mapping, not 'domain'"]),
        ({"domain": "a", "descriptors": [{"key": "b"}, {"kee": "c"}]},
         ["<rules>: descriptors[1].kee: unknown key 'kee' (did you mean 'key'?)"]),
        ({"domain": "a", "descriptors": [{"key": "b"}] * 2},
         ["<rules>: descriptors[1]: the step 'b' a second time on this level:"
          " first at <rules>: descriptors[0]"]),
        ({"domain": "a", "descriptors": [{"key": "b", "limits": ["5/day"] * 2}]},
         ["<rules>: descriptors[0].limits[1]: the limit 'a/b 5/day' a second time:"
          " first at <rules>: descriptors[0].limits[0]"]),
        ({"domain": "a", 5: 6, "x": b"y"}, ["<rules>: a key must be a text, not '5'",
                                            "<rules>: x: bytes is nothing that YAML could say"]),
        ({"domain": {1, 2}}, ["<rules>: domain: set is nothing that YAML could say"]),
        ({"domain": "a", "descriptors": [{"key": 10**5000}]},
         ["<rules>: descriptors[0].key: int is nothing that YAML could say"]),
        (deep(),
         ["<rules>: " + ".".join(["descriptors[0]"] * 25) + ": nested deeper than 50 levels"]),
    ],
)  # fmt: skip
def test_a_dict_that_is_wrong(rules: Any, told: list[str]) -> None:
    with pytest.raises(RulesError) as caught:
        load_mapping(rules)
    assert [str(problem) for problem in caught.value.problems] == told


def test_the_problems_of_a_dict_come_in_its_order() -> None:
    steps = [{"key": f"k{i}", "cost": 0} for i in range(12)]
    with pytest.raises(RulesError) as caught:
        load_mapping({"domain": "a", "descriptors": steps})
    places = [str(problem).split(": ")[1] for problem in caught.value.problems]
    assert places == [f"descriptors[{i}].cost" for i in range(12)]


def test_a_dict_that_is_too_large() -> None:
    problems = Problems()
    assert read_dict({"a": [1, 2, 3]}, "f", problems, Bounds(nodes=5)) is not None
    assert read_dict({"a": [1, 2, 3]}, "f", problems, Bounds(nodes=4)) is None
    assert [str(told) for told in problems.errors] == ["f: a[2]: more than 4 nodes"]
