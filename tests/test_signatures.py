"""Editors and help() show what to write, with the compiled core as without it."""

from __future__ import annotations

import inspect
import pydoc

import pytest

from penstock import Limiter

LIMIT = "limit: 'Limit | str | None' = None"
VERBS = {
    "peek": f"(self, key: 'str', {LIMIT}, cost: 'int' = 1) -> 'Decision'",
    "hit_all": "(self, items: 'Iterable[Item]') -> 'Decision'",
    "wait": f"(self, key: 'str', {LIMIT}, cost: 'int' = 1, timeout: 'float | None' = None)"
    " -> 'Decision'",
    "refund": f"(self, key: 'str', cost: 'int' = 1, {LIMIT}) -> 'None'",
}


def test_the_class() -> None:
    shown = f"({LIMIT}, store: 'Store | None' = None) -> 'None'"
    assert str(inspect.signature(Limiter)) == shown


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb(verb: str) -> None:
    assert str(inspect.signature(getattr(Limiter, verb))) == VERBS[verb]


def test_help_of_hit() -> None:
    shown = pydoc.plain(pydoc.render_doc(Limiter.hit)).replace("'", "")
    assert "(self, key: str, limit: Limit | str | None = None, cost: int = 1) -> Decision" in shown
