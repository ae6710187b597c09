"""Hooks are told, and cannot break what they listen to."""

from __future__ import annotations

import logging

import pytest

from penstock.events import Event, Hooks, StoreDown


def test_every_hook_is_told_until_it_is_removed() -> None:
    hooks, seen, other = Hooks(), [], []
    assert not hooks
    hooks.add(seen.append)
    hooks.add(other.append)
    assert hooks
    event = StoreDown("a:1", "gone")
    hooks.emit(event)
    hooks.remove(seen.append)
    hooks.emit(Event("b:2"))
    assert seen == [event]
    assert other == [event, Event("b:2")]


def test_a_hook_that_fails_is_logged_and_the_next_one_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooks, seen = Hooks(), []

    def broken(event: Event) -> None:
        raise RuntimeError("no disk")

    hooks.add(broken)
    hooks.add(seen.append)
    with caplog.at_level(logging.ERROR, "penstock"):
        hooks.emit(Event("a:1"))
    assert seen == [Event("a:1")]
    assert "a hook failed on Event" in caplog.text


def test_a_hook_is_a_function() -> None:
    with pytest.raises(TypeError, match="a hook must be a function of one event"):
        Hooks().add("print")  # type: ignore[arg-type]
