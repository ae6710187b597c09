"""A few thousand broken inputs; the long form is ``make fuzz``."""

from __future__ import annotations

import logging
import time

import pytest

from penstock.wires.http import reader
from wires.http import fuzz


async def test_both_readers_bear_what_comes_and_agree_on_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await fuzz.run(3_000, time.monotonic() + 120) > 500
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_reader_that_takes_a_body_for_a_request_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader, "request_length", lambda version, fields: 0)
    with pytest.raises(fuzz.Found):
        await fuzz.run(3_000, time.monotonic() + 120)


async def test_a_reader_without_bounds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader.RequestReader, "_measure", lambda self, came, size: None)
    with pytest.raises(fuzz.Found):
        await fuzz.run(3_000, time.monotonic() + 120)


@pytest.mark.parametrize("number", [75_174])
async def test_what_was_found_before_is_not_found_again(number: int) -> None:
    """75174: a request after one that upgrades and closes was read if it came in one piece."""
    fuzz.throw(number)
