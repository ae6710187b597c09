"""Watcher: calls a function when files have changed, in a thread that stops when told.

It compares what the files hold with what was read from them when the rules in force were
loaded, so that no change can fall between reading and watching. What could not be loaded is
tried again when it changes.

It watches the folders that the files lie in, so that it sees a file that is replaced, and
a mount whose contents are swapped by a symbolic link, as Kubernetes does it. It also looks
twice a second: a folder may be replaced, too, and then nobody tells of what happens in it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from penstock.errors import PenstockError, RulesError
from penstock.rules.problems import Problems
from penstock.rules.reading.digest import digest_of

logger = logging.getLogger("penstock.rules")

# A change is rarely alone: wait until nothing more comes for so many milliseconds.
_QUIET = 50
_PATIENCE = 500
_MISSING = ""  # no digest

Digests = Mapping[str, str]


class Watcher:
    """From `start` to `stop`.

    - ``files``: files and folders of rules
    - ``changed``: loads them; it raises, or says False, if that failed
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
            import watchfiles  # noqa: F401  # asked for here, to say what is missing
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
        except Exception as error:  # of watchfiles: a folder is not there, no watches are left
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
        """Have changed files loaded."""
        from penstock.rules.reading.files import find_files  # it needs what not everybody has

        others = _digests(self._others)
        loaded = self._loaded()
        named = find_files(self._paths, Problems()) if self._paths else []
        found = _digests([*named, *map(Path, loaded)])
        if found == loaded:
            self._tried = None
        is_new = found != loaded and found != self._tried
        if not is_new and others == self._others_seen:
            return
        self._others_seen = others
        done = self._load()
        # What was loaded may be newer already than what was found: then it is looked at again.
        self._tried = None if done else found

    def _load(self) -> bool:
        try:
            return self._changed() is not False
        except PenstockError as error:
            logger.error("the new rules are wrong, the old ones stay:\n%s", error)
        except Exception:
            logger.exception("the new rules could not be used, the old ones stay")
        return False


def _digests(files: Iterable[Path]) -> dict[str, str]:
    found = {}
    for file in files:
        try:
            found[str(file)] = digest_of(file.read_bytes()) if file.is_file() else _MISSING
        except OSError:
            found[str(file)] = _MISSING
    return found
