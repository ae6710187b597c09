"""Structured logs of the service: one line for each event, as JSON or as text.

::

    2024-01-01T00:00:00.000000Z warning penstock.redis 127.0.0.1:6379 is not asked any more
    {"time": "2024-...", "level": "warning", "logger": "penstock.redis", "pid": 7, "event": ...}

Text that clients sent cannot start another line or change a terminal: control characters are
escaped, and a traceback is a part of its line. Passwords in URLs, bearer tokens and values that
are named password, secret or token are masked.

Only the logger ``penstock`` is set up. Code that logs adds fields with
``extra={"fields": {...}}``; the field ``key`` is hashed if keys are to be.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, TextIO

from penstock.admin.log_level import LOGGER, level_number
from penstock.metrics.labels import Hashed
from penstock.running.masks import Masks

TEXT, JSON = "text", "json"
FORMS = (TEXT, JSON)

# Longer texts are cut: one event must not fill the disk.
LONGEST_EVENT = 8_192
LONGEST_ERROR = 32_768

# Control characters, line separators, and characters that change the direction of text.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_PLAIN_VALUE = re.compile(r"[\w./:@%+#,*|~-]+")


def escaped(text: str) -> str:
    """On one line, and without control characters."""
    return _UNSAFE.sub(_escape, text) if _UNSAFE.search(text) else text


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode()


def cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text)} characters)"


class LineFormatter(logging.Formatter):
    """One line for each record. Never raises: a log line must not break what logs it."""

    def __init__(self, form: str, masks: Masks, hashed: Hashed | None = None) -> None:
        super().__init__()
        if form not in FORMS:
            raise ValueError(f"a log is {' or '.join(FORMS)}, not {form!r:.50}")
        self._json = form == JSON
        self._masks = masks
        self._hashed = hashed

    def format(self, record: logging.LogRecord) -> str:
        try:
            event = record.getMessage()
        except Exception as error:  # a __str__ or a wrong format may raise anything
            event = f"{record.msg!r:.500} could not be written: {type(error).__name__}"
        line: dict[str, Any] = {
            "time": format_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "event": cut(self._masks.text(event), LONGEST_EVENT),
        }
        line.update(self._fields(record))
        if record.exc_info and record.exc_info[0] is not None:
            traceback = self._masks.text(self.formatException(record.exc_info))
            line["error"] = cut(traceback, LONGEST_ERROR)
        return json.dumps(line, default=str) if self._json else as_text(line)

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        fields = getattr(record, "fields", None)
        if not isinstance(fields, dict):
            return {}
        try:
            masked: dict[str, Any] = self._masks.value(fields)
        except Exception as error:  # from a __str__
            return {"fields": f"could not be written: {type(error).__name__}"}
        if self._hashed is not None and isinstance(fields.get("key"), str):
            masked["key"] = self._hashed.value(fields["key"])
        reserved = ("time", "level", "logger", "pid", "event", "error")
        return {f"{name}_" if name in reserved else name: each for name, each in masked.items()}


def format_time(seconds: float) -> str:
    """``2024-01-01T00:00:00.000000Z``"""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def as_text(line: dict[str, Any]) -> str:
    """For people: time, level, logger, event, and then the fields as ``name=value``."""
    fields = dict(line)
    parts = [str(fields.pop(name)) for name in ("time", "level", "logger", "event")]
    for name, value in fields.items():
        if name == "pid":
            continue
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        parts.append(f"{name}={text if _PLAIN_VALUE.fullmatch(text) else json.dumps(text)}")
    return escaped(" ".join(parts))


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes to a stream, and counts the lines that could not be written in ``lost``."""

    def __init__(self, stream: TextIO, before: tuple[int, bool]) -> None:
        super().__init__(stream)
        self.before = before  # the logger's level, and whether it propagated
        self.lost = 0

    def handleError(self, record: logging.LogRecord) -> None:
        """Do not print the record to stderr, as logging would: neither masked nor escaped."""
        self.lost += 1


class Logs:
    """The result of `setup`. ``close()`` undoes it."""

    def __init__(self, handler: LineHandler, masks: Masks) -> None:
        self._handler = handler
        self._masks = masks

    @property
    def lost(self) -> int:
        """Lines that could not be written."""
        return self._handler.lost

    def hide(self, secret: str) -> None:
        """Mask this text in every line."""
        self._masks.add(secret)

    def close(self) -> None:
        logger = logging.getLogger(LOGGER)
        if self._handler in logger.handlers:  # not if another call of `setup` has replaced it
            logger.removeHandler(self._handler)
            level, logger.propagate = self._handler.before
            logger.setLevel(level)


def setup(
    level: str = "info",
    form: str = TEXT,
    *,
    stream: TextIO | None = None,
    secrets: Iterable[str] = (),
    hashed: Hashed | None = None,
) -> Logs:
    """Have the logger ``penstock`` write lines to ``stream``, by default stderr.

    No other logger is changed, not even the root logger. A second call replaces the first.
    """
    logger = logging.getLogger(LOGGER)
    masks = Masks(secrets)
    formatter = LineFormatter(form, masks, hashed)
    number = level_number(level)
    before = logger.level, logger.propagate
    for old in [each for each in logger.handlers if isinstance(each, LineHandler)]:
        before = old.before
        logger.removeHandler(old)
    handler = LineHandler(sys.stderr if stream is None else stream, before)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    logger.setLevel(number)
    logger.propagate = False
    return Logs(handler, masks)
