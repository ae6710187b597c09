"""What is logged once, however many requests it concerns."""

from __future__ import annotations

import logging

logger = logging.getLogger("penstock")

_logged: set[tuple[str, ...]] = set()


def warn_once(subject: tuple[str, ...], message: str, *args: object) -> None:
    """Log a warning, unless there was one about this subject in this process."""
    if subject not in _logged:
        _logged.add(subject)
        logger.warning(message, *args)
