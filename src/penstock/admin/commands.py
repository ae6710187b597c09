"""Commands of operators, as plain JSON; `apply_command` executes them in each process.

::

    {"do": "mode", "mode": "shadow", "name": "api/user"}        name: null for all rules
    {"do": "clear_mode", "name": "api/user"}
    {"do": "override", "key": "user", "value": "42", "factor": 10, "lasts": "1h"}
    {"do": "clear_override", "key": "user", "value": "42"}
    {"do": "list", "which": "deny", "key": "ip", "entry": "192.0.2.0/24", "lasts": null}
    {"do": "clear_list", "which": "deny", "key": "ip", "entry": "192.0.2.0/24"}
    {"do": "log", "key": "user", "value": "42", "lasts": "10m"}
    {"do": "clear_log", "key": "user", "value": "42"}
    {"do": "batch", "commands": [...]}                          many of the above, at once
    {"do": "reload"}
    {"do": "log_level", "level": "debug"}
    {"do": "quotas"}  {"do": "leases"}
    {"do": "refusals", "key": "user", "value": "42"}            what a worker refused last
    {"do": "decisions", "after": {"0": 17}}                     what a worker logged

These run in every process. The following run in any one, as all have the same rules and
counters::

    {"do": "rules"}  {"do": "summary"}  {"do": "switches"}  {"do": "level"}
    {"do": "modes_of", "name": "api/user"}  {"do": "names"}
    {"do": "switched", "do_what": "override", "key": "user", "value": "42"}
    {"do": "check_override" | "check_list" | "check_key", ...}  errors name what was meant
    {"do": "who", "key": "user", "value": "42", "others": [["path", "/a"]], "refusals": [...]}
    {"do": "counters" | "reset" | "refund", "domain": null, "descriptors": [[["user", "42"]]],
     "limit": null, "hits": 1}

A result is ``{"ok": true, "result": ...}`` or ``{"ok": false, "status": 422, "error": "..."}``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import Any

from penstock.admin import counters, dumps, leases, log_level, switch_dumps, who
from penstock.admin.errors import RequestRejected
from penstock.async_gate import AnyGate
from penstock.clock import WALL
from penstock.control.switch_entries import switch
from penstock.errors import PenstockError, RulesError, StoreError, UnsupportedLimit
from penstock.limits import as_limit
from penstock.rules.aliases import names_of
from penstock.rules.deciding.overrides import check_override
from penstock.rules.deciding.switches import Override, Switches
from penstock.rules.model import ENFORCE, SHADOW
from penstock.rules.problems import nearest
from penstock.rules.walk import all_rules, limits_of, steps_of

Command = dict[str, Any]
Answer = dict[str, Any]
SWITCHES = (
    *("mode", "clear_mode", "override", "clear_override", "list", "clear_list"),
    *("log", "clear_log"),
)

logger = logging.getLogger("penstock.admin")


async def apply_command(gate: AnyGate, command: Command) -> Answer:
    """Execute it in this process. Never raises: the result says what went wrong."""
    try:
        verb = VERBS.get(command["do"])
        if verb is None:
            raise ValueError(f"unknown command {command['do']!r:.50}")
        result = verb(gate, command)
        return done(await result if isawaitable(result) else result)
    except RequestRejected as error:
        return failed(error.status, error.message)
    except RulesError as error:
        return failed(422, str(error), problems=[str(problem) for problem in error.problems])
    except StoreError as error:
        return failed(400 if isinstance(error, UnsupportedLimit) else 503, str(error))
    except (PenstockError, ValueError, TypeError, KeyError) as error:
        return failed(400, str(error))
    except Exception:
        logger.exception("a command failed", extra={"fields": {"command": command}})
        return failed(500, "internal error: see the log")


def done(result: Any = None) -> Answer:
    return {"ok": True, "result": result}


def failed(status: int, error: str, **more: Any) -> Answer:
    return {"ok": False, "status": status, "error": error, **more}


def check_switch(command: Command) -> None:
    """Raise an error if a command is invalid, before any process gets it."""
    switch(Switches(WALL), command)


def commands_of(gate: AnyGate) -> list[Command]:
    """The commands that bring a new process to the state of ``gate``, with the time left."""
    state = gate.switches.state()
    now = gate.clock.now()
    commands: list[Command] = [{"do": "log_level", "level": log_level.get_level()}]
    if state.lasting_mode != ENFORCE:
        commands.append({"do": "mode", "mode": state.lasting_mode, "name": None})
    modes: list[tuple[str | None, str]] = [*state.modes.items()]
    if None in state.mode_ends:
        modes.append((None, state.mode))
    for name, mode in modes:
        lasts = _lasts(state.mode_ends.get(name, switch_dumps.EVER), now)
        commands.append({"do": "mode", "mode": mode, "name": name, "lasts": lasts})
    for (key, value), override in state.overrides.items():
        limit = None if override.limit is None else str(override.limit)
        commands.append(
            {"do": "override", "key": key, "value": value, "factor": override.factor,
             "limit": limit, "lasts": _lasts(override.until, now), "held": True}
        )  # fmt: skip
    for which in ("allow", "deny"):
        for key, entries in getattr(state, which).items():
            for entry, until in entries.items():
                commands.append(
                    {"do": "list", "which": which, "key": key, "entry": entry,
                     "lasts": _lasts(until, now)}
                )  # fmt: skip
    for (key, value), until in state.logged.items():
        lasts = _lasts(until, now)
        commands.append({"do": "log", "key": key, "value": value, "lasts": lasts})
    return commands


def switches_of(gate: AnyGate) -> list[Command]:
    """The overrides and list entries in force, as commands: what a trial must take over."""
    return [each for each in commands_of(gate) if each["do"] in ("override", "list")]


def apply_switches(gate: AnyGate, commands: list[Command]) -> None:
    """Put commands of `switches_of` in force; those that do not fit other rules are left out."""
    _batch(gate, {"commands": commands})


def _lasts(until: int, now: int) -> str | None:
    return None if until >= switch_dumps.EVER else f"{max(1, until - now)}ns"


async def _reload(gate: AnyGate, command: Command) -> None:
    # Only for a gate without workers; those reload together, with files that are read once.
    # Large files take a while: do not block decisions.
    await asyncio.to_thread(gate.reload)


def _summary(gate: AnyGate, command: Command) -> dict[str, Any]:
    return {"domains": sorted(gate.rules.domains), "rules": sum(1 for _ in all_rules(gate.rules))}


def _modes_of(gate: AnyGate, command: Command) -> dict[str, str] | None:
    """The modes of a rule or limit, by its ``file`` and in ``force``; None if there is none."""
    name, state = command["name"], gate.switches.state()
    for rule in all_rules(gate.rules):
        if name in (rule.id, rule.name):
            return {"file": SHADOW if rule.shadow else ENFORCE, "force": dumps.mode_of(rule, state)}
        meter = rule.meter is not None and rule.meter.name == name
        if meter or any(each.name == name for _, limits in limits_of(rule) for each in limits):
            return {"file": ENFORCE, "force": state.modes.get(name, ENFORCE)}
    return None


def _check_override(gate: AnyGate, command: Command) -> None:
    """Raise an error if an override would not work, or would apply to nothing."""
    key = command["key"]
    _check_known(key, _keys(gate))
    factor, limit = command.get("factor"), command.get("limit")
    override = Override(factor, None if limit is None else as_limit(limit), switch_dumps.EVER)
    check_override(gate.rules, (key, command["value"]), override, gate.try_limit)


def _check_list(gate: AnyGate, command: Command) -> None:
    """Raise an error if the key looks like a typo.

    Lists apply to every descriptor, also where no rule has the key: a key that resembles none is
    accepted.
    """
    keys = _keys(gate) | _listed(gate)
    hint = "" if command["key"] in keys else nearest(command["key"], keys)
    if hint:
        raise ValueError(f"no rule has the key {command['key']!r:.100}{hint}")


def _check_key(gate: AnyGate, command: Command) -> None:
    """Raise an error if no rule and no list has the key."""
    _check_known(command["key"], _keys(gate) | _listed(gate))


def _check_known(key: str, keys: set[str]) -> None:
    if keys and key not in keys:
        hint = nearest(key, keys)
        known = "" if hint else f": the keys are {', '.join(sorted(keys)[:20])}"
        raise ValueError(f"no rule has the key {key!r:.100}{hint}{known}")


def _listed(gate: AnyGate) -> set[str]:
    """The keys of allow and deny lists, of the rules and of operators."""
    state = gate.switches.state()
    lists: list[Iterable[str]] = [state.allow, state.deny]
    for domain in gate.rules.domains.values():
        lists += [domain.allow, domain.deny]
    return {key for each in lists for key in each}


def _keys(gate: AnyGate) -> set[str]:
    steps = [step for domain in gate.rules.domains.values() for step in steps_of(domain)]
    return {name for step in steps for name in names_of(step.key)}


def _batch(gate: AnyGate, command: Command) -> list[list[Any]]:
    """Put many switches in force; the commands that are invalid: number and reason of each."""
    errors: list[list[Any]] = []
    with gate.switches.batch() as batch:
        for number, each in enumerate(command["commands"]):
            try:
                switch(batch, each)
            except (PenstockError, ValueError, TypeError, KeyError) as error:
                errors.append([number, str(error)])
    return errors


def _no_ledger(gate: AnyGate, command: Command) -> None:
    """A worker with a ledger answers it itself."""
    raise RequestRejected(501, "this service has no ledger: start it with --ledger")


VERBS: dict[str, Callable[[AnyGate, Command], Any | Awaitable[Any]]] = {
    **dict.fromkeys(SWITCHES, lambda gate, command: switch(gate.switches, command)),
    "batch": _batch,
    "switch_commands": lambda gate, command: switches_of(gate),
    "reload": _reload,
    "quotas": lambda gate, command: {"degraded": False, "total": 0, "buckets": []},
    "leases": lambda gate, command: leases.look(gate.store),
    "balance": _no_ledger,
    "log_level": lambda gate, command: log_level.set_level(command["level"]),
    "level": lambda gate, command: log_level.get_level(),
    "summary": _summary,
    "modes_of": _modes_of,
    "switched": switch_dumps.one,
    "refusals": lambda gate, command: [],
    "decisions": lambda gate, command: {"rows": [], "left_out": 0},
    "names": lambda gate, command: [rule.id for rule in all_rules(gate.rules)][:1000],
    "check_override": _check_override,
    "check_list": _check_list,
    "check_log": _check_list,
    "check_key": _check_key,
    "rules": lambda gate, command: dumps.rules(gate),
    "switches": lambda gate, command: switch_dumps.switches(gate),
    "who": who.who,
    "counters": counters.look,
    "reset": counters.reset,
    "refund": counters.refund,
}
