"""Watcher: calls a function when files have changed, in a thread.

It compares the files with what was read from them when the rules in force were loaded, so that no
change is missed between reading and watching. Files that could not be loaded are tried again when
they change.

It watches the folders of the files, so that it notices when a file is replaced, or when a mount is
swapped by a symbolic link, as Kubernetes does. It also polls twice a second, because a folder that
is replaced sends no more notifications.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from penstock.errors import PenstockError, RulesError
from penstock.rules.problems import Problems
from penstock.rules.reading.files import digest_of, find_files

logger = logging.getLogger("penstock.rules")

# Changes come in bursts: wait until there are none for so many milliseconds.
_QUIET = 50
_PATIENCE = 500
_MISSING = ""  # no digest

Digests = Mapping[str, str]


class Watcher:
    """From `start` to `stop`.

    - ``files``: files and folders of rules
    - ``changed``: loads them; it raises, or returns False, if that failed
    - ``loaded``: a digest of each file that the rules in force were read from, lists included
    - ``others``: more files to watch, such as certificates; they are about to be read
    """

    def __init__(
        self,
        files: Sequence[str | Path],
        changed: Callable[[], bool | None],
        loaded: Callable[[], Digests],
        others: Sequence[str | Path] = (),
    ) -> None:
        self._paths = [Path(file) for file in files]
        self._others = [Path(file) for file in others]
        self._changed = changed
        self._loaded = loaded
        self._tried: Digests | None = None  # and could not be loaded
        self._others_seen = _digests(self._others)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        try:
            import watchfiles  # noqa: F401  # imported here to report that it is missing
        except ModuleNotFoundError:
            missing = "watching files needs watchfiles: pip install 'penstock[rules]'"
            raise RulesError(missing) from None
        self._thread = threading.Thread(target=self._run, name="penstock-rules", daemon=True)
        self._thread.start()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        self.look()
        try:
            self._watch()
        except Exception as error:  # from watchfiles: a folder is missing, or no watches are left
            logger.warning(
                "files are looked at twice a second, as they cannot be watched: %s", error
            )
        while not self._stop.wait(_PATIENCE / 1000):
            self.look()

    def _watch(self) -> None:
        from watchfiles import watch

        named = [*self._paths, *self._others]
        changes = watch(
            *{path if path.is_dir() else path.absolute().parent for path in named},
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
            self.look()

    def look(self) -> None:
        """Load the files if they have changed."""
        others = _digests(self._others)
        loaded = self._loaded()
        named = find_files(self._paths, Problems()) if self._paths else []
        current = _digests([*named, *map(Path, loaded)])
        if current == loaded:
            self._tried = None
        is_new = current != loaded and current != self._tried
        if not is_new and others == self._others_seen:
            return
        self._others_seen = others
        done = self._load()
        # If the files have changed again meanwhile, the next look notices it.
        self._tried = None if done else current

    def _load(self) -> bool:
        try:
            return self._changed() is not False
        except PenstockError as error:
            logger.error("the new rules are wrong, the old ones stay:\n%s", error)
        except Exception:
            logger.exception("the new rules could not be used, the old ones stay")
        return False


def _digests(files: Iterable[Path]) -> dict[str, str]:
    digests = {}
    for file in files:
        try:
            digests[str(file)] = digest_of(file.read_bytes()) if file.is_file() else _MISSING
        except OSError:
            digests[str(file)] = _MISSING
    return digests
