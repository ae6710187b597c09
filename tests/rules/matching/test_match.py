"""Which rule applies: one case for each thing that the contract says of matching.

The sentences are those of docs/reference/rules.md, section "Matching", and of Envoy's rate
limit service, whose files must mean the same here.
"""

from __future__ import annotations

import threading
import time

import pytest

pytest.importorskip("yaml")

from penstock.rules.matching.match import Matcher
from penstock.rules.model import Domain, Rule, Step
from penstock.rules.problems import Place
from penstock.rules.wildcards import Wildcards
from rules.matching.match_cases import matched, matcher, pairs

PLACE = Place("rules.yaml", 1, 1)


PLANS = matcher("""
    - key: plan
      value: free
      descriptors:
        - { key: user, limits: 1/s }
        - { key: user, value: root, limits: 1/s }
    - { key: plan, value: paid, limits: 1/s }
    - { key: plan, value: Paid, limits: 1/s }
    - { key: plan, value: " paid ", limits: 1/s }
    - { key: region, value: "1", limits: 1/s }
    - { key: region, value: 01, limits: 1/s }
""")
ORDER = matcher("""
    - { key: path, limits: 1/s }
    - { key: path, value: "/a*", limits: 1/s }
    - { key: path, value: "/ab*", limits: 1/s }
    - { key: path, value: "/abc", limits: 1/s }
    - { key: path, value: "*.png", limits: 1/s }
    - { key: path, value: "/img/*", limits: 1/s }
    - { key: path, value: "*secret*", limits: 1/s }
    - { key: host, value: "/a*", limits: 1/s }
""")
REVERSED = matcher("""
    - { key: path, value: "/ab*", limits: 1/s }
    - { key: path, value: "/a*", limits: 1/s }
    - { key: path, value: "*", limits: 1/s }
    - { key: path, value: "/b*", limits: 1/s }
    - { key: path, limits: 1/s }
""")
STARS = matcher("""
    - { key: one, value: "*", limits: 1/s }
    - { key: two, value: "**", limits: 1/s }
    - { key: suffix, value: "*.com", limits: 1/s }
    - { key: inside, value: "*bot*", limits: 1/s }
    - { key: both, value: "a*b", limits: 1/s }
    - { key: many, value: "a*b*c*d", limits: 1/s }
    - { key: same, value: "aa*aa", limits: 1/s }
    - { key: greedy, value: "*ab*abc", limits: 1/s }
    - { key: odd, value: ".[a-z]+$*(x|y)?\\\\d", limits: 1/s }
    - { key: twice, value: "*aa*aa*", limits: 1/s }
    - { key: line, value: "a*z", limits: 1/s }
""")
NO_WAY_BACK = matcher("""
    - key: user
      value: bob
      descriptors:
        - { key: path, value: /only, limits: 1/s }
    - key: user
      value: "b*"
      descriptors:
        - { key: path, value: "/b*", limits: 1/s }
        - { key: path, value: "/bb*", limits: 1/s }
    - key: user
      descriptors:
        - { key: path, limits: 1/s }
    - { key: tier, value: "g*" }
    - { key: tier, limits: 1/s }
""")
DEPTHS = matcher("""
    - key: a
      limits: 1/s
      descriptors:
        - key: b
          descriptors:
            - { key: c, limits: 1/s }
    - { key: b, limits: 1/s }
""")
EMPTY = matcher("""
    - { key: bare, limits: 1/s }
    - { key: star, value: "*", limits: 1/s }
    - { key: given, value: "x", limits: 1/s }
    - { key: part, value: "x*", limits: 1/s }
    - { key: no-value, value: "", limits: 1/s }
""")
REPEATED = matcher("""
    - key: tag
      value: red
      limits: 1/s
      descriptors:
        - key: tag
          limits: 1/s
          descriptors:
            - { key: tag, value: red, limits: 1/s }
""")
ENVOY = matcher("""
    - { key: a_b, value: c, limits: 1/s }
    - { key: a, value: b_c, limits: 1/s }
    - { key: literal, value: "*", limits: 1/s }
    - { key: literal, value: "x*", limits: 1/s }
    - { key: unlimited, rate_limit: { unlimited: true } }
    - { key: closed, rate_limit: { unit: day, requests_per_unit: 0 } }
    - { key: shadow, shadow_mode: true, limits: 1/s }
""")

