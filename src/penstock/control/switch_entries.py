"""Overrides, switches and additions to lists as entries of a key-value store.

The value of an entry is a command of the admin API as JSON, without how long it lasts: that is the
time to live of the entry.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from penstock.errors import StoreError
from penstock.kv import Entry
from penstock.rules.deciding.switches import Changes

Command = dict[str, Any]

# What entries of switches begin with.
PREFIXES = ("allow/", "deny/", "log/", "override/", "switch/")
_FIELDS = {
    "mode": ("mode", "name"),
    "override": ("key", "value", "factor", "limit"),
    "list": ("which", "key", "entry"),
    "log": ("key", "value"),
}
# What identifies the state that a command sets.
_NAMES = {
    "override": ("key", "value"), "list": ("which", "key", "entry"), "log": ("key", "value"),
}  # fmt: skip
_LONGEST = 150  # bytes


def is_switch(key: str) -> bool:
    return key.startswith(PREFIXES)


def key_of(command: Command) -> str:
    """Under which the state that a command sets or clears is kept."""
    what = str(command["do"]).removeprefix("clear_")
    if what == "mode":
        name = command.get("name")
        return "switch/all" if name is None else f"switch/rule/{_short(name)}"
    if what in ("override", "log"):
        return f"{what}/{_short(command['key'])}={_short(command['value'])}"
    return f"{command['which']}/{_short(command['key'])}={_short(command['entry'])}"


def clears(command: Command, mode: str = "enforce") -> bool:
    """Whether it takes something back; ``mode`` is the one for all if nothing is switched."""
    if command["do"] == "mode":
        return command.get("name") is None and command["mode"] == mode
    return str(command["do"]).startswith("clear_")


def value_of(command: Command) -> str:
    fields = {name: command.get(name) for name in _FIELDS[command["do"]]}
    return json.dumps({"do": command["do"], **fields})


def command_of(entry: Entry, now: float) -> Command:
    """The command that puts an entry in force, for the time that it has left."""
    command = _parsed(entry)
    if entry.expires_at is not None:
        command["lasts"] = max(0.001, round(entry.expires_at - now, 3))
    if command["do"] == "override":
        command["held"] = True  # it was checked where it was made
    return command


def setting_commands(command: Command, mode: str = "enforce") -> list[Command]:
    """The command, after what it replaces is taken back; ``mode`` as for `clears`.

    A mode for all that expires ends in the one that was set before it, which the entry has
    replaced in the store.
    """
    if command["do"] == "mode" and command["name"] is None and command.get("lasts") is not None:
        return [clearing_command(command, mode), command]
    return [command]


def clearing_command(command: Command, mode: str = "enforce") -> Command:
    """The command that takes another one back; ``mode`` as for `clears`."""
    if command["do"] == "mode":
        if command["name"] is None:
            return {"do": "mode", "mode": mode, "name": None}
        return {"do": "clear_mode", "name": command["name"]}
    names = _NAMES[command["do"]]
    return {"do": f"clear_{command['do']}", **{name: command[name] for name in names}}


def switch(switches: Changes, command: Command) -> None:
    """Execute a command that changes a switch, at once or in a batch."""
    do = command["do"]
    if do == "mode":
        switches.mode(command["mode"], command.get("name"), command.get("lasts"))
    elif do == "clear_mode":
        switches.clear_mode(command["name"])
    elif do == "override":
        options = {name: command.get(name) for name in ("factor", "limit", "lasts")}
        held = command.get("held", False)
        switches.override(command["key"], command["value"], **options, held=held)
    elif do == "clear_override":
        switches.clear_override(command["key"], command["value"])
    elif do == "log":
        switches.log(command["key"], command["value"], command.get("lasts"))
    elif do == "clear_log":
        switches.clear_log(command["key"], command["value"])
    elif do == "list":
        add = switches.allow if command["which"] == "allow" else switches.deny
        add(command["key"], command["entry"], command.get("lasts"))
    else:
        switches.clear_list(command["which"], command["key"], command["entry"])


def _parsed(entry: Entry) -> Command:
    try:
        data = json.loads(entry.text)
        return {"do": data["do"], **{name: data[name] for name in _FIELDS[data["do"]]}}
    except (ValueError, KeyError, TypeError):
        raise StoreError(f"the entry {entry.key!r} is no switch of Penstock") from None


def _short(text: str) -> str:
    """As it is, or its digest if a key cannot have it."""
    if text and text.isprintable() and len(text.encode("utf-8", "replace")) <= _LONGEST // 2:
        return text
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"
