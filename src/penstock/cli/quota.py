"""``penstock quota``: accounts, balances and history of a ledger."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from typing import Any

from penstock.cli import quota_view as view
from penstock.cli.arguments import BAD_ARGUMENTS, FAILED, Commands, complain, counted
from penstock.cli.paint import Paint
from penstock.quota import InvalidQuota, Ledger, QuotaError, UnknownAccount
from penstock.quota.plans import read_plans
from penstock.rules.problems import nearest

LEDGER = "PENSTOCK_LEDGER"


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "quota",
        help="accounts, balances and history of a ledger",
        description="Reads and changes a ledger of quotas. Exit code 0: success; 1: the ledger"
        " refused, does not answer or does not agree with itself; 2: invalid arguments.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="<verb>", dest="verb")

    def add(
        name: str, run: Callable[[Ledger, argparse.Namespace], int], help: str
    ) -> argparse.ArgumentParser:
        verb: argparse.ArgumentParser = verbs.add_parser(name, help=help, description=help)
        verb.add_argument(
            "--ledger",
            metavar="URL",
            help="sqlite:///quota.db or postgresql://user@host/database; a password is visible in"
            f" the list of processes: prefer {LEDGER}",
        )
        verb.add_argument("--json", action="store_true", help="print JSON")
        verb.set_defaults(run=_run, verb_run=run, parser=verb)
        return verb

    def changes(verb: argparse.ArgumentParser, ref: bool = True) -> None:
        if ref:
            verb.add_argument("--meter", required=True, help="what is counted, such as tokens")
            verb.add_argument(
                "--ref", required=True, help="a name of your own: the same one again does nothing"
            )
        verb.add_argument("--note", default="", help="for the history")
        verb.add_argument("--who", default=None, help="for the history (default: you)")

    verb = add("open", _open, "open an account")
    verb.add_argument("account")
    verb.add_argument("--plan", help="the name of a plan")
    verb.add_argument("--tz", default="UTC", help="its time zone, such as Asia/Taipei")
    verb.add_argument("--anchor", default="1", help="the day on which its periods begin, or a date")
    verb.add_argument("--prorate", action="store_true", help="grant the rest of the period only")

    verb = add("balance", _balance, "show what an account has, or all accounts")
    verb.add_argument("account", nargs="?")

    verb = add("grant", _grant, "add units that were bought or given")
    verb.add_argument("account")
    verb.add_argument("amount", type=_number)
    verb.add_argument("--expires", help="90d, 2026-12-31 or a time")
    verb.add_argument("--promo", action="store_true", help="given, not bought")
    changes(verb)

    verb = add("adjust", _adjust, "correct a balance, up or down (for less: -- -500)")
    verb.add_argument("account")
    verb.add_argument("amount", type=_number)
    changes(verb)

    verb = add("change-plan", _change_plan, "change the plan of an account")
    verb.add_argument("account")
    verb.add_argument("plan")
    verb.add_argument("--when", choices=("now", "next-period"), help="default: upgrades now")
    verb.add_argument("--prorate", action="store_true", help="count the rest of the period only")
    verb.add_argument("--reset", action="store_true", help="begin a new period today")
    changes(verb, ref=False)

    verb = add("history", _history, "show what happened to an account")
    verb.add_argument("account")
    verb.add_argument("--meter", help="of this meter only")
    verb.add_argument("--after", type=_number, default=0, metavar="SEQ", help="after this entry")
    verb.add_argument(
        "--last", type=_number, default=50, metavar="N", help="how many (default: 50)"
    )

    verb = add("export", _export, "write the history to stdout")
    verb.add_argument("account", nargs="?")
    verb.add_argument("--format", default="jsonl", choices=("jsonl", "csv"))
    verb.add_argument("--after", type=_number, default=0, metavar="SEQ", help="after this entry")

    verb = add("holds", _holds, "show units that are set aside and not settled yet")
    verb.add_argument("account", nargs="?")

    verb = add("write-off", _write_off, "close a hold of a lost holder: what it holds was spent")
    verb.add_argument("account")
    verb.add_argument("hold", help="its id, as in holds and reconcile")
    verb.add_argument(
        "--give-back", action="store_true", help="nothing of it was spent: free it instead"
    )
    changes(verb, ref=False)

    verb = add("plans", _plans, "show all plans")
    verb.add_argument("--from", dest="file", metavar="FILE", help="first add those of a YAML file")
    add("reconcile", _reconcile, "add the history up again and compare")


def _number(text: str) -> int:
    try:
        return int(text.replace("_", "").replace(",", ""))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None


def _run(arguments: argparse.Namespace) -> int:
    command = f"quota {arguments.verb}"
    url = arguments.ledger or os.environ.get(LEDGER)
    if not url:
        return complain(command, f"which ledger? --ledger sqlite:///quota.db, or {LEDGER}")
    try:
        with Ledger(url) as ledger:
            try:
                code: int = arguments.verb_run(ledger, arguments)
                return code
            except UnknownAccount as error:
                hint = nearest(error.account, [account.name for account in ledger.accounts()])
                problem = f"there is no account {error.account!r}{hint}"
                opening = f"penstock quota open {shlex.quote(error.account)}"
                return complain(command, f"{problem}: to open it, {opening}", FAILED)
    except QuotaError as error:
        return complain(
            command, error, BAD_ARGUMENTS if isinstance(error, InvalidQuota) else FAILED
        )


def _who(arguments: argparse.Namespace) -> str:
    if arguments.who is not None:
        return str(arguments.who)
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no name for this user
        return f"uid {os.getuid()}"


def _print_json(value: object) -> None:
    print(json.dumps(view.plain(value), ensure_ascii=False, indent=2))


def _open(ledger: Ledger, arguments: argparse.Namespace) -> int:
    anchor = int(arguments.anchor) if arguments.anchor.isdigit() else arguments.anchor
    ledger.open(
        arguments.account, arguments.plan, arguments.tz, anchor=anchor, prorate=arguments.prorate
    )
    return _balance(ledger, arguments)


def _balance(ledger: Ledger, arguments: argparse.Namespace) -> int:
    if arguments.account is None:
        balances = ledger.balances()
        if arguments.json:
            _print_json(balances)
        else:
            print(view.accounts(balances), end="")
        return 0
    balance = ledger.balance(arguments.account)
    if arguments.json:
        _print_json(balance)
    else:
        print(view.balance(balance, Paint(sys.stdout)), end="")
    return 0


def _grant(ledger: Ledger, arguments: argparse.Namespace) -> int:
    ledger.grant(
        arguments.account, arguments.amount, meter=arguments.meter, ref=arguments.ref,
        expires=arguments.expires, kind="promo" if arguments.promo else "top-up",
        who=_who(arguments), note=arguments.note,
    )  # fmt: skip
    return _balance(ledger, arguments)


def _adjust(ledger: Ledger, arguments: argparse.Namespace) -> int:
    ledger.adjust(
        arguments.account, arguments.amount, meter=arguments.meter, ref=arguments.ref,
        who=_who(arguments), note=arguments.note,
    )  # fmt: skip
    return _balance(ledger, arguments)


def _change_plan(ledger: Ledger, arguments: argparse.Namespace) -> int:
    ledger.change_plan(
        arguments.account, arguments.plan, when=arguments.when, prorate=arguments.prorate,
        reset=arguments.reset, who=_who(arguments), note=arguments.note,
    )  # fmt: skip
    return _balance(ledger, arguments)


def _history(ledger: Ledger, arguments: argparse.Namespace) -> int:
    tz = ledger.account(arguments.account).tz
    entries = list(ledger.entries(arguments.account, meter=arguments.meter, after=arguments.after))
    shown = entries[-arguments.last :] if arguments.last else []
    if arguments.json:
        _print_json(shown)
        return 0
    print(view.history(shown, tz), end="")
    if len(shown) < len(entries):
        print(f"{len(entries) - len(shown):,} older: --last N")
    return 0


def _export(ledger: Ledger, arguments: argparse.Namespace) -> int:
    if arguments.account is not None:
        ledger.account(arguments.account)
    ledger.export(
        sys.stdout, format=arguments.format, after=arguments.after, account=arguments.account
    )
    return 0


def _holds(ledger: Ledger, arguments: argparse.Namespace) -> int:
    if arguments.account is not None:
        ledger.account(arguments.account)
    holds = ledger.holds(arguments.account)
    if arguments.json:
        _print_json(holds)
        return 0
    zones = {account.name: account.tz for account in ledger.accounts()}
    print(view.holds(holds, zones), end="")
    return 0


def _write_off(ledger: Ledger, arguments: argparse.Namespace) -> int:
    before = {hold.id: hold for hold in ledger.holds(arguments.account)}.get(arguments.hold)
    settlement = ledger.write_off(
        arguments.account, arguments.hold, spent=not arguments.give_back, who=_who(arguments),
        note=arguments.note,
    )  # fmt: skip
    if arguments.json:
        _print_json(settlement)
        return 0
    if before is None:
        print(f"{arguments.hold} was closed before: {settlement.settled:,} settled")
        return 0
    outcome = "given back" if arguments.give_back else "spent"
    print(f"{arguments.hold} is closed: {before.held:,} {before.meter} {outcome}")
    return 0


def _plans(ledger: Ledger, arguments: argparse.Namespace) -> int:
    if arguments.file is not None:
        ledger.define_plans(_read_plans(arguments.file))
    plans = ledger.plans()
    if arguments.json:
        _print_json({name: plan.definition() for name, plan in plans.items()})
    else:
        print(view.plans(plans), end="")
    return 0


def _read_plans(file: str) -> Mapping[str, Any]:
    """The plans in a file of their own, or under ``plans``."""
    import yaml  # imported here: an extra

    try:
        with open(file, encoding="utf-8") as text:
            content = yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InvalidQuota(f"{file}: {error}") from None
    if isinstance(content, dict) and isinstance(content.get("plans"), dict):
        content = content["plans"]
    try:
        read_plans(content)
    except InvalidQuota as error:
        raise InvalidQuota(f"{file}: {error}") from None
    plans: Mapping[str, Any] = content
    return plans


def _reconcile(ledger: Ledger, arguments: argparse.Namespace) -> int:
    result = ledger.reconcile()
    if arguments.json:
        _print_json({"ok": bool(result), **view.plain(result)})  # type: ignore[dict-item]
        return 0 if result else FAILED
    paint = Paint(sys.stdout)
    for difference in result.differences:
        print(f"{paint.red('differs')} {difference}")
    for hold in result.stale:
        print(
            f"{paint.yellow('stale')}   {hold.account!r} {hold.meter}: {hold.held:,} held by"
            f" {hold.id} since {hold.created:%Y-%m-%d %H:%M} UTC"
        )
    if result.stale:
        print("for those whose holder will not come back: penstock quota write-off ACCOUNT ID")
    counts = f"{counted(result.accounts, 'account', ',')}, {result.entries:,} entries"
    if result:
        print(f"{paint.green('ok')}: {counts}")
        return 0
    print(f"{counted(len(result.differences), 'difference')} in {counts}")
    return FAILED
