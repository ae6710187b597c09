"""Switches: what an operator changes while requests come in.

All of it is one frozen `State`, which is replaced as a whole: a request sees the old one or the
new one. What has expired is dropped at the next access. A replacement copies everything, so many
changes are made in one `Switches.batch`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.clock import Clock
from penstock.durations import HOUR, Duration, parse_duration
from penstock.errors import InvalidKey
from penstock.limit_options import MOST_UNITS, Soft
from penstock.limits import Limit, as_limit
from penstock.rules.aliases import lists_by_name, pairs_by_name
from penstock.rules.lists import ValueList
from penstock.rules.model import ENFORCE, OFF, SHADOW

K = TypeVar("K")
MODES = (ENFORCE, SHADOW, OFF)
_EVER = 2**63 - 1

# Larger than anyone needs, and small enough to multiply any amount by.
MOST_FACTOR = 1e9

# How long decisions are logged if nothing is said, and at most: a log that is forgotten would fill
# the disk.
LOG_LASTS = "10m"
LONGEST_LOG = 24 * HOUR


@dataclass(frozen=True, slots=True)
class Override:
    """Another limit for requests with a pair: a multiple of the rule's, or a limit of its own."""

    factor: float | None
    limit: Limit | None
    until: int

    def apply(self, limit: Limit) -> Limit:
        """The limit that replaces ``limit``; `LimitError` if it would be out of bounds."""
        if self.limit is not None:
            return self.limit
        assert self.factor is not None
        return multiplied(limit, self.factor)


@dataclass(frozen=True, slots=True)
class State:
    """What is switched at one moment."""

    mode: str = ENFORCE
    lasting_mode: str = ENFORCE  # the one for all when ``mode`` has expired
    modes: Mapping[str, str] = field(default_factory=dict)  # by rule or limit name
    mode_ends: Mapping[str | None, int] = field(default_factory=dict)  # None: of ``mode``
    overrides: Mapping[tuple[str, str], Override] = field(default_factory=dict)
    allow: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # key: entry: until
    deny: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    logged: Mapping[tuple[str, str], int] = field(default_factory=dict)  # pair: until
    next_end: int = _EVER  # when the first of them expires
    # Under every name of a key: see `aliases.py`.
    allow_lists: Mapping[str, ValueList] = field(default_factory=dict)
    deny_lists: Mapping[str, ValueList] = field(default_factory=dict)
    overrides_by_pair: Mapping[tuple[str, str], Override] = field(default_factory=dict)

    @property
    def calm(self) -> bool:
        """Whether nothing is switched that affects decisions, which is most of the time."""
        return (
            self.mode == ENFORCE
            and not self.mode_ends
            and not self.modes
            and not self.overrides
            and not self.allow
            and not self.deny
        )


class Draft:
    """A copy of a state that can be changed."""

    def __init__(self, state: State) -> None:
        self.mode = state.mode
        self.lasting_mode = state.lasting_mode
        self.modes = dict(state.modes)
        self.mode_ends = dict(state.mode_ends)
        self.overrides = dict(state.overrides)
        self.lists = {
            which: {key: dict(entries) for key, entries in lists.items()}
            for which, lists in (("allow", state.allow), ("deny", state.deny))
        }
        self.logged = dict(state.logged)

    def set_mode(self, mode: str, name: str | None, until: int) -> None:
        self.mode_ends.pop(name, None)
        if until < _EVER:
            self.mode_ends[name] = until
        elif name is None:
            self.lasting_mode = mode
        if name is None:
            self.mode = mode
        else:
            self.modes[name] = mode

    def clear_mode(self, name: str) -> None:
        self.modes.pop(name, None)
        self.mode_ends.pop(name, None)

    def _expire_modes(self, now: int) -> None:
        for name in [name for name, until in self.mode_ends.items() if until <= now]:
            if name is None:
                self.set_mode(self.lasting_mode, None, _EVER)
            else:
                self.clear_mode(name)

    def state(self, now: int) -> State:
        """Without what has expired, and with its lists built."""
        self._expire_modes(now)
        overrides = {
            pair: override for pair, override in self.overrides.items() if override.until > now
        }
        allow, deny = (_unexpired(self.lists[which], now) for which in ("allow", "deny"))
        logged = {pair: until for pair, until in self.logged.items() if until > now}
        ends = [*self.mode_ends.values(), *[each.until for each in overrides.values()]]
        ends += logged.values()
        for lists in (allow, deny):
            ends += [until for entries in lists.values() for until in entries.values()]
        return State(
            mode=self.mode,
            lasting_mode=self.lasting_mode,
            modes=self.modes,
            mode_ends=self.mode_ends,
            overrides=overrides,
            allow=allow,
            deny=deny,
            logged=logged,
            next_end=min(ends, default=_EVER),
            allow_lists=_value_lists(allow),
            deny_lists=_value_lists(deny),
            overrides_by_pair=pairs_by_name(overrides),
        )


