"""Switches as JSON, all of them or one, with the seconds that each has left.

``left`` is null where something stays until it is removed.
"""

from __future__ import annotations

from typing import Any

from penstock.async_gate import AnyGate
from penstock.clock import SECOND
from penstock.rules.deciding.switches import _EVER, Override, State

EVER = _EVER

Dump = dict[str, Any]


def switches(gate: AnyGate) -> Dump:
    """All that is switched."""
    state, now = gate.switches.state(), gate.clock.now()
    lists = {
        which: [
            _entry(key, entry, until, now)
            for key, entries in getattr(state, which).items()
            for entry, until in entries.items()
        ]
        for which in ("allow", "deny")
    }
    return {
        "mode": state.mode,
        "mode_left": _mode_left(state, None, now),
        "modes": dict(state.modes),
        "modes_left": {name: _mode_left(state, name, now) for name in state.modes},
        "overrides": [_override(pair, each, now) for pair, each in state.overrides.items()],
        **lists,
        "logged": [_logged(pair, until, now) for pair, until in state.logged.items()],
    }


def one(gate: AnyGate, command: dict[str, Any]) -> Dump:
    """What a command is about: its ``state``, None if there is none, and how many there are."""
    state, now = gate.switches.state(), gate.clock.now()
    do = command["do_what"].removeprefix("clear_")
    if do == "mode":
        name = command.get("name")
        mode = state.mode if name is None else state.modes.get(name)
        return {"state": mode, "count": len(state.modes)}
    if do == "list":
        lists = getattr(state, command["which"])
        key, entry = command["key"], command["entry"]
        until = lists.get(key, {}).get(entry)
        found = None if until is None else _entry(key, entry, until, now)
        return {"state": found, "count": sum(map(len, lists.values()))}
    pair = command["key"], command["value"]
    if do == "log":
        until = state.logged.get(pair)
        found = None if until is None else _logged(pair, until, now)
        return {"state": found, "count": len(state.logged)}
    override = state.overrides.get(pair)
    found = None if override is None else _override(pair, override, now)
    return {"state": found, "count": len(state.overrides)}


def _override(pair: tuple[str, str], override: Override, now: int) -> Dump:
    limit = None if override.limit is None else str(override.limit)
    return {
        "key": pair[0], "value": pair[1], "factor": override.factor, "limit": limit,
        "left": _left(override.until, now),
    }  # fmt: skip


def _entry(key: str, entry: str, until: int, now: int) -> Dump:
    return {"key": key, "entry": entry, "left": _left(until, now)}


def _logged(pair: tuple[str, str], until: int, now: int) -> Dump:
    return {"key": pair[0], "value": pair[1], "left": _left(until, now)}


def _mode_left(state: State, name: str | None, now: int) -> float | None:
    return _left(state.mode_ends.get(name, EVER), now)


def _left(until: int, now: int) -> float | None:
    return None if until >= EVER else max(0, until - now) / SECOND
