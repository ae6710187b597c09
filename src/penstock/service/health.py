"""Health: which parts of the service are well, by name, and who wants to know.

``""`` is the service as a whole. It is well unless it was said not to be (it is draining, it
is not ready yet) or a vital part is not. While the whole was said not to be well, no part is:
who asks for one by name must stay away, too. A part that is not vital, such as a shared
store, pulls nothing down with it: without it, limits follow their failure policy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

WHOLE = ""
RATELIMIT = "ratelimit"  # the name that Envoy's service answers for
STORE = "store"

# Called with the name of what may have changed; from any thread, so it must not wait.
Listener = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Part:
    """``reason`` says why it is not well, for people."""

    ok: bool
    reason: str = ""


class Health:
    """The parts, all well to begin with. Any thread may use it."""

    def __init__(
        self, parts: Iterable[str] = (RATELIMIT,), vital: Iterable[str] = (RATELIMIT,)
    ) -> None:
        self._vital = frozenset(vital)
        self._lock = threading.Lock()
        self._parts: dict[str, Part] = dict.fromkeys((WHOLE, *parts, *self._vital), Part(True))
        self._listeners: list[Listener] = []

    def set(self, name: str, ok: bool, reason: str = "") -> None:
        """Say how a part is; a new name is a new part."""
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
        """Whether to send requests here; False for a part that is not known."""
        return self.part(name).ok

    def part(self, name: str = WHOLE) -> Part:
        """How a part is, all considered."""
        with self._lock:
            parts = dict(self._parts)
        found = parts.get(name)
        if found is None:
            return Part(False, "unknown")
        whole = parts[WHOLE]
        if not whole.ok or not found.ok:
            return found if not found.ok else whole
        if name == WHOLE:
            for vital in sorted(self._vital):
                if not parts[vital].ok:
                    return Part(False, f"{vital}: {parts[vital].reason}".rstrip(": "))
        return found

    def parts(self) -> Mapping[str, Part]:
        """All of them, by name."""
        return {name: self.part(name) for name in sorted(self._parts)}

    def subscribe(self, listener: Listener) -> None:
        """Have ``listener`` called after every change, with the part's name."""
        with self._lock:
            self._listeners.append(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Have it called no more."""
        with self._lock:
            self._listeners.remove(listener)
