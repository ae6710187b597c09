"""The matcher and the reference walker give the same answers, whatever the rules."""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

pytest.importorskip("yaml")

from penstock.rules.lists import ValueList
from penstock.rules.matching.match import Matcher, Pair
from penstock.rules.matching.trace import NOTHING
from penstock.rules.model import Domain, Rule, Step
from penstock.rules.problems import Place
from penstock.rules.wildcards import Pattern, Wildcards
from rules.matching.reference_walker import Found, escape, glob, walk

PLACE = Place("rules.yaml", 1, 1)
# Few letters, so that values meet rules, prefixes meet each other, and stars have work.
KEYS = st.sampled_from(["k", "l", "m=|"])
TEXTS = st.text("ab", max_size=5)
PATTERNS = st.text("ab*", max_size=7)
STARRED = st.lists(st.text("ab", max_size=3), min_size=2, max_size=5).map("*".join)
ADDRESSES = st.sampled_from(
    ["10.0.0.1", "10.0.0.77", "10.0.1.1", "::ffff:10.0.0.5", "2001:db8::1", "2001:db8::2:0:0:0:1"]
)
ODD = st.sampled_from(["", "*", "a*", "a|b", "a=b", "100%", "a\nb", "\x00", "日本"])
VALUES = st.one_of(TEXTS, TEXTS, ADDRESSES, ODD)
ENTRIES = st.one_of(VALUES, st.sampled_from(["10.0.0.0/24", "10.0.0.9/31", "2001:db8::/64"]))
LISTS = st.one_of(
    st.none(), st.none(), st.lists(ENTRIES, max_size=3).map(lambda entries: ValueList(entries))
)


@st.composite
def levels(draw: st.DrawFn, depth: int = 3, path: str = "api") -> tuple[Step, ...]:
    """Steps of one level, no two of them the same, and all that is below."""
    names = draw(
        st.lists(
            st.tuples(KEYS, st.one_of(st.none(), PATTERNS, PATTERNS, VALUES)),
            unique=True,
            min_size=0 if depth < 3 else 1,
            max_size=8,
        )
    )
    out = []
    for key, value in names:
        id = f"{path}/{key}={value}"
        children = draw(levels(depth - 1, id)) if depth > 1 and draw(st.booleans()) else ()
        starred = value is not None and "*" in value
        out.append(
            Step(
                key,
                value,
                PLACE,
                Rule(id, PLACE) if not children or draw(st.booleans()) else None,
                children,
                group=draw(st.sampled_from([None, None, (24, 64), (8, 33), (32, 128)])),
                allow=draw(LISTS),
                deny=draw(LISTS),
                share_threshold=starred and draw(st.booleans()),
            )
        )
    return tuple(out)


@st.composite
def descriptors(draw: st.DrawFn, domain: Domain) -> list[Pair]:
    """Pairs that mostly follow the steps of the domain, and sometimes do not."""
    pairs: list[Pair] = []
    level = domain.steps
    while level and len(pairs) < 4 and draw(st.integers(0, 9)):
        step = draw(st.sampled_from(level))
        if step.value is None or not draw(st.integers(0, 5)):
            value = draw(VALUES)
        else:
            first, *others = step.value.split("*")
            value = first + "".join(draw(TEXTS) + other for other in others)
        pairs.append((step.key, value))
        level = step.children
    if not draw(st.integers(0, 7)):
        pairs.append((draw(KEYS), draw(VALUES)))
    return pairs


DOMAINS = st.builds(
    lambda name, steps: Domain(name, PLACE, steps), st.sampled_from(["api", "a|k=b"]), levels()
)


def asked(matcher: Matcher, pairs: list[Pair]) -> Found | None:
    match = matcher.match(pairs)
    if match is None:
        return None
    assert match.step is match.steps[-1]
    assert [step.key for step in match.steps] == [key for key, _ in pairs[: len(match.steps)]]
    return Found(match.rule, match.key, match.values, match.allowed, match.denied)


@given(st.data())
def test_the_matcher_agrees_with_the_sentences(data: st.DataObject) -> None:
    domain = data.draw(DOMAINS)
    matcher = Matcher(domain)
    for pairs in data.draw(st.lists(descriptors(domain), min_size=1, max_size=10)):
        expected = walk(domain, pairs)
        event("nothing applies" if expected is None else f"a match of {len(expected.values)} pairs")
        assert asked(matcher, pairs) == expected


@given(st.data())
def test_a_trace_ends_where_the_match_does(data: st.DataObject) -> None:
    domain = data.draw(DOMAINS)
    matcher = Matcher(domain)
    pairs = data.draw(descriptors(domain))
    match, steps = matcher.match(pairs), matcher.trace(pairs)
    assert [(step.key, step.value) for step in steps] == pairs[: len(steps)]
    assert all(step.how != NOTHING for step in steps[:-1]), "it goes on only from a step"
    assert all(str(step).startswith(f"{step.depth}. ") for step in steps)
    applies = any(
        note.startswith("the rule ") and note.endswith(" applies")
        for step in steps
        for note in step.notes
    )
    if match is not None and len(match.steps) == len(pairs) and match.step.rule is not None:
        assert applies
        assert tuple(step.step for step in steps) == match.steps
        for step, counted in zip(steps, match.values, strict=True):
            assert (f"counted as {counted!r}" in step.notes) == (counted != step.value)
    else:
        assert not applies


@given(STARRED, VALUES)
def test_a_pattern_fits_what_a_naive_glob_fits(pattern: str, value: str) -> None:
    assert Pattern(pattern, 0, None).matches(value) == glob(pattern, value)


@given(
    st.lists(STARRED, max_size=40),
    st.lists(st.text("ab", max_size=8), min_size=1, max_size=10),
)
def test_the_first_pattern_wins_however_many_there_are(
    patterns: list[str], values: list[str]
) -> None:
    wildcards = Wildcards((pattern, rank) for rank, pattern in enumerate(patterns))
    for value in values:
        fitting = [rank for rank, pattern in enumerate(patterns) if glob(pattern, value)]
        assert wildcards.first(value) == (fitting[0] if fitting else None)


ANY_TEXT = st.text(st.characters(), max_size=6)  # lone surrogates among them
AWKWARD = st.one_of(ANY_TEXT, st.text("|=%2C7\n\x7f\x85", max_size=6))


def unescaped(text: str) -> str:
    first, *others = text.split("%")
    return first + "".join(chr(int(other[:2], 16)) + other[2:] for other in others)


@given(AWKWARD.filter(bool), st.lists(st.tuples(AWKWARD, AWKWARD), min_size=1, max_size=4))
def test_domain_and_pairs_can_be_read_back_from_a_key(name: str, pairs: list[Pair]) -> None:
    # Every second level knows its value, so that its part of the key is made beforehand.
    steps: tuple[Step, ...] = ()
    rule: Rule | None = Rule("r", PLACE)
    for depth, (key, value) in reversed(list(enumerate(pairs))):
        plain = depth % 2 and "*" not in value
        steps, rule = (Step(key, value if plain else None, PLACE, rule, steps),), None
    match = Matcher(Domain(name, PLACE, steps)).match(pairs)
    assert match is not None
    domain, *parts = match.key.split("|")
    assert unescaped(domain) == name
    assert [tuple(map(unescaped, part.split("="))) for part in parts] == pairs
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in match.key)
    assert escape(name) == domain
