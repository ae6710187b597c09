"""Limiters in the tests of others: mocks, copies and pickles."""

from __future__ import annotations

import copy
import pickle
from typing import Any
from unittest import mock

import pytest

import penstock
from penstock import AsyncLimiter, Limiter
from penstock._mode import COMPILED

VERBS = ["hit", "peek", "wait", "hit_many", "hit_all", "refund", "reset", "reserve", "charge"]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_a_verb_of_one_limiter_can_be_replaced(kind: Any, verb: str) -> None:
    limiter, other = kind("1/hour"), kind("1/hour")
    own = getattr(limiter, verb)
    with mock.patch.object(limiter, verb) as replaced:
        assert getattr(limiter, verb) is replaced
        assert getattr(other, verb) is not replaced
    assert getattr(limiter, verb) == own


def test_what_a_mock_returns_decides() -> None:
    limiter = Limiter("1/hour")
    refused = Limiter("0/hour").hit("k")
    with mock.patch.object(limiter, "hit", return_value=refused, autospec=True) as hit:
        assert not limiter.hit("user:42", cost=3)
    hit.assert_called_once_with("user:42", cost=3)
    assert limiter.hit("user:42")


def test_the_class_can_be_replaced_where_it_is_used() -> None:
    with mock.patch("penstock.Limiter") as kind:
        kind.return_value.hit.return_value = False
        assert not penstock.Limiter("1/hour").hit("k")


def test_a_verb_of_the_class_only_uncompiled() -> None:
    if COMPILED:
        with (
            pytest.raises(TypeError, match="immutable type"),
            mock.patch("penstock.Limiter.hit"),
        ):
            pytest.fail("it was replaced")
    else:
        with mock.patch("penstock.Limiter.hit", return_value=7):
            assert Limiter("1/hour").hit("k") == 7  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("limiter", [Limiter("1/hour"), AsyncLimiter("1/hour")])
def test_a_limiter_cannot_be_pickled_and_says_what_to_do(limiter: Any) -> None:
    expected = r"^a limiter cannot be pickled, .*: pass the limit, and make a limiter in each"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match=expected):
            pickle.dumps(limiter, protocol)
    with pytest.raises(TypeError, match=expected):
        copy.deepcopy(limiter)


def test_a_copy_shares_the_state() -> None:
    limiter = Limiter("1/hour")
    assert copy.copy(limiter).hit("k")
    assert not limiter.hit("k")
