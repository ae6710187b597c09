"""Audit log: who changed what, when, and with which result. One line of JSON for each change.

::

    {"time": "2024-01-01T00:00:00.000000Z", "peer": "127.0.0.1", "who": "ops",
     "digest": "1f0c9a2b", "action": "override.set", "asked": {...}, "before": null,
     "after": {...}, "result": "done", "status": 200}

``result`` is ``done``, ``refused`` (invalid or not permitted) or ``failed``. Keys are written
as they are: otherwise the log would not say whose limits were changed.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.clock import SECOND, WALL, Clock
from penstock.errors import PenstockError

DONE, REFUSED, FAILED = "done", "refused", "failed"

logger = logging.getLogger("penstock.audit")


class AuditError(PenstockError):
    """A line could not be written."""


class AuditLog:
    """Appends to a file, or writes to the log if there is none.

    Each line is one write, so processes may share the file. ``sync`` waits until it is on
    disk. After the file was rotated, `reopen` creates a new one.
    """

    def __init__(
        self, path: str | Path | None = None, *, sync: bool = False, clock: Clock = WALL
    ) -> None:
        self._path = None if path is None else Path(path)
        self._clock = clock
        self._lock = threading.Lock()
        self._file: int | None = None
        self.sync = sync
        if self._path is None:
            logger.setLevel(logging.INFO)  # changes are logged at any log level
        self.reopen()

    def write(self, entry: Mapping[str, Any]) -> None:
        """Write an entry with the time. Raises `AuditError` if that fails; the log has it then."""
        line = {"time": self._time(), **entry}
        if self._path is None:
            logger.info("%s", line.get("action"), extra={"fields": {"audit": line}})
            return
        data = (json.dumps(line, default=str) + "\n").encode()
        try:
            with self._lock:
                if self._file is None:
                    raise OSError(0, "the log is closed")
                written = os.write(self._file, data)
                if written < len(data):  # disk full: end the line, so that the next one is intact
                    os.write(self._file, b"\n")
                    raise OSError(0, "only part of the line was written")
                if self.sync:
                    os.fsync(self._file)
        except OSError as error:
            logger.error(
                "cannot write to the audit log %s: %s", self._path, error.strerror,
                extra={"fields": {"audit": line}},
            )  # fmt: skip
            raise AuditError(f"cannot write to the audit log: {error.strerror}") from None

    def reopen(self) -> None:
        """Open the file again; on SIGHUP, after the old one was rotated."""
        if self._path is None:
            return
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            opened = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise AuditError(f"cannot open the audit log {self._path}: {error.strerror}") from None
        self._replace(opened)

    def close(self) -> None:
        self._replace(None)

    def _replace(self, file: int | None) -> None:
        with self._lock:
            old, self._file = self._file, file
        if old is not None:
            os.close(old)

    def _time(self) -> str:
        now = self._clock.now()
        moment = datetime.fromtimestamp(now // SECOND, UTC)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{now % SECOND // 1000:06d}Z"

    def __repr__(self) -> str:
        return f"<AuditLog {self._path or 'to the log'}>"