Edit = Callable[[Draft], None]
Check = Callable[[tuple[str, str], Override], None]


class Changes(ABC):
    """The changes that can be made. ``check`` raises if an override does not work."""

    def __init__(self, clock: Clock, check: Check | None) -> None:
        self._clock = clock
        self._check = check

    @abstractmethod
    def _change(self, edit: Edit) -> None: ...

    def mode(self, mode: str, name: str | None = None, lasts: Duration | None = None) -> None:
        """``"enforce"``, ``"shadow"`` or ``"off"``, for all rules or for one.

        ``name`` is a rule's id, such as ``"api/plan=free/user"``, or a limit's name. The mode
        of a rule takes precedence over the mode for all. After ``lasts``, a rule follows the mode
        for all again, and all rules the mode that was set for them without ``lasts``.
        """
        if mode not in MODES:
            raise ValueError(f"a mode is one of {', '.join(MODES)}, not {mode!r:.50}")
        until = self._until(lasts)
        self._change(lambda draft: draft.set_mode(mode, name, until))

    def clear_mode(self, name: str) -> None:
        """Let a rule follow the mode for all again."""
        self._change(lambda draft: draft.clear_mode(name))

    def override(
        self,
        key: str,
        value: str,
        *,
        factor: float | None = None,
        limit: Limit | str | None = None,
        lasts: Duration | None = None,
        held: bool = False,
    ) -> None:
        """Other limits for descriptors with this pair: ``override("user", "42", factor=10)``.

        `LimitError` if the store does not support a resulting limit. An override that another
        process holds already (``held``) is not checked again.
        """
        pair = _pair(key, value)
        if (factor is None) == (limit is None):
            raise ValueError("an override has a factor or a limit, and not both")
        if factor is not None and not (
            isinstance(factor, (int, float)) and 0 < factor <= MOST_FACTOR
        ):
            raise ValueError(
                f"a factor is a number above 0, up to {MOST_FACTOR:g}, not {factor!r:.50}"
            )
        new_limit = None if limit is None else as_limit(limit)
        override = Override(factor, new_limit, self._until(lasts))
        if self._check is not None and not held:
            self._check(pair, override)
        self._change(lambda draft: draft.overrides.update({pair: override}))

    def clear_override(self, key: str, value: str) -> None:
        pair = _pair(key, value)
        self._change(lambda draft: _remove(draft.overrides, pair))

    def allow(self, key: str, entry: str, lasts: Duration | None = None) -> None:
        """Never count requests with this pair; ``entry`` may be a network."""
        self._add("allow", key, entry, lasts)

    def deny(self, key: str, entry: str, lasts: Duration | None = None) -> None:
        """Refuse requests with this pair; ``entry`` may be a network."""
        self._add("deny", key, entry, lasts)

    def clear_list(self, which: str, key: str, entry: str) -> None:
        """Take an entry off ``"allow"`` or ``"deny"`` again."""
        if which not in ("allow", "deny"):
            raise ValueError(f"the lists are allow and deny, not {which!r:.50}")
        self._change(lambda draft: _remove(draft.lists[which].get(key, {}), entry))

    def log(self, key: str, value: str, lasts: Duration | None = None) -> None:
        """Log decisions on requests with this pair, for ten minutes unless it says otherwise.

        A gate itself logs nothing: `penstock serve` does.
        """
        pair, duration = _pair(key, value), LOG_LASTS if lasts is None else lasts
        if parse_duration(duration, "lasts") > LONGEST_LOG:
            raise ValueError(f"decisions are logged for at most 24h at a time, not {lasts!r:.50}")
        until = self._until(duration)
        self._change(lambda draft: draft.logged.update({pair: until}))

    def clear_log(self, key: str, value: str) -> None:
        pair = _pair(key, value)
        self._change(lambda draft: _remove(draft.logged, pair))

    def _add(self, which: str, key: str, entry: str, lasts: Duration | None) -> None:
        _pair(key, entry)
        ValueList([entry])  # raises for an invalid network
        until = self._until(lasts)
        self._change(lambda draft: draft.lists[which].setdefault(key, {}).update({entry: until}))

    def _until(self, lasts: Duration | None) -> int:
        return _EVER if lasts is None else self._clock.now() + parse_duration(lasts, "lasts")


