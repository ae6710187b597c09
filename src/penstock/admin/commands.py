"""Commands of operators, as plain JSON; `apply_command` executes them in each process.

::

    {"do": "mode", "mode": "shadow", "name": "api/user"}        name: null for all rules
    {"do": "clear_mode", "name": "api/user"}
    {"do": "override", "key": "user", "value": "42", "factor": 10, "lasts": "1h"}
    {"do": "clear_override", "key": "user", "value": "42"}
    {"do": "list", "which": "deny", "key": "ip", "entry": "192.0.2.0/24", "lasts": null}
    {"do": "clear_list", "which": "deny", "key": "ip", "entry": "192.0.2.0/24"}
    {"do": "reload"}
    {"do": "log_level", "level": "debug"}

These run in every process. The following run in any one, as all have the same rules and
counters::

    {"do": "rules"}  {"do": "summary"}  {"do": "switches"}  {"do": "level"}
    {"do": "knows", "name": "api/user"}
    {"do": "counters" | "reset" | "refund", "domain": null, "descriptors": [[["user", "42"]]],
     "limit": null, "hits": 1}

A result is ``{"ok": true, "result": ...}`` or ``{"ok": false, "status": 422, "error": "..."}``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

from penstock.admin import counters, dumps, log_level
from penstock.async_gate import AnyGate
from penstock.clock import WALL
from penstock.errors import PenstockError, RulesError, StoreError, UnsupportedLimit
from penstock.rules.deciding.switches import Switches
from penstock.rules.model import ENFORCE
from penstock.rules.walk import all_rules, limits_of

Command = dict[str, Any]
Answer = dict[str, Any]

logger = logging.getLogger("penstock.admin")


async def apply_command(gate: AnyGate, command: Command) -> Answer:
    """Execute it in this process. Never raises: the result says what went wrong."""
    try:
        verb = VERBS.get(command["do"])
        if verb is None:
            raise ValueError(f"unknown command {command['do']!r:.50}")
        result = verb(gate, command)
        return {"ok": True, "result": await result if isawaitable(result) else result}
    except RulesError as error:
        problems = [str(problem) for problem in error.problems]
        return _not_done(422, str(error), problems=problems)
    except UnsupportedLimit as error:
        return _not_done(400, str(error))
    except StoreError as error:
        return _not_done(503, str(error))
    except (PenstockError, ValueError, TypeError, KeyError) as error:
        return _not_done(400, str(error))
    except Exception:
        logger.exception("a command failed", extra={"fields": {"command": command}})
        return _not_done(500, "internal error: see the log")


def _not_done(status: int, error: str, **more: Any) -> Answer:
    return {"ok": False, "status": status, "error": error, **more}


def switch(switches: Switches, command: Command) -> None:
    """Execute a command that changes a switch."""
    do = command["do"]
    if do == "mode":
        switches.mode(command["mode"], command.get("name"))
    elif do == "clear_mode":
        switches.clear_mode(command["name"])
    elif do == "override":
        switches.override(
            command["key"],
            command["value"],
            factor=command.get("factor"),
            limit=command.get("limit"),
            lasts=command.get("lasts"),
            held=command.get("held", False),
        )
    elif do == "clear_override":
        switches.clear_override(command["key"], command["value"])
    elif do == "list":
        add = switches.allow if command["which"] == "allow" else switches.deny
        add(command["key"], command["entry"], command.get("lasts"))
    else:
        switches.clear_list(command["which"], command["key"], command["entry"])


def check_switch(command: Command) -> None:
    """Raise what is wrong with a command before any process gets it."""
    switch(Switches(WALL), command)


def commands_of(gate: AnyGate) -> list[Command]:
    """The commands that bring a new process to the state of ``gate``, with the time left."""
    state = gate.switches.state()
    now = gate.clock.now()
    commands: list[Command] = [{"do": "log_level", "level": log_level.get_level()}]
    if state.mode != ENFORCE:
        commands.append({"do": "mode", "mode": state.mode, "name": None})
    commands += [{"do": "mode", "mode": mode, "name": name} for name, mode in state.modes.items()]
    for (key, value), one in state.overrides.items():
        limit = None if one.limit is None else str(one.limit)
        commands.append(
            {"do": "override", "key": key, "value": value, "factor": one.factor, "limit": limit,
             "lasts": _lasts(one.until, now), "held": True}
        )  # fmt: skip
    for which in ("allow", "deny"):
        for key, entries in getattr(state, which).items():
            for entry, until in entries.items():
                commands.append(
                    {"do": "list", "which": which, "key": key, "entry": entry,
                     "lasts": _lasts(until, now)}
                )  # fmt: skip
    return commands


def _lasts(until: int, now: int) -> str | None:
    return None if until >= dumps.EVER else f"{max(1, until - now)}ns"


async def _reload(gate: AnyGate, command: Command) -> None:
    # For a gate alone: a fleet of workers reads the files once, for all of them.
    # Large files take a while: do not block decisions.
    await asyncio.to_thread(gate.reload)


def _summary(gate: AnyGate, command: Command) -> dict[str, Any]:
    return {"domains": sorted(gate.rules.domains), "rules": sum(1 for _ in all_rules(gate.rules))}


def _knows(gate: AnyGate, command: Command) -> bool:
    """Whether there is a rule or limit with this name."""
    name = command["name"]
    return any(
        name in (rule.id, rule.name)
        or any(each.name == name for _, limits in limits_of(rule) for each in limits)
        for rule in all_rules(gate.rules)
    )


def _switch(gate: AnyGate, command: Command) -> None:
    switch(gate.switches, command)


def _set_level(gate: AnyGate, command: Command) -> None:
    log_level.set_level(command["level"])


VERBS: dict[str, Callable[[AnyGate, Command], Any | Awaitable[Any]]] = {
    "mode": _switch,
    "clear_mode": _switch,
    "override": _switch,
    "clear_override": _switch,
    "list": _switch,
    "clear_list": _switch,
    "reload": _reload,
    "log_level": _set_level,
    "level": lambda gate, command: log_level.get_level(),
    "summary": _summary,
    "knows": _knows,
    "rules": lambda gate, command: dumps.rules(gate),
    "switches": lambda gate, command: dumps.switches(gate),
    "counters": counters.look,
    "reset": counters.reset,
    "refund": counters.refund,
}
