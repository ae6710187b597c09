"""Verbs that ask and change nothing."""

from __future__ import annotations

import argparse
from typing import Any

from penstock.cli.admin.asking import Asked, left, mode_text, moment, pair_of, seconds
from penstock.cli.arguments import FAILED

LISTS = {"allow": "entries", "deny": "entries"}


def who(asked: Asked, arguments: argparse.Namespace) -> int:
    key, value = pair_of(arguments.pair)
    for each in arguments.others:
        pair_of(each)
    answer = asked.get("/v1/who", key=key, value=value, others=",".join(arguments.others))
    head = ("RULE", "REQUEST", "LIMIT", "NOW", "SINCE", "TIMES", "WHY", "MODE")
    rows = [row for each in answer["rules"] for row in _who_rows(each)]
    return asked.show(answer, lambda: asked.table(head, rows))


def _who_rows(rule: dict[str, Any]) -> list[tuple[object, ...]]:
    """One for each limit of a rule; one if nothing is counted."""
    refused = rule["refused"]
    since = ("", "", rule["reason"] if rule["reason"] != "limit" else "")
    if refused is not None:
        since = (moment(refused["since"]), str(refused["count"]), refused["reason"])
    request = " ".join("=".join(pair) for pair in rule["pairs"])
    name, mode = rule["rule"] or "-", mode_text(rule["mode"])
    if rule["needs"]:
        return [(name, request, "", f"needs {', '.join(rule['needs'])}", "", "", "", mode)]
    rows: list[tuple[object, ...]] = []
    for limit in rule["limits"]:
        text = f"{limit['limit']}{' (override)' if limit['overridden'] else ''}"
        if limit["allowed"]:
            now = f"allowed, {limit['remaining']} left"
        else:
            after = limit["retry_after"]
            now = "refused always" if after is None else f"refused for {seconds(after)}"
        rows.append((name, request, text, now, *since, mode))
    return rows or [(name, request, "", "", *since, mode)]


def limits(asked: Asked, arguments: argparse.Namespace) -> int:
    answer = asked.get("/v1/rules")
    rows = [
        (rule["id"], " & ".join(each["limit"] for each in rule["limits"]) or "-",
         mode_text(rule["mode"]), rule["overrides"] or "", rule["place"])
        for domain in answer["domains"]
        for rule in domain["rules"]
    ]  # fmt: skip
    head = ("RULE", "LIMITS", "MODE", "OVERRIDES", "PLACE")
    return asked.show(answer, lambda: asked.table(head, rows))


def health(asked: Asked, arguments: argparse.Namespace) -> int:
    if asked.through_store:
        return instances(asked, arguments)
    answer = asked.get("/v1/health")
    rules = answer.get("rules") or {}
    rows = [*answer["components"].items(), *((k, v) for k, v in rules.items() if v is not None)]
    asked.show(answer, lambda: asked.table(("PART", "STATE"), rows))
    return 0 if answer["healthy"] and not rules.get("rejected") else FAILED


def instances(asked: Asked, arguments: argparse.Namespace) -> int:
    """Exit code 1 if one rejected rules, or has others than the rest."""
    answer = asked.get("/v1/instances")
    found = answer["instances"]
    newest = max((each["number"] or 0 for each in found.values()), default=0)
    rows = []
    for name, each in sorted(found.items()):
        state = "up"
        if each["rejected"]:
            state = "rejected"
        elif (each["number"] or 0) < newest:
            state = "behind"
        number = "files" if each["number"] is None else f"set {each['number']}"
        rows.append((name, state, number, each["workers"], moment(each["since"]),
                     each["rejected"] or ""))  # fmt: skip
    head = ("INSTANCE", "STATE", "RULES", "WORKERS", "SINCE", "REJECTED")
    asked.show(answer, lambda: asked.table(head, rows))
    return 0 if rows and all(row[1] == "up" for row in rows) else FAILED


def switches(asked: Asked, arguments: argparse.Namespace) -> int:
    """Everything that an operator has changed and that is in force now."""
    answer = asked.get("/v1/switches")
    notes = answer.get("notes", {})
    rows: list[tuple[object, ...]] = []
    for name, mode in [("", answer["mode"]), *answer["modes"].items()]:
        if name or mode != "enforce" or answer["mode_left"] is not None:
            time = answer["modes_left"][name] if name else answer["mode_left"]
            rows.append((name or "all", mode_text(mode), left(time), *_note(notes.get(name, {}))))
    rows += [_override_row(each) for each in answer["overrides"]]
    for which in LISTS:
        for each in answer[which]:
            text = f"{each['key']}={each['entry']}"
            rows.append((text, f"{which} list", left(each["left"]), *_note(each)))
    rows += [
        (f"{each['key']}={each['value']}", "logged", left(each["left"]), *_note(each))
        for each in answer["logged"]
    ]
    head = ("WHAT", "STATE", "LEFT", "WHO", "WHEN", "WHY")
    return asked.show(answer, lambda: asked.table(head, rows))


