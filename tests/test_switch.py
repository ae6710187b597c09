"""Whether limits are in force: the environment, the option, and blocks without limits."""

from __future__ import annotations

import threading

import pytest

from penstock import switch
from penstock.switch import is_enabled, limits_off


@pytest.mark.parametrize(
    ("text", "enabled"),
    [(None, True), ("1", True), ("true", True), ("TRUE", True), ("0", False), ("False", False)],
)
def test_the_environment_decides(
    monkeypatch: pytest.MonkeyPatch, text: str | None, enabled: bool
) -> None:
    monkeypatch.delenv("PENSTOCK_ENABLED", raising=False)
    if text is not None:
        monkeypatch.setenv("PENSTOCK_ENABLED", text)
    assert is_enabled() is enabled
    assert is_enabled(True) is True
    assert is_enabled(False) is False


@pytest.mark.parametrize("text", ["", "2", "off", "yes", "disabled"])
def test_another_word_is_an_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PENSTOCK_ENABLED", text)
    with pytest.raises(ValueError, match=f"PENSTOCK_ENABLED is 1, 0, true or false, not '{text}'"):
        is_enabled()


def test_the_option_is_no_text() -> None:
    with pytest.raises(TypeError, match="enabled is True or False, not 'false'"):
        is_enabled("false")  # type: ignore[arg-type]  # that is the point


def test_blocks_are_nested_and_end_with_an_error() -> None:
    def fail() -> None:
        with limits_off():
            with limits_off():
                assert switch.off == 2
            assert switch.off == 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert switch.off == 0


def test_blocks_of_several_threads_are_counted() -> None:
    def enter_and_leave() -> None:
        for _ in range(1000):
            with limits_off():
                assert switch.off

    threads = [threading.Thread(target=enter_and_leave) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert switch.off == 0
