"""``penstock admin``: what an operator asks and changes, through the admin API of an instance.

With ``penstock serve --control``, a change that is made at one instance is in force in all.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from penstock.cli.arguments import BAD_ARGUMENTS, FAILED, Commands, complain
from penstock.cli.paint import Paint
from penstock.cli.top_source import ADMIN, TOKEN, AdminClient, AdminUnavailable, token_of
from penstock.errors import PenstockError

MODES = {"on": "enforce", "enforce": "enforce", "shadow": "shadow", "off": "off"}


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "admin",
        help="ask and change a running service: who, limits, override, switch, changes, undo",
        description="Asks the admin API of an instance. What it changes is in force in all"
        " instances that share --control. Exit code 0: success; 1: refused, or no answer; 2:"
        " invalid arguments.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="<verb>", dest="verb", required=True)
    who = _verb(verbs, "who", _who, "every rule that a value touches, and where it stands")
    who.add_argument("pair", metavar="KEY=VALUE", help="such as user=42")
    _verb(verbs, "limits", _limits, "all rules, with their limits and modes")
    _verb(verbs, "health", _health, "components, rules in force, and what was rejected")
    override = verbs.add_parser("override", help="other limits for a value: set, list, undo")
    kinds = override.add_subparsers(title="verbs", metavar="<verb>", required=True)
    put = _verb(kinds, "set", _override_set, "other limits for requests with a pair")
    put.add_argument("pair", metavar="KEY=VALUE", help="such as user=42")
    put.add_argument("limit", metavar="LIMIT", help="such as 100/minute, or x10 for ten times")
    _add_time(put)
    _verb(kinds, "list", _override_list, "the overrides in force")
    clear = _verb(kinds, "undo", _override_clear, "remove an override")
    clear.add_argument("pair", metavar="KEY=VALUE")
    switch = _verb(verbs, "switch", _switch, "a rule, or all rules: on, shadow or off")
    switch.add_argument("rule", metavar="RULE", help="a rule's id, a limit's name, or all")
    switch.add_argument("mode", metavar="on|shadow|off")
    _add_time(switch)
    changes = _verb(verbs, "changes", _changes, "what was changed, by whom, and what it was before")
    changes.add_argument("--limit", type=int, default=20, metavar="N", help="how many")
    undo = _verb(verbs, "undo", _undo, "take a change back")
    undo.add_argument("number", type=int, metavar="N", help="its number: see changes")
    undo.add_argument("--why", default="", metavar="TEXT", help="the reason")


def _verb(verbs: Any, name: str, run: Callable[..., int], help: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=help, description=help)
    add = parser.add_argument
    # fmt: off
    add("--admin", default=ADMIN, metavar="URL", help=f"the admin API (default: {ADMIN})")
    add("--token", metavar="TOKEN", help=f"the admin token; prefer {TOKEN}")
    add("--token-file", metavar="FILE", help="a file whose first token is the admin token")
    add("--json", action="store_true", help="the answer as JSON")
    # fmt: on
    parser.set_defaults(run=lambda arguments: _run(name, run, arguments), parser=parser)
    return parser


def _add_time(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--for", dest="lasts", metavar="TIME", help="how long, such as 1h")
    parser.add_argument("--why", default="", metavar="TEXT", help="the reason")


def _run(verb: str, run: Callable[..., int], arguments: argparse.Namespace) -> int:
    try:
        return run(Asked(AdminClient(arguments.admin, token_of(arguments)), arguments), arguments)
    except AdminUnavailable as error:
        return complain(f"admin {verb}", error, FAILED)
    except (PenstockError, ValueError, OSError) as error:
        return complain(f"admin {verb}", error, BAD_ARGUMENTS)


class Asked:
    """The API, and how to show its answers."""

    def __init__(self, client: AdminClient, arguments: argparse.Namespace) -> None:
        self._client = client
        self._json: bool = arguments.json
        self.paint = Paint(sys.stdout)

    def get(self, path: str, **query: Any) -> Any:
        return self._client.ask("GET", f"{path}?{urlencode(query)}" if query else path)

    def send(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        given = {name: value for name, value in (body or {}).items() if value not in (None, "")}
        where = f"{path}?{urlencode(query)}" if query else path
        return self._client.ask(method, where, given if body is not None else None)

    def show(self, answer: Any, lines: Callable[[], Sequence[str]]) -> int:
        print(json.dumps(answer) if self._json else "\n".join(lines()))
        return 0

    def table(self, head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
        if not rows:
            return ["none"]
        texts = [[_clean(cell) for cell in row] for row in rows]
        widths = [max(len(row[at]) for row in (head, *texts)) for at in range(len(head))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (list(head), *texts)
        ]
        return [self.paint.bold(lines[0]), *lines[1:]]


# Questions ---------------------------------------------------------------------------------


def _who(asked: Asked, arguments: argparse.Namespace) -> int:
    key, value = _pair(arguments.pair)
    answer = asked.get("/v1/who", key=key, value=value)
    rows = []
    for rule in answer["rules"]:
        if rule["needs"]:
            rows.append((rule["rule"], "", f"needs {', '.join(rule['needs'])}", "", rule["mode"]))
        for limit in rule["limits"]:
            standing = "allowed" if limit["allowed"] else "refused"
            after = limit["retry_after"]
            left = f"{limit['remaining']} left" if limit["allowed"] else _seconds(after)
            name = f"{limit['limit']}{' (override)' if limit['overridden'] else ''}"
            rows.append((rule["rule"], name, standing, left, rule["mode"]))
    head = ("RULE", "LIMIT", "NOW", "", "MODE")
    return asked.show(answer, lambda: asked.table(head, rows))


def _limits(asked: Asked, arguments: argparse.Namespace) -> int:
    answer = asked.get("/v1/rules")
    rows = [
        (rule["id"], " & ".join(each["limit"] for each in rule["limits"]) or "-", rule["mode"],
         rule["overrides"] or "", rule["place"])
        for domain in answer["domains"]
        for rule in domain["rules"]
    ]  # fmt: skip
    head = ("RULE", "LIMITS", "MODE", "OVERRIDES", "PLACE")
    return asked.show(answer, lambda: asked.table(head, rows))


def _health(asked: Asked, arguments: argparse.Namespace) -> int:
    answer = asked.get("/v1/health")
    rules = answer.get("rules") or {}
    rows = [*answer["components"].items(), *((k, v) for k, v in rules.items() if v is not None)]
    asked.show(answer, lambda: asked.table(("PART", "STATE"), rows))
    return 0 if answer["healthy"] and not rules.get("rejected") else FAILED


def _override_list(asked: Asked, arguments: argparse.Namespace) -> int:
    answer = asked.get("/v1/overrides")
    rows = [
        (f"{each['key']}={each['value']}", each["limit"] or f"x{each['factor']:g}",
         _seconds(each["left"]) if each["left"] is not None else "until it is removed")
        for each in answer["overrides"]
    ]  # fmt: skip
    return asked.show(answer, lambda: asked.table(("PAIR", "LIMIT", "LEFT"), rows))


def _changes(asked: Asked, arguments: argparse.Namespace) -> int:
    answer = asked.get("/v1/changes", limit=arguments.limit)
    rows = [
        (each["number"], _time(each["at"]), each["who"], each["what"], each["before"] or "-",
         each["after"] or "-", each["why"])
        for each in answer["changes"]
    ]  # fmt: skip
    head = ("N", "WHEN", "WHO", "WHAT", "BEFORE", "AFTER", "WHY")
    return asked.show(answer, lambda: asked.table(head, rows))


# Changes -----------------------------------------------------------------------------------


def _override_set(asked: Asked, arguments: argparse.Namespace) -> int:
    key, value = _pair(arguments.pair)
    body = {"key": key, "value": value, "lasts": arguments.lasts, "why": arguments.why}
    text = arguments.limit
    if text[:1] in "x*" or text[-1:] in "x*":
        body["factor"] = float(text.strip("x*"))
    else:
        body["limit"] = text
    answer = asked.send("PUT", "/v1/overrides", body)
    return asked.show(answer, lambda: [f"{arguments.pair}: {text} is in force"])


def _override_clear(asked: Asked, arguments: argparse.Namespace) -> int:
    key, value = _pair(arguments.pair)
    answer = asked.send("DELETE", "/v1/overrides", key=key, value=value)
    return asked.show(answer, lambda: [f"{arguments.pair}: the override is removed"])


def _switch(asked: Asked, arguments: argparse.Namespace) -> int:
    mode = MODES.get(arguments.mode)
    if mode is None:
        raise ValueError(f"a mode is on, shadow or off, not {arguments.mode!r:.50}")
    name = None if arguments.rule == "all" else arguments.rule
    if mode == "enforce" and arguments.lasts is None:
        query = {} if name is None else {"name": name}
        answer = asked.send("DELETE", "/v1/mode", **query)
    else:
        body = {"mode": mode, "name": name, "lasts": arguments.lasts, "why": arguments.why}
        answer = asked.send("PUT", "/v1/mode", body)
    until = f" for {arguments.lasts}" if arguments.lasts else ""
    return asked.show(answer, lambda: [f"{arguments.rule} is {arguments.mode}{until}"])


def _undo(asked: Asked, arguments: argparse.Namespace) -> int:
    answer = asked.send("POST", "/v1/undo", {"number": arguments.number, "why": arguments.why})
    return asked.show(answer, lambda: [f"change {arguments.number} is taken back"])


# Texts -------------------------------------------------------------------------------------


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"a pair is KEY=VALUE, such as user=42, not {text!r:.100}")
    return key, value


def _seconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.0f}s" if seconds >= 10 else f"{seconds:.1f}s"


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%m-%d %H:%M:%S")


def _clean(cell: object) -> str:
    """Values come from requests: no control characters in a terminal."""
    return "".join(each if each.isprintable() else "?" for each in str(cell))[:80]
