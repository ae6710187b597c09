"""Health: which parts of the service are healthy, by name, and who listens for changes.

``""`` is the service as a whole. It is healthy unless it was set not to be (while it drains, or
is not ready yet) or a vital part is not. While the whole is set unhealthy, so are all parts:
clients that ask for one by name must stay away, too. A part that is not vital, such as a shared
store, does not affect the whole: without it, limits follow their failure policy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

WHOLE = ""
RATELIMIT = "ratelimit"  # the name that Envoy's service answers for
STORE = "store"
LEDGER = "ledger"
HOME = "home"  # what the regions of a limit share, if there are several

# Called with the name of the part that changed, from any thread: it must not block.
Listener = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Part:
    """``reason`` says why it is not healthy, for people."""

    ok: bool
    reason: str = ""


class Health:
    """The parts, all healthy at first. Thread-safe."""

    def __init__(
        self, parts: Iterable[str] = (RATELIMIT,), vital: Iterable[str] = (RATELIMIT,)
    ) -> None:
        self._vital = frozenset(vital)
        self._lock = threading.Lock()
        self._parts: dict[str, Part] = dict.fromkeys((WHOLE, *parts, *self._vital), Part(True))
        self._listeners: list[Listener] = []

    def set(self, name: str, ok: bool, reason: str = "") -> None:
        """Set the health of a part; a new name is a new part."""
        part = Part(bool(ok), "" if ok else reason)
        with self._lock:
            before = self._parts.get(name)
            self._parts[name] = part
            listeners = list(self._listeners)
        if before != part:
            for listener in listeners:
                listener(name)

    def knows(self, name: str) -> bool:
        return name in self._parts

    def serving(self, name: str = WHOLE) -> bool:
        """Whether to send requests here; False for an unknown part."""
        return self.part(name).ok

    def part(self, name: str = WHOLE) -> Part:
        """The health of a part, with what the whole and vital parts imply."""
        with self._lock:
            parts = dict(self._parts)
        part = parts.get(name)
        if part is None:
            return Part(False, "unknown")
        if not part.ok:
            return part
        if not parts[WHOLE].ok:
            return parts[WHOLE]
        if name == WHOLE:
            for vital in sorted(self._vital):
                if not parts[vital].ok:
                    return Part(False, f"{vital}: {parts[vital].reason}".rstrip(": "))
        return part

    def parts(self) -> Mapping[str, Part]:
        """All of them, by name."""
        return {name: self.part(name) for name in sorted(self._parts)}

    def subscribe(self, listener: Listener) -> None:
        """Call ``listener`` after every change, with the part's name."""
        with self._lock:
            self._listeners.append(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Stop calling ``listener``."""
        with self._lock:
            self._listeners.remove(listener)
