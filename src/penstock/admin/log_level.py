"""How much the logger ``penstock`` writes; an operator may change it while the service runs."""

from __future__ import annotations

import logging

LOGGER = "penstock"
LEVELS = ("debug", "info", "warning", "error")


def level_number(level: object) -> int:
    if not isinstance(level, str) or level not in LEVELS:
        raise ValueError(f"a log level is one of {', '.join(LEVELS)}, not {level!r:.50}")
    return getattr(logging, level.upper())  # type: ignore[no-any-return]  # they are numbers


def set_level(level: str) -> None:
    """From now on, in this process."""
    logging.getLogger(LOGGER).setLevel(level_number(level))


def get_level() -> str:
    """The level that is in force: the most talkative of `LEVELS` that is written."""
    number = logging.getLogger(LOGGER).getEffectiveLevel()
    return next((level for level in LEVELS if level_number(level) >= number), LEVELS[-1])