class Batch(Changes):
    """Changes that are put in force together: see `Switches.batch`."""

    def __init__(self, clock: Clock, check: Check | None) -> None:
        super().__init__(clock, check)
        self.edits: list[Edit] = []

    def _change(self, edit: Edit) -> None:
        self.edits.append(edit)


class Switches(Changes):
    """The state, and the methods that change it. The clock is the gate's.

    ``check`` raises if an override does not work. ``changed`` is called after every change.
    """

    def __init__(
        self,
        clock: Clock,
        check: Check | None = None,
        changed: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(clock, check)
        self._changed = changed
        self._lock = threading.Lock()
        self.last = State()  # as of the last change: some of it may have expired
        self.calm = True  # read for every request

    @property
    def denies(self) -> bool:
        """Whether a deny list has entries."""
        return not self.calm and bool(self.state().deny_lists)

    def state(self) -> State:
        """The current state."""
        if self.last.next_end <= self._clock.now():
            self._make([])
        return self.last

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        """Make many changes at the cost of one; in force together, when the block has ended::

            with gate.switches.batch() as batch:
                for user in users:
                    batch.override("user", user, factor=10)

        If the block raises, none of them is.
        """
        batch = Batch(self._clock, self._check)
        yield batch
        if batch.edits:
            self._make(batch.edits)

    def _change(self, edit: Edit) -> None:
        self._make([edit])

    def _make(self, edits: list[Edit]) -> None:
        with self._lock:
            draft = Draft(self.last)
            for edit in edits:
                edit(draft)
            self.last = draft.state(self._clock.now())
            self.calm = self.last.calm
        if self._changed is not None:
            self._changed()


def _value_lists(lists: Mapping[str, Mapping[str, int]]) -> Mapping[str, ValueList]:
    return lists_by_name({key: ValueList(entries) for key, entries in lists.items()})


def _unexpired(lists: Mapping[str, Mapping[str, int]], now: int) -> dict[str, dict[str, int]]:
    current = {
        key: {entry: until for entry, until in entries.items() if until > now}
        for key, entries in lists.items()
    }
    return {key: entries for key, entries in current.items() if entries}


def multiplied(limit: Limit, factor: float) -> Limit:
    """The limit with all its amounts times ``factor``, at least 1; `LimitError` beyond bounds.

    A limit of 0 stays closed.
    """
    if limit.amount == 0:
        return limit

    def times(amount: int) -> int:
        return max(1, min(MOST_UNITS, round(amount * factor)))

    changes: dict[str, Any] = {"amount": times(limit.amount)}
    if limit.algorithm in ("token_bucket", "leaky_bucket"):
        changes["burst"] = times(limit.burst)
    if limit.initial is not None:
        changes["initial"] = min(changes["burst"], round(limit.initial * factor))
    if limit.debt:
        changes["debt"] = times(limit.debt)
    if limit.soft is not None:
        changes["soft"] = Soft(times(limit.soft.overrun), limit.soft.grace_ns)
    return limit.changed(**changes)


def _pair(key: object, value: object) -> tuple[str, str]:
    if not isinstance(key, str) or not key or not isinstance(value, str):
        raise InvalidKey(f"a pair is a key and a value, both texts, not {(key, value)!r:.100}")
    return key, value


def _remove(mapping: dict[K, Any], key: K) -> None:
    mapping.pop(key, None)
