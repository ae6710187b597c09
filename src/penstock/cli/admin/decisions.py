"""``penstock admin log``: decisions on some requests, live."""

from __future__ import annotations

import argparse
import json
from typing import Any

from penstock.cli.admin.asking import Asked, clean, moment, pair_of, seconds
from penstock.clock import MONOTONIC, Clock

POLL = 0.5  # seconds
DEFAULT = "10m"


def on(asked: Asked, arguments: argparse.Namespace) -> int:
    pairs = [pair_of(text) for text in arguments.match]
    if arguments.follow and asked.through_store:
        raise ValueError("--follow asks an instance: use --admin URL instead of --control")
    answers = [
        asked.put("/v1/log", key=key, value=value, lasts=arguments.lasts, why=arguments.why)
        for key, value in pairs
    ]
    answer = answers[0] if len(answers) == 1 else answers
    texts = [
        f"decisions on requests with {text} are logged for {arguments.lasts}"
        for text in arguments.match
    ]
    asked.show(answer, lambda: texts)
    return _follow(asked, arguments.match) if arguments.follow else 0


def off(asked: Asked, arguments: argparse.Namespace) -> int:
    """Without --match, all of them."""
    logged = [f"{each['key']}={each['value']}" for each in asked.get("/v1/log")["logged"]]
    wanted = arguments.match or logged
    answers = []
    for text in wanted:
        key, value = pair_of(text)
        answers.append(asked.delete("/v1/log", key=key, value=value, why=arguments.why))
    texts = [f"decisions on requests with {text} are no longer logged" for text in wanted]
    return asked.show(answers, lambda: texts or ["nothing was logged"])


def show(asked: Asked, arguments: argparse.Namespace) -> int:
    answer = asked.get("/v1/log")
    if arguments.follow:
        return _follow(asked, [])
    rows = [
        (f"{each['key']}={each['value']}", seconds(each["left"]), each.get("who", ""),
         each.get("why", ""))
        for each in answer["logged"]
    ]  # fmt: skip
    table = asked.table(("LOGGED", "LEFT", "WHO", "WHY"), rows)
    return asked.show(answer, lambda: [*table, *(_line(asked, row) for row in answer["decisions"])])


def _follow(asked: Asked, match: list[str], clock: Clock = MONOTONIC) -> int:
    """Until nothing is logged any more, or Ctrl-C."""
    after: dict[str, int] = {}
    while True:
        answer = asked.get("/v1/log", after=",".join(f"{w}:{n}" for w, n in after.items()))
        for row in answer["decisions"]:
            after[row["worker"]] = max(row["number"], after.get(row["worker"], 0))
            print(json.dumps(row) if asked.json else _line(asked, row), flush=True)
        logged = [f"{each['key']}={each['value']}" for each in answer["logged"]]
        if not (set(match) & set(logged) if match else logged):
            return 0
        clock.sleep(POLL)


def _line(asked: Asked, row: dict[str, Any]) -> str:
    decision = asked.paint.outcome(row["decision"] == "allowed")
    parts = [moment(row["at"]), decision, " & ".join(row["keys"])]
    if "rule" in row:
        parts.append(row["rule"])
    if "limit" in row:
        parts.append(f"{row['limit']}, {row['remaining']} left")
    if row.get("retry_after") is not None:
        parts.append(f"again in {seconds(row['retry_after'])}")
    if row["decision"] == "refused":
        parts.append(f"({row['reason']})")
    head, *rest = parts
    return "  ".join([head, rest[0], *map(clean, rest[1:])])