def overrides(asked: Asked, arguments: argparse.Namespace) -> int:
    answer = asked.get("/v1/overrides")
    rows = [_override_row(each) for each in answer["overrides"]]
    head = ("PAIR", "LIMIT", "LEFT", "WHO", "WHEN", "WHY")
    return asked.show(answer, lambda: asked.table(head, rows))


def _override_row(each: dict[str, Any]) -> tuple[object, ...]:
    limit = each["limit"] or f"x{each['factor']:g}"
    return f"{each['key']}={each['value']}", limit, left(each["left"]), *_note(each)


def entries(asked: Asked, arguments: argparse.Namespace) -> int:
    """Of the list that ``arguments.which`` names."""
    answer = asked.get(f"/v1/{arguments.which}")
    rows = [
        (f"{each['key']}={each['entry']}", left(each["left"]), *_note(each))
        for each in answer["entries"]
    ]
    head = ("ENTRY", "LEFT", "WHO", "WHEN", "WHY")
    return asked.show(answer, lambda: asked.table(head, rows))


def _note(row: dict[str, Any]) -> tuple[str, str, str]:
    return row.get("who", ""), moment(row.get("at")), row.get("why", "")


def changes(asked: Asked, arguments: argparse.Namespace) -> int:
    answer = asked.get("/v1/changes", limit=arguments.limit)
    rows = [
        (each["number"], moment(each["at"]), each["who"], each["what"], each["before"] or "-",
         _after(each), f"undo {each['number']}" if each["can_undo"] else "-", each["why"])
        for each in answer["changes"]
    ]  # fmt: skip
    head = ("N", "WHEN", "WHO", "WHAT", "BEFORE", "AFTER", "UNDO", "WHY")
    return asked.show(answer, lambda: asked.table(head, rows))


def _after(change: dict[str, Any]) -> str:
    lasts = "" if change["lasts"] is None else f" for {seconds(change['lasts'])}"
    return f"{change['after'] or '-'}{lasts}"


def counters(asked: Asked, arguments: argparse.Namespace) -> int:
    answer = asked.get(
        "/v1/counters", descriptor=arguments.descriptors, domain=arguments.domain,
        limit=arguments.limit,
    )  # fmt: skip
    return asked.show(answer, lambda: counter_table(asked, answer["counters"]))


def counter_table(asked: Asked, counted: list[dict[str, Any]]) -> list[str]:
    rows: list[tuple[object, ...]] = []
    for each in counted:
        request = " ".join("=".join(pair) for pair in each["descriptor"])
        if not each["limits"]:
            rows.append((request, each["rule"] or "-", "", each["reason"], ""))
        for limit in each["limits"]:
            now = "allowed" if limit["allowed"] else "refused"
            rows.append((request, each["rule"], limit["limit"], f"{now}, {limit['remaining']} left",
                         f"full in {seconds(limit['reset_after'])}"))  # fmt: skip
    return asked.table(("REQUEST", "RULE", "LIMIT", "NOW", ""), rows)


def top(asked: Asked, arguments: argparse.Namespace) -> int:
    answer = asked.get("/v1/top", n=arguments.n)
    rules = [(row["rule"], row["allowed"], row["refused"], row["near_limit"], row["shadowed"])
             for row in answer["rules"]]  # fmt: skip
    keys = [(row["key"], row["refused"]) for row in answer["keys"]]
    return asked.show(
        answer,
        lambda: [
            *asked.table(("RULE", "ALLOWED", "REFUSED", "NEAR LIMIT", "SHADOWED"), rules),
            "",
            *asked.table(("MOST REFUSED", "TIMES"), keys),
        ],
    )


def facts(asked: Asked, arguments: argparse.Namespace) -> int:
    """Of an endpoint that ``arguments.path`` names: a name and a value on each line."""
    answer = asked.get(arguments.path)
    rows: list[tuple[str, object]] = []
    for name, value in answer.items():
        if isinstance(value, dict):
            rows += [(f"{name}.{each}", text) for each, text in value.items()]
        elif isinstance(value, list):
            rows.append((name, ", ".join(map(str, value)) or "none"))
        else:
            rows.append((name, "-" if value is None else value))
    return asked.show(answer, lambda: asked.table(("NAME", "VALUE"), rows))


def level(asked: Asked, arguments: argparse.Namespace) -> int:
    if arguments.level is None:
        answer = asked.get("/v1/log-level")
        return asked.show(answer, lambda: [answer["level"]])
    answer = asked.put("/v1/log-level", level=arguments.level)
    return asked.show(answer, lambda: [f"the log level is {answer['after']}"])


def get(asked: Asked, arguments: argparse.Namespace) -> int:
    """Any endpoint, as it answers."""
    print(asked.text("/" + arguments.path.lstrip("/")), end="")
    return 0
