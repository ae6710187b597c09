"""Switches: what an operator changes while requests come in.

All of it is one frozen `State`, which is replaced as a whole: a request sees the old one
or the new one. What has run out is left out when it is next looked at.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from penstock.clock import Clock
from penstock.durations import Duration, parse_duration
from penstock.errors import InvalidKey
from penstock.limit import MOST_UNITS, Limit, Soft, as_limit
from penstock.rules.lists import ValueList
from penstock.rules.model import ENFORCE, OFF, SHADOW

K = TypeVar("K")
V = TypeVar("V")
MODES = (ENFORCE, SHADOW, OFF)
_EVER = 2**63 - 1

# Beyond any use, and what an amount times it is can still be told.
MOST_FACTOR = 1e9


@dataclass(frozen=True, slots=True)
class Override:
    """Another limit for whoever has one pair: a multiple of the rule's, or one of its own."""

    factor: float | None
    limit: Limit | None
    until: int

    def apply(self, limit: Limit) -> Limit:
        """What holds in the place of ``limit``; `LimitError` if that cannot be counted by."""
        if self.limit is not None:
            return self.limit
        assert self.factor is not None
        return multiplied(limit, self.factor)


@dataclass(frozen=True, slots=True)
class State:
    """What is switched at one moment."""

    mode: str = ENFORCE
    modes: Mapping[str, str] = field(default_factory=dict)  # by rule or limit name
    overrides: Mapping[tuple[str, str], Override] = field(default_factory=dict)
    allow: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # key: entry: until
    deny: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    next_end: int = _EVER  # when the first of them runs out
    allow_lists: Mapping[str, ValueList] = field(default_factory=dict)
    deny_lists: Mapping[str, ValueList] = field(default_factory=dict)

    @property
    def calm(self) -> bool:
        """Whether nothing is switched, which is most of the time."""
        return (
            self.mode == ENFORCE
            and not self.modes
            and not self.overrides
            and not self.allow
            and not self.deny
        )


class Switches:
    """The state, and the verbs that change it. Times are the gate's clock's.

    ``check`` raises for an override that cannot be counted by. ``changed`` is called after
    every change.
    """

    def __init__(
        self,
        clock: Clock,
        check: Callable[[tuple[str, str], Override], None] | None = None,
        changed: Callable[[], None] | None = None,
    ) -> None:
        self._clock = clock
        self._check = check
        self._changed = changed
        self._lock = threading.Lock()
        self.last = State()  # as of the last change: some of it may have run out
        self.calm = True  # looked at for every request

    @property
    def denies(self) -> bool:
        """Whether anybody is on a deny list."""
        return not self.calm and bool(self.state().deny_lists)

    def state(self) -> State:
        """The state of this moment."""
        if self.last.next_end <= self._clock.now():
            self._change(lambda state: state)
        return self.last

    def mode(self, mode: str, name: str | None = None) -> None:
        """``"enforce"``, ``"shadow"`` or ``"off"``, for all rules or for one.

        ``name`` is a rule's id, such as ``"api/plan=free/user"``, or a limit's name. A
        rule that is switched goes before the switch for all.
        """
        if mode not in MODES:
            raise ValueError(f"a mode is one of {', '.join(MODES)}, not {mode!r:.50}")
        if name is None:
            self._change(lambda state: replace(state, mode=mode))
        else:
            self._change(lambda state: replace(state, modes={**state.modes, name: mode}))

    def clear_mode(self, name: str) -> None:
        """Have a rule follow the switch for all again."""
        self._change(lambda state: replace(state, modes=_without(state.modes, name)))

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

        `LimitError` if a limit that comes of it is one that the store cannot hold; unless it
        is ``held`` already elsewhere, and was right when it was set.
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
        own = None if limit is None else as_limit(limit)
        made = Override(factor, own, self._until(lasts))
        if self._check is not None and not held:
            self._check(pair, made)
        self._change(lambda state: replace(state, overrides={**state.overrides, pair: made}))

    def clear_override(self, key: str, value: str) -> None:
        pair = _pair(key, value)
        self._change(lambda state: replace(state, overrides=_without(state.overrides, pair)))

    def allow(self, key: str, entry: str, lasts: Duration | None = None) -> None:
        """Never count requests with this pair; ``entry`` may be a network."""
        self._add("allow", key, entry, lasts)

    def deny(self, key: str, entry: str, lasts: Duration | None = None) -> None:
        """Refuse requests with this pair; ``entry`` may be a network."""
        self._add("deny", key, entry, lasts)

    def clear_list(self, which: str, key: str, entry: str) -> None:
        """Take an entry off ``"allow"`` or ``"deny"`` again."""

        def change(state: State) -> State:
            lists = getattr(state, which)
            changed: dict[str, Any] = {which: {**lists, key: _without(lists.get(key, {}), entry)}}
            return replace(state, **changed)

        if which not in ("allow", "deny"):
            raise ValueError(f"the lists are allow and deny, not {which!r:.50}")
        self._change(change)

    def _add(self, which: str, key: str, entry: str, lasts: Duration | None) -> None:
        _pair(key, entry)
        ValueList([entry])  # a network that is none is an error now
        until = self._until(lasts)

        def change(state: State) -> State:
            lists = getattr(state, which)
            changed: dict[str, Any] = {which: {**lists, key: {**lists.get(key, {}), entry: until}}}
            return replace(state, **changed)

        self._change(change)

    def _until(self, lasts: Duration | None) -> int:
        return _EVER if lasts is None else self._clock.now() + parse_duration(lasts, "lasts")

    def _change(self, change: Callable[[State], State]) -> None:
        with self._lock:
            self.last = _current(change(self.last), self._clock.now())
            self.calm = self.last.calm
        if self._changed is not None:
            self._changed()


def _current(state: State, now: int) -> State:
    """Without what has run out, and with its lists made."""
    overrides = {pair: one for pair, one in state.overrides.items() if one.until > now}
    lists = []
    for found in (state.allow, state.deny):
        left = {
            key: {entry: until for entry, until in entries.items() if until > now}
            for key, entries in found.items()
        }
        lists.append({key: entries for key, entries in left.items() if entries})
    allow, deny = lists
    ends = [one.until for one in overrides.values()]
    ends += [until for found in lists for entries in found.values() for until in entries.values()]
    return replace(
        state,
        overrides=overrides,
        allow=allow,
        deny=deny,
        next_end=min(ends, default=_EVER),
        allow_lists={key: ValueList(entries) for key, entries in allow.items()},
        deny_lists={key: ValueList(entries) for key, entries in deny.items()},
    )


def multiplied(limit: Limit, factor: float) -> Limit:
    """The limit with all its amounts times ``factor``, at least 1; `LimitError` beyond bounds."""

    def times(amount: int) -> int:
        return max(1, min(MOST_UNITS, round(amount * factor)))

    changes: dict[str, Any] = {"amount": times(limit.amount)}
    if limit.algorithm in ("token_bucket", "leaky_bucket"):
        changes["burst"] = times(limit.burst)
    if limit.debt:
        changes["debt"] = times(limit.debt)
    if limit.soft is not None:
        changes["soft"] = Soft(times(limit.soft.overrun), limit.soft.grace_ns)
    return limit.changed(**changes)


def _pair(key: object, value: object) -> tuple[str, str]:
    if not isinstance(key, str) or not key or not isinstance(value, str):
        raise InvalidKey(f"a pair is a key and a value, both texts, not {(key, value)!r:.100}")
    return key, value


def _without(mapping: Mapping[K, V], key: K) -> dict[K, V]:
    return {other: value for other, value in mapping.items() if other != key}
