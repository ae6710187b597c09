"""The log level of the logger ``penstock``, which can be changed at run time."""

from __future__ import annotations

import logging

LOGGER = "penstock"
LEVELS = ("debug", "info", "warning", "error")


def level_number(level: object) -> int:
    if not isinstance(level, str) or level not in LEVELS:
        raise ValueError(f"a log level must be one of {', '.join(LEVELS)}, not {level!r:.50}")
    return getattr(logging, level.upper())  # type: ignore[no-any-return]  # they are numbers


def set_level(level: str) -> None:
    """Set the log level in this process."""
    logging.getLogger(LOGGER).setLevel(level_number(level))


def get_level() -> str:
    """The level in force: the most verbose of `LEVELS` that is logged."""
    number = logging.getLogger(LOGGER).getEffectiveLevel()
    return next((level for level in LEVELS if level_number(level) >= number), LEVELS[-1])
