"""``penstock rules``: push, pull, diff, history and rollback of the rules of a fleet."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli.arguments import (
    FAILED,
    Commands,
    add_merge_domains,
    complain,
    counted,
    user_name,
)
from penstock.cli.paint import Paint
from penstock.clock import MONOTONIC
from penstock.control import rule_sets
from penstock.control.steps import run as run_flow
from penstock.durations import parse_duration
from penstock.errors import PenstockError, RevisionConflict, RulesError
from penstock.kv import KeyValue
from penstock.rules.walk import all_rules

if TYPE_CHECKING:
    from penstock.running.reports import Progress

CONTROL = "PENSTOCK_CONTROL"
DIFFERENT = 1


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "rules",
        help="push, pull, compare and roll back the rules of a fleet",
        description="The rules that all instances with the same --control have in force. Exit code"
        " 0: success; 1: refused, or different; 2: invalid arguments.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="<verb>", dest="verb", required=True)
    push = _verb(verbs, "push", _push, "check files of rules and put them in force everywhere")
    push.add_argument("files", nargs="+", metavar="PATH", help="a file or a folder of YAML")
    push.add_argument("--dry-run", action="store_true", help="check and compare, change nothing")
    add_merge_domains(push)
    _add_reason(push)
    _add_wait(push)
    pull = _verb(verbs, "pull", _pull, "write the rules in force to a folder")
    pull.add_argument("folder", metavar="FOLDER", help="files of the same names are replaced")
    pull.add_argument("--number", type=int, metavar="N", help="another set than the one in force")
    diff = _verb(verbs, "diff", _diff, "compare files with the rules in force")
    diff.add_argument("files", nargs="+", metavar="PATH", help="a file or a folder of YAML")
    _verb(verbs, "history", _history, "the sets of rules that were pushed")
    rollback = _verb(verbs, "rollback", _rollback, "put an earlier set in force again")
    rollback.set_defaults(dry_run=False)
    rollback.add_argument("number", type=int, metavar="N", help="its number: see history")
    _add_reason(rollback)
    _add_wait(rollback)


def _verb(verbs: Any, name: str, run: Callable[..., int], help: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=help, description=help)
    parser.add_argument(
        "--to", "--from", "--control", dest="control", default=os.environ.get(CONTROL, ""),
        metavar="URL", help=f"the store of the fleet: a redis:// URL or file:PATH ({CONTROL})",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the answer as JSON")
    parser.set_defaults(run=lambda arguments: _run(name, run, arguments), parser=parser)
    return parser


def _add_reason(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--why", default="", metavar="TEXT", help="the reason, for the history")
    parser.add_argument("--who", default="", metavar="NAME", help="the author (default: the user)")


def _add_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait", action="store_true", help="until all instances have it, or name those that do not"
    )
    parser.add_argument(
        "--timeout", default="30s", metavar="TIME", help="how long to wait (default: 30s)"
    )


def _run(verb: str, run: Callable[..., int], arguments: argparse.Namespace) -> int:
    name = f"rules {verb}"
    if not arguments.control:
        return complain(name, f"name the store of the fleet: --to redis://host:6379, or {CONTROL}")
    try:
        with closing(KeyValue(arguments.control)) as kv:
            return run(kv, arguments)
    except RulesError as error:
        problems = [str(problem) for problem in error.problems]
        red = Paint(sys.stdout).red("error")
        lines = [f"{red}   {problem}" for problem in problems]
        lines.append(f"{counted(len(problems), 'problem')}: nothing was changed")
        return _show(arguments, {"problems": problems}, lines, FAILED)
    except RevisionConflict:
        return complain(name, "somebody else has pushed meanwhile: compare, and push again", FAILED)
    except ValueError as error:
        return complain(name, error)
    except PenstockError as error:
        return complain(name, error, FAILED)


def _push(kv: KeyValue, arguments: argparse.Namespace) -> int:
    _timeout(arguments)  # an invalid one is refused before anything is pushed
    files = _read_files(arguments.files)
    rules = rule_sets.rules_of(files, merge_domains=arguments.merge_domains)
    current = run_flow(kv, rule_sets.current())
    before = {} if current is None else run_flow(kv, rule_sets.fetch(current))
    summary = _summary(before, files)
    count = counted(sum(1 for _ in all_rules(rules)), "rule")
    if current is not None and before == files:
        text = f"no change: {count}, set {current.number} is in force already"
        return _pushed(kv, arguments, current, text, changed=False)
    if arguments.dry_run:
        text = f"ok: {count} in {counted(len(files), 'file')}; {summary}; nothing was changed"
        return _show(arguments, {"changed": False, "summary": summary}, [text])
    pushed = run_flow(
        kv,
        rule_sets.push(
            files,
            summary=summary,
            expect=0 if current is None else current.revision,
            who=arguments.who or user_name(),
            why=arguments.why,
        ),
    )
    return _pushed(kv, arguments, pushed, f"set {pushed.number} is pushed: {count}; {summary}")


def _pull(kv: KeyValue, arguments: argparse.Namespace) -> int:
    info = _set_in_force(kv) if arguments.number is None else run_flow(
        kv, rule_sets.find(arguments.number)
    )  # fmt: skip
    files = run_flow(kv, rule_sets.fetch(info))
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / Path(name).name).write_bytes(data)
    text = f"set {info.number}: {counted(len(files), 'file')} in {folder}"
    return _show(arguments, {"number": info.number, "files": sorted(files)}, [text])


def _diff(kv: KeyValue, arguments: argparse.Namespace) -> int:
    current = run_flow(kv, rule_sets.current())
    before = {} if current is None else run_flow(kv, rule_sets.fetch(current))
    after = _read_files(arguments.files)
    paint = Paint(sys.stdout)
    colours = {"+": paint.green, "-": paint.red}
    lines, by_file = [], {}
    for name in sorted(before.keys() | after.keys()):
        old, new = (side.get(name, b"").decode("utf-8", "replace") for side in (before, after))
        titles = f"{name} (in force)", f"{name} (here)"
        differences = list(
            difflib.unified_diff(old.splitlines(), new.splitlines(), *titles, lineterm="")
        )
        lines += [colours.get(line[:1], str)(line) for line in differences]
        if old != new:
            by_file[name] = differences
    code = 0 if before == after else DIFFERENT
    return _show(arguments, {"different": before != after, "files": by_file}, lines, code)


def _history(kv: KeyValue, arguments: argparse.Namespace) -> int:
    sets = run_flow(kv, rule_sets.history())
    current = run_flow(kv, rule_sets.current())
    rows = [
        {
            "number": info.number,
            "in_force": current is not None and info.number == current.number,
            "at": datetime.fromtimestamp(info.at, UTC).isoformat(timespec="seconds"),
            "who": info.who,
            "why": info.why,
            "summary": info.summary,
        }
        for info in sets
    ]
    lines = [
        f"{'*' if row['in_force'] else ' '} {row['number']:>4}  {row['at']}  {row['who']:16.16}"
        f"  {row['summary']}" + (f"  ({row['why']})" if row["why"] else "")
        for row in rows
    ]
    return _show(arguments, rows, lines or ["no rules were pushed yet"])


def _rollback(kv: KeyValue, arguments: argparse.Namespace) -> int:
    _timeout(arguments)
    current = _set_in_force(kv)
    info = run_flow(kv, rule_sets.find(arguments.number))
    files = run_flow(kv, rule_sets.fetch(info))
    pushed = run_flow(
        kv,
        rule_sets.push(
            files,
            summary=f"back to set {info.number}",
            expect=current.revision,
            who=arguments.who or user_name(),
            why=arguments.why,
        ),
    )
    text = f"set {pushed.number} is pushed: the files of set {info.number}"
    return _pushed(kv, arguments, pushed, text)


# What they share ---------------------------------------------------------------------------


def _set_in_force(kv: KeyValue) -> rule_sets.RuleSetInfo:
    current = run_flow(kv, rule_sets.current())
    if current is None:
        raise RulesError("the store has no rules yet: use penstock rules push")
    return current


def _read_files(paths: list[str]) -> dict[str, bytes]:
    """By their names without folders, under which the instances report problems."""
    from penstock.rules.problems import Place, Problems
    from penstock.rules.reading.files import CannotRead, find_files, read_bytes

    problems = Problems()
    files: dict[str, bytes] = {}
    for path in find_files(paths, problems):
        place = Place(str(path), 1, 1)
        if path.name in files:
            problems.error(place, "two files have this name: rename one")
        try:
            files[path.name] = read_bytes(path)
        except CannotRead as error:
            problems.error(place, str(error))
    problems.raise_errors()
    return files


def _summary(before: dict[str, bytes], after: dict[str, bytes]) -> str:
    changed = [name for name in before.keys() & after.keys() if before[name] != after[name]]
    kinds = {
        "added": sorted(after.keys() - before.keys()),
        "changed": sorted(changed),
        "removed": sorted(before.keys() - after.keys()),
    }
    parts = [
        f"{', '.join(names[:5])}{' ...' if len(names) > 5 else ''} {kind}"
        for kind, names in kinds.items()
        if names
    ]
    return "; ".join(parts) or "the same files"


def _pushed(
    kv: KeyValue,
    arguments: argparse.Namespace,
    pushed: rule_sets.RuleSetInfo,
    text: str,
    changed: bool = True,
) -> int:
    """Say so, and with --wait, which instances have it."""
    answer: dict[str, Any] = {
        "number": pushed.number, "changed": changed, "summary": pushed.summary,
    }  # fmt: skip
    if not arguments.wait or arguments.dry_run:
        return _show(arguments, answer, [text])
    if not arguments.json:
        print(text, flush=True)  # before it waits
    progress = _wait(kv, arguments, pushed)
    answer["instances"] = {
        "in_force": progress.in_force, "rejected": progress.rejected, "waiting": progress.waiting,
    }  # fmt: skip
    if progress.complete:
        lines = [f"in force in {counted(progress.in_force, 'instance')}"]
        return _show(arguments, answer, lines)
    behind = {**progress.rejected, **progress.waiting}
    lines = [f"{name}: {reason}" for name, reason in sorted(behind.items())]
    if not (progress.in_force or behind):
        lines = ["no instance has reported: is penstock serve running with this --control?"]
    return _show(arguments, answer, lines, FAILED)


def _wait(
    kv: KeyValue, arguments: argparse.Namespace, pushed: rule_sets.RuleSetInfo
) -> Progress:  # fmt: skip
    from penstock.running.reports import read_reports, wait_for_set

    def digests() -> set[str]:
        """Of the set, or of a later one: an instance may skip one that was replaced at once."""
        current = run_flow(kv, rule_sets.current())
        if current is None or current.number < pushed.number:
            return {pushed.digest}
        return {pushed.digest, current.digest}

    read = partial(read_reports, arguments.control)
    return wait_for_set(read, pushed.number, digests, _timeout(arguments), MONOTONIC)


def _show(arguments: argparse.Namespace, answer: Any, lines: list[str], code: int = 0) -> int:
    if arguments.json:
        print(json.dumps(answer))
    elif lines:
        print("\n".join(lines))
    return code


def _timeout(arguments: argparse.Namespace) -> int:
    return parse_duration(arguments.timeout, "timeout")
