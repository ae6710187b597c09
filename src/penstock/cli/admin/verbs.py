"""The verbs of ``penstock admin``, and their arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from penstock.admin.log_level import LEVELS
from penstock.cli.admin import changing, decisions, questions
from penstock.cli.admin.asking import Asked, Client
from penstock.cli.admin.fleet import StoreClient
from penstock.cli.arguments import BAD_ARGUMENTS, FAILED, Commands, complain, user_name
from penstock.cli.top_source import ADMIN, TOKEN, AdminClient, AdminUnavailable, token_of
from penstock.errors import PenstockError

Run = Callable[[Asked, argparse.Namespace], int]


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "admin",
        help="ask and change a running service: who, limits, override, switch, changes, undo",
        description="Asks the admin API of an instance. What it changes is in force in all"
        " instances that share --control, and with --control it is changed there, without an"
        " instance. Exit code 0: success; 1: refused, or no answer; 2: invalid arguments.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="<verb>", dest="verb", required=True)
    _add_questions(verbs)
    _add_switches(verbs)
    _add_counters(verbs)
    _add_log(verbs)


def _add_questions(verbs: Any) -> None:
    add = _verb(
        verbs, "who", questions.who,
        "every rule that a value touches: where it stands, since when it is refused, and why",
    )  # fmt: skip
    add.add_argument("pair", metavar="KEY=VALUE", help="such as user=42")
    add.add_argument("others", nargs="*", metavar="KEY=VALUE", help="what it comes with")
    _verb(verbs, "limits", questions.limits, "all rules, with their limits and modes")
    _verb(verbs, "health", questions.health, "components, rules in force, what was rejected")
    _verb(verbs, "instances", questions.instances, "all instances of the fleet, and their rules")
    _verb(verbs, "switches", questions.switches, "all that is switched, with the time left")
    changes = _verb(
        verbs, "changes", questions.changes, "what was changed, by whom, how to undo it"
    )
    changes.add_argument("--limit", type=int, default=20, metavar="N", help="how many")
    undo = _verb(verbs, "undo", changing.undo, "take a change back")
    undo.add_argument("number", type=int, metavar="N", help="its number: see changes")
    undo.add_argument("--why", default="", metavar="TEXT", help="the reason")
    top = _verb(verbs, "top", questions.top, "busiest rules and most refused keys")
    top.add_argument("-n", type=int, default=10, metavar="N", help="how many of each")
    _verb(verbs, "reload", changing.reload, "read the files of rules again")
    for name, path, help in (
        ("version", "/v1/version", "version, wire, store and uptime"),
        ("store", "/v1/store", "the store, and what its leases have done"),
        ("leases", "/v1/leases", "who holds how much of leased keys"),
    ):
        _verb(verbs, name, questions.facts, help).set_defaults(path=path)
    quotas = _verb(verbs, "quotas", questions.facts, "quotas that Envoys were assigned (RLQS)")
    quotas.set_defaults(path="/v1/quotas")
    level = _verb(verbs, "log-level", questions.level, "show or set how much is logged")
    level.add_argument("level", nargs="?", choices=LEVELS, metavar="LEVEL", help=", ".join(LEVELS))
    get = _verb(
        verbs, "get", questions.get, "any endpoint, as it answers: metrics, stats, rlconfig"
    )
    get.add_argument("path", metavar="PATH", help="such as /metrics; / lists all of them")


def _add_switches(verbs: Any) -> None:
    kinds = _group(verbs, "override", "other limits for a value: set, list, undo")
    put = _verb(kinds, "set", changing.set_override, "other limits for requests with a pair")
    put.add_argument("pair", metavar="KEY=VALUE", help="such as user=42")
    put.add_argument("limit", metavar="LIMIT", help="such as 100/minute, or x10 for ten times")
    _add_change(put, lasts=True)
    _verb(kinds, "list", questions.overrides, "the overrides in force")
    clear = _verb(kinds, "undo", changing.undo_override, "remove an override")
    clear.add_argument("pair", metavar="KEY=VALUE")
    _add_change(clear)
    switch = _verb(verbs, "switch", changing.switch, "a rule, or all rules: on, shadow or off")
    switch.add_argument("rule", metavar="RULE", help="a rule's id, a limit's name, or all")
    switch.add_argument("mode", metavar="on|shadow|off")
    _add_change(switch, lasts=True)
    for which, help in (
        ("allow", "requests that are never counted: add, list, remove"),
        ("deny", "requests that are always refused: add, list, remove"),
    ):
        kinds = _group(verbs, which, help)
        add = _verb(
            kinds, "add", changing.add_entry, f"put a value or a network on the {which} list"
        )
        add.add_argument("pair", metavar="KEY=ENTRY", help="such as ip=192.0.2.0/24")
        _add_change(add, lasts=True)
        listed = _verb(kinds, "list", questions.entries, "what operators have added")
        remove = _verb(kinds, "remove", changing.remove_entry, "take it off again")
        remove.add_argument("pair", metavar="KEY=ENTRY")
        _add_change(remove)
        for each in (add, listed, remove):
            each.set_defaults(which=which)


def _add_counters(verbs: Any) -> None:
    for name, run, help in (
        ("counters", questions.counters, "what requests have left; nothing is consumed"),
        ("reset", changing.reset, "forget what was counted: the next request has full limits"),
        ("refund", changing.refund, "give back what requests have taken"),
    ):
        verb = _verb(verbs, name, run, help)
        verb.add_argument("descriptors", nargs="+", metavar="KEY=VALUE,...",
                          help="a descriptor, such as plan=free,user=42")  # fmt: skip
        verb.add_argument("--domain", metavar="NAME", help="if the rules have several")
        verb.add_argument("--limit", metavar="NAME", help="only the limit with this name")
        if name == "refund":
            verb.add_argument(
                "--hits", type=int, default=1, metavar="N", help="of how many requests"
            )


def _add_log(verbs: Any) -> None:
    kinds = _group(verbs, "log", "log the decisions on some requests, live: on, off, show")
    match: Any = {"action": "append", "metavar": "KEY=VALUE"}
    on = _verb(kinds, "on", decisions.on, "log decisions on requests with a pair, for a while")
    on.add_argument("--match", required=True, help="such as user=42; may be repeated", **match)
    on.add_argument("--for", dest="lasts", default=decisions.DEFAULT, metavar="TIME",
                    help=f"how long, at most 24h (default: {decisions.DEFAULT})")  # fmt: skip
    on.add_argument("--why", default="", metavar="TEXT", help="the reason")
    on.add_argument("--follow", action="store_true", help="print them here until it ends")
    off = _verb(kinds, "off", decisions.off, "stop logging them")
    off.add_argument("--match", default=[], help="only this one (default: all)", **match)
    off.add_argument("--why", default="", metavar="TEXT", help="the reason")
    show = _verb(kinds, "show", decisions.show, "what is logged, and the last decisions")
    show.add_argument("--follow", action="store_true", help="go on until nothing is logged")


def _group(verbs: Any, name: str, help: str) -> Any:
    parser = verbs.add_parser(name, help=help, description=help)
    return parser.add_subparsers(title="verbs", metavar="<verb>", dest="kind", required=True)


def _verb(verbs: Any, name: str, run: Run, help: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=help, description=help)
    add = parser.add_argument
    # fmt: off
    add("--admin", default=ADMIN, metavar="URL", help=f"the admin API (default: {ADMIN})")
    add("--control", default="", metavar="URL",
        help="the store of the fleet instead of an instance, as of penstock serve --control")
    add("--token", metavar="TOKEN", help=f"the admin token; prefer {TOKEN}")
    add("--token-file", metavar="FILE", help="a file whose first token is the admin token")
    add("--json", action="store_true", help="the answer as JSON")
    # fmt: on
    parser.set_defaults(run=lambda arguments: _run(run, arguments), parser=parser)
    return parser


def _add_change(parser: argparse.ArgumentParser, lasts: bool = False) -> None:
    if lasts:
        parser.add_argument("--for", dest="lasts", metavar="TIME", help="how long, such as 1h")
    parser.add_argument("--why", default="", metavar="TEXT", help="the reason")
    parser.add_argument(
        "--expect", type=int, metavar="N",
        help="only if N is the number of its last change; 0: if it is not set",
    )  # fmt: skip


def _run(run: Run, arguments: argparse.Namespace) -> int:
    command = arguments.parser.prog.removeprefix("penstock ")
    try:
        client: Client
        if arguments.control:
            client = StoreClient(arguments.control, user_name())
        else:
            client = AdminClient(arguments.admin, token_of(arguments))
        return run(Asked(client, arguments), arguments)
    except AdminUnavailable as error:
        return complain(command, error, FAILED)
    except (PenstockError, ValueError, OSError) as error:
        return complain(command, error, BAD_ARGUMENTS)