# What is said; the rules; the pairs; the rule that applies, or None.
Case = tuple[str, Matcher, list[str], str | None]
CASES: list[Case] = [
    # -- "a step with this key and exactly this value"
    ("exact value", PLANS, ["plan=paid"], "api/plan=paid"),
    ("exact value, another step of that key", PLANS, ["plan=Paid"], "api/plan=Paid"),
    ("exactly: upper and lower case differ", PLANS, ["plan=PAID"], None),
    ("exactly: spaces are part of a value", PLANS, ["plan= paid "], "api/plan= paid "),
    ("exactly: no spaces are cut off", PLANS, ["plan=paid "], None),
    ("exactly: a prefix is not enough", PLANS, ["plan=pai"], None),
    ("exactly: more is too much", PLANS, ["plan=paid!"], None),
    ("this key: another key with this value is not it", PLANS, ["user=paid"], None),
    ("this key: upper and lower case differ", PLANS, ["Plan=paid"], None),
    ("values are texts, also those of digits", PLANS, ["region=1"], "api/region=1"),
    ("values are texts: 01 is not 1", PLANS, ["region=01"], "api/region=01"),
    ("values are texts: 1.0 is not 1", PLANS, ["region=1.0"], None),
    ("exact goes before a bare key above it", PLANS, ["plan=free", "user=root"],
     "api/plan=free/user=root"),
    ("a bare key takes any other value", PLANS, ["plan=free", "user=42"], "api/plan=free/user"),
    ("no step with the key on this level", PLANS, ["plan=free", "plan=free"], None),
    # -- "exact `key_value`, then wildcards in declaration order, then bare `key`"
    ("exact before wildcards that fit", ORDER, ["path=/abc"], "api/path=%2Fabc"),
    ("wildcards before bare, also if bare is written first", ORDER, ["path=/ax"], "api/path=%2Fa*"),
    ("the first wildcard wins, not the longest", ORDER, ["path=/abx"], "api/path=%2Fa*"),
    ("the first wins: a prefix written before a suffix", ORDER, ["path=/a.png"], "api/path=%2Fa*"),
    ("the first wins: a suffix written before a prefix", ORDER, ["path=/img/x.png"],
     "api/path=*.png"),
    ("the first wins: a prefix before an inner text", ORDER, ["path=/img/secret"],
     "api/path=%2Fimg%2F*"),
    ("the first wins: a suffix before an inner text", ORDER, ["path=/secret.png"],
     "api/path=*.png"),
    ("an inner text", ORDER, ["path=/my secrets"], "api/path=*secret*"),
    ("bare last", ORDER, ["path=/zzz"], "api/path"),
    ("wildcards of another key do not count", ORDER, ["host=/abc"], "api/host=%2Fa*"),
    ("no bare step, no wildcard that fits", ORDER, ["host=/zzz"], None),
    ("declaration order: the longer one written first", REVERSED, ["path=/abx"],
     "api/path=%2Fab*"),
    ("declaration order: the shorter one written second", REVERSED, ["path=/ax"],
     "api/path=%2Fa*"),
    ("a lone star takes what comes to it, also from those after it", REVERSED, ["path=/bx"],
     "api/path=*"),
    ("a lone star goes before bare", REVERSED, ["path=zzz"], "api/path=*"),
    # -- "`*` stands for any characters, also none"
    ("star alone: any value", STARS, ["one=anything at all"], "api/one=*"),
    ("star alone: no characters", STARS, ["one="], "api/one=*"),
    ("two stars are as one", STARS, ["two=x"], "api/two=**"),
    ("two stars: no characters", STARS, ["two="], "api/two=**"),
    ("star in front", STARS, ["suffix=example.com"], "api/suffix=*.com"),
    ("star in front: also none", STARS, ["suffix=.com"], "api/suffix=*.com"),
    ("star in front: nothing may follow", STARS, ["suffix=example.com.au"], None),
    ("star in front: the last of several places", STARS, ["suffix=.com.com"], "api/suffix=*.com"),
    ("stars around: in the middle", STARS, ["inside=a bot b"], "api/inside=*bot*"),
    ("stars around: at the start", STARS, ["inside=bot b"], "api/inside=*bot*"),
    ("stars around: at the end", STARS, ["inside=a bot"], "api/inside=*bot*"),
    ("stars around: alone", STARS, ["inside=bot"], "api/inside=*bot*"),
    ("stars around: not there", STARS, ["inside=b o t"], None),
    ("star in the middle", STARS, ["both=a and b"], "api/both=a*b"),
    ("star in the middle: also none", STARS, ["both=ab"], "api/both=a*b"),
    ("star in the middle: both ends are needed", STARS, ["both=a and"], None),
    ("star in the middle: the beginning is needed", STARS, ["both=xa b"], None),
    ("several stars", STARS, ["many=a1b2c3d"], "api/many=a*b*c*d"),
    ("several stars: also none", STARS, ["many=abcd"], "api/many=a*b*c*d"),
    ("several stars: in order", STARS, ["many=acbd"], None),
    ("several stars: repeated texts", STARS, ["many=abcabcd"], "api/many=a*b*c*d"),
    ("prefix and suffix do not overlap", STARS, ["same=aaa"], None),
    ("prefix and suffix side by side", STARS, ["same=aaaa"], "api/same=aa*aa"),
    ("an inner text is not part of the suffix", STARS, ["greedy=xabc"], None),
    ("an inner text before the suffix", STARS, ["greedy=abxabc"], "api/greedy=*ab*abc"),
    ("inner texts do not overlap", STARS, ["twice=aaa"], None),
    ("inner texts side by side", STARS, ["twice=aaaa"], "api/twice=*aa*aa*"),
    ("other special characters mean themselves", STARS, ["odd=.[a-z]+$ and (x|y)?\\d"],
     "api/odd=.[a-z]+$*(x|y)?\\d"),
    ("other special characters have no other meaning", STARS, ["odd=xa and x1"], None),
    ("any characters: line ends", STARS, ["line=a\nb\r\n\x00\u2028z"], "api/line=a*z"),
    ("any characters: beyond the basic plane", STARS, ["line=a😀日本z"], "api/line=a*z"),
    ("a line end at the end is not ignored", STARS, ["line=abz\n"], None),
    ("ten thousand characters", STARS, [f"line=a{'x' * 10_000}z"], "api/line=a*z"),
    # -- "What was chosen is final: if it leads nowhere, no other is tried"
    ("no way back from an exact value", NO_WAY_BACK, ["user=bob", "path=/b"], None),
    ("the exact value's own way", NO_WAY_BACK, ["user=bob", "path=/only"],
     "api/user=bob/path=%2Fonly"),
    ("no way back from a wildcard to bare", NO_WAY_BACK, ["user=bill", "path=/x"], None),
    ("no way back to a later wildcard", NO_WAY_BACK, ["user=bill", "path=/bb"],
     "api/user=b*/path=%2Fb*"),
    ("who was not caught goes the bare way", NO_WAY_BACK, ["user=ann", "path=/b"],
     "api/user/path"),
    ("no way back from a wildcard without limits", NO_WAY_BACK, ["tier=gold"], None),
    ("who does not fit it is limited", NO_WAY_BACK, ["tier=silver"], "api/tier"),
    # -- "A rule applies at exactly its own depth ... nothing is inherited from above"
    ("its own depth", DEPTHS, ["a=1"], "api/a"),
    ("longer: not inherited by a step without a rule", DEPTHS, ["a=1", "b=2"], None),
    ("the deepest", DEPTHS, ["a=1", "b=2", "c=3"], "api/a/b/c"),
    ("longer than the rules", DEPTHS, ["a=1", "b=2", "c=3", "d=4"], None),
    ("longer than a rule without steps below", DEPTHS, ["b=1", "c=2"], None),
    ("longer: a pair that no step knows", DEPTHS, ["a=1", "x=2"], None),
    ("the order of pairs matters", DEPTHS, ["b=2", "a=1"], None),
    ("a step below does not stand at the top", DEPTHS, ["c=3"], None),
    ("the same key at the top is another step", DEPTHS, ["b=2"], "api/b"),
    ("no pairs, no rule", DEPTHS, [], None),
    # -- empty values
    ("bare takes the empty value", EMPTY, ["bare="], "api/bare"),
    ("a star takes the empty value", EMPTY, ["star="], "api/star=*"),
    ("a text does not", EMPTY, ["given="], None),
    ("a text and a star do not", EMPTY, ["part="], None),
    ("an empty value in a file is no value, as in Envoy's", EMPTY, ["no-value=x"], "api/no-value"),
    # -- one key several times in one descriptor
    ("repeated key: the first", REPEATED, ["tag=red"], "api/tag=red"),
    ("repeated key: the second", REPEATED, ["tag=red", "tag=red"], "api/tag=red/tag"),
    ("repeated key: the third", REPEATED, ["tag=red", "tag=x", "tag=red"],
     "api/tag=red/tag/tag=red"),
    ("repeated key: the third has a value", REPEATED, ["tag=red", "tag=red", "tag=x"], None),
    # -- as in Envoy's service, and where that is ambiguous
    ("key and value do not flow together", ENVOY, ["a_b=c"], "api/a_b=c"),
    ("key and value do not flow together, the other", ENVOY, ["a=b_c"], "api/a=b_c"),
    ("a value that is a pattern's text is exactly that", ENVOY, ["literal=x*"], "api/literal=x*"),
    ("a value with a star is no pattern", ENVOY, ["literal=y*"], "api/literal=*"),
    ("a star in a request finds nothing by itself", PLANS, ["plan=*"], None),
    ("unlimited is a rule", ENVOY, ["unlimited=x"], "api/unlimited"),
    ("zero a day is a rule", ENVOY, ["closed=x"], "api/closed"),
    ("shadow mode is a rule", ENVOY, ["shadow=x"], "api/shadow"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "descriptor", "expected"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_what_applies(rules: Matcher, descriptor: list[str], expected: str | None) -> None:
    match = rules.match(pairs(*descriptor))
    assert (None if match is None else match.rule.id) == expected


def test_every_case_is_told_once() -> None:
    assert len({sentence for sentence, *_ in CASES}) == len(CASES) >= 80


def test_a_match_knows_the_way() -> None:
    match = matched(PLANS, "plan=free", "user=42")
    assert match.step.rule is match.rule
    assert match.step is match.steps[-1]
    assert [(step.key, step.value) for step in match.steps] == [("plan", "free"), ("user", None)]
    assert match.values == ("free", "42")
    assert (match.allowed, match.denied) == (False, False)
    assert repr(match) == "<Match api/plan=free/user key='api|plan=free|user=42'>"


def test_a_descriptor_is_any_sequence_of_pairs() -> None:
    descriptor = pairs("plan=free", "user=42")
    for same in (descriptor, tuple(descriptor), tuple(dict(descriptor).items())):
        match = PLANS.match(same)
        assert match is not None
        assert match.key == "api|plan=free|user=42"


def test_many_wildcards_keep_their_order() -> None:
    count = 200
    many = [f"/v{n % 7}/*" if n % 50 == 49 else f"/v{n % 7}/user{n}/*" for n in range(count)]
    wildcards = Wildcards((text, text) for text in many)
    for text in many:
        value = text.replace("*", "x")
        assert wildcards.first(value) == next(one for one in many if value.startswith(one[:-1]))
    assert wildcards.first("/v0/") == next(one for one in many if one == "/v0/*")
    assert wildcards.first("/v9/user1/x") is None


@pytest.mark.parametrize("pattern", ["*a*a*a*b", "*a*a*a*a*a*a*b*", "a*" * 500 + "b", "*aab*"])
def test_no_value_takes_long(pattern: str) -> None:
    """Regular expressions would take hours, not seconds."""
    wildcards = Wildcards([(pattern, True)])
    started = time.thread_time()
    assert wildcards.first("a" * 10_000) is None
    assert wildcards.first("a" * 10_000 + "b") is True
    assert time.thread_time() - started < 10


def test_of_two_steps_that_say_the_same_the_first_counts() -> None:
    """The parser refuses them; a domain that was made by hand may have them."""
    steps = [Step("k", value, PLACE, Rule(f"{value} {n}", PLACE))
             for value in (None, "x", "y*") for n in (1, 2)]  # fmt: skip
    rules = Matcher(Domain("api", PLACE, tuple(steps)))
    assert [matched(rules, f"k={value}").rule.id for value in ("-", "x", "y", "y*")] == [
        "None 1", "x 1", "y* 1", "y* 1"
    ]  # fmt: skip


def test_threads_share_a_matcher() -> None:
    wrong: list[object] = []

    def ask(number: int) -> None:
        for turn in range(500):
            match = PLANS.match([("plan", "free"), ("user", f"{number}-{turn}")])
            if match is None or match.key != f"api|plan=free|user={number}-{turn}":
                wrong.append(match)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
