"""Short ways to write rules and descriptors in tests of matching."""

from __future__ import annotations

from textwrap import dedent

from penstock.rules.matching.match import Match, Matcher, Pair
from penstock.rules.reading.parse import parse_text


def matcher(descriptors: str, more: str = "") -> Matcher:
    """Of the domain ``api``, with these descriptors."""
    text = f"domain: api\n{dedent(more)}descriptors:\n{dedent(descriptors)}"
    return Matcher(parse_text(text, "rules.yaml"))


def pairs(*texts: str) -> list[Pair]:
    """``key=value``, cut at the first ``=``."""
    return [(key, value) for key, _, value in (text.partition("=") for text in texts)]


def matched(rules: Matcher, *texts: str) -> Match:
    match = rules.match(pairs(*texts))
    assert match is not None
    return match
