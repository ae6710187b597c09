"""Watcher: calls a function when files have changed, in a thread that stops when told.

It watches the folders that the files lie in, so that it sees a file that is replaced, and
a mount whose contents are swapped by a symbolic link, as Kubernetes does it. What has not
changed in content calls nobody.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.errors import PenstockError, RulesError

logger = logging.getLogger("penstock.rules")

# A change is rarely alone: wait until nothing more comes for so many milliseconds.
_QUIET = 50
_PATIENCE = 500


class Watcher:
    """From `start` to `stop`."""

    def __init__(
        self,
        files: Sequence[str | Path],
        changed: Callable[[], None],
        others: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._paths = [Path(file) for file in files]
        self._changed = changed
        self._others = others  # files that are named in the files: lists
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen = b""

    def start(self) -> None:
        try:
            import watchfiles  # noqa: F401  # asked for here, to say what is missing
        except ModuleNotFoundError:
            missing = "watching files needs watchfiles: pip install 'penstock[rules]'"
            raise RulesError(missing) from None
        self._seen = self._content()
        ready = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(ready,), name="penstock-rules", daemon=True
        )
        self._thread.start()
        ready.wait(5)

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self, ready: threading.Event) -> None:
        from watchfiles import watch

        folders = {path if path.is_dir() else path.absolute().parent for path in self._paths}
        changes = watch(
            *folders,
            watch_filter=None,
            debounce=_PATIENCE,
            step=_QUIET,
            stop_event=self._stop,
            rust_timeout=_PATIENCE,
            yield_on_timeout=True,
            recursive=False,
            raise_interrupt=False,
        )
        for _ in changes:
            # The first time-out or change says that the watch is on.
            ready.set()
            self._look()

    def _look(self) -> None:
        content = self._content()
        if content == self._seen:
            return
        self._seen = content
        try:
            self._changed()
        except PenstockError as error:
            logger.error("the new rules are wrong, the old ones stay:\n%s", error)
        except Exception:
            logger.exception("the new rules could not be used, the old ones stay")

    def _content(self) -> bytes:
        """A digest of all that the rules are read from."""
        digest = hashlib.blake2b(digest_size=16)
        for path in dict.fromkeys([*self._paths, *map(Path, self._others())]):
            found = sorted(path.iterdir()) if path.is_dir() else [path]
            for file in found:
                digest.update(os.fsencode(file) + b"\0")
                try:
                    if file.is_file():
                        digest.update(file.read_bytes())
                except OSError as error:
                    digest.update(repr(error).encode())
        return digest.digest()
