"""Verbs that change something."""

from __future__ import annotations

import argparse

from penstock.cli.admin.asking import Asked, factor_of, mode_text, pair_of
from penstock.cli.admin.questions import counter_table
from penstock.rules.problems import nearest

MODES = {"on": "enforce", "enforce": "enforce", "shadow": "shadow", "off": "off"}


def set_override(asked: Asked, arguments: argparse.Namespace) -> int:
    key, value = pair_of(arguments.pair)
    text = arguments.limit
    factor = factor_of(text)
    answer = asked.put(
        "/v1/overrides", key=key, value=value, factor=factor,
        limit=text if factor is None else None, lasts=arguments.lasts, why=arguments.why,
        expect=arguments.expect,
    )  # fmt: skip
    return asked.show(
        answer, lambda: [f"{arguments.pair}: {text} {asked.in_force}{_for(arguments)}"]
    )


def undo_override(asked: Asked, arguments: argparse.Namespace) -> int:
    key, value = pair_of(arguments.pair)
    answer = asked.delete(
        "/v1/overrides", key=key, value=value, why=arguments.why, expect=arguments.expect
    )
    return asked.show(answer, lambda: [f"{arguments.pair}: the override is removed"])


def switch(asked: Asked, arguments: argparse.Namespace) -> int:
    mode = MODES.get(arguments.mode)
    if mode is None:
        hint = nearest(arguments.mode, list(MODES))
        raise ValueError(f"a mode is on, shadow or off, not {arguments.mode!r:.50}{hint}")
    name = None if arguments.rule == "all" else arguments.rule
    why, expect = arguments.why, arguments.expect
    if mode == "enforce" and arguments.lasts is None:
        answer = asked.delete("/v1/mode", name=name, why=why, expect=expect)
    else:
        answer = asked.put(
            "/v1/mode", mode=mode, name=name, lasts=arguments.lasts, why=why, expect=expect
        )
    in_force = mode_text(answer["in_force"])
    return asked.show(answer, lambda: [f"{arguments.rule} is {in_force}{_for(arguments)}"])


def add_entry(asked: Asked, arguments: argparse.Namespace) -> int:
    key, entry = pair_of(arguments.pair)
    answer = asked.put(
        f"/v1/{arguments.which}", key=key, entry=entry, lasts=arguments.lasts, why=arguments.why,
        expect=arguments.expect,
    )  # fmt: skip
    text = f"{arguments.pair} is on the {arguments.which} list{_for(arguments)}"
    return asked.show(answer, lambda: [text])


def remove_entry(asked: Asked, arguments: argparse.Namespace) -> int:
    key, entry = pair_of(arguments.pair)
    answer = asked.delete(
        f"/v1/{arguments.which}", key=key, entry=entry, why=arguments.why, expect=arguments.expect
    )
    text = f"{arguments.pair} is no longer on the {arguments.which} list"
    return asked.show(answer, lambda: [text])


def undo(asked: Asked, arguments: argparse.Namespace) -> int:
    answer = asked.post("/v1/undo", number=arguments.number, why=arguments.why)
    before, after = answer["before"], answer["after"]
    now = f"{before} is removed" if after is None else f"{after} is there again"
    return asked.show(answer, lambda: [f"change {arguments.number} is taken back: {now}"])


def reset(asked: Asked, arguments: argparse.Namespace) -> int:
    answer = asked.post("/v1/counters/reset", **_counters(arguments))
    return asked.show(answer, lambda: counter_table(asked, answer["after"]))


def refund(asked: Asked, arguments: argparse.Namespace) -> int:
    answer = asked.post("/v1/counters/refund", **_counters(arguments), hits=arguments.hits)
    return asked.show(answer, lambda: counter_table(asked, answer["after"]))


def reload(asked: Asked, arguments: argparse.Namespace) -> int:
    answer = asked.post("/v1/rules/reload")
    domains = ", ".join(answer["domains"])
    return asked.show(answer, lambda: [f"{answer['rules']} rules in {domains} are in force"])


def _counters(arguments: argparse.Namespace) -> dict[str, object]:
    from penstock.admin.reading import pairs_in

    descriptors = [pairs_in(text) for text in arguments.descriptors]
    return {"descriptors": descriptors, "domain": arguments.domain, "limit": arguments.limit}


def _for(arguments: argparse.Namespace) -> str:
    return f" for {arguments.lasts}" if arguments.lasts else ""
