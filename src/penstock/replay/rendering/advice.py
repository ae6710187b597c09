"""A recommendation as sections of text and tables."""

from __future__ import annotations

from penstock.durations import format_period
from penstock.replay.behaviour import describe
from penstock.replay.recommending.recommendation import (
    Consequence,
    Recommendation,
    WindowChoice,
)
from penstock.replay.rendering.sections import Section, number, safe, share
from penstock.replay.report import shown_time

_SHOWN_KEYS = 10


def headline(advice: Recommendation) -> str:
    by = " and ".join(advice.by)
    if advice.limit is None:
        return f"No recommendation: {advice.reason}."
    assert advice.holdout is not None
    return f"{advice.limit} for each {by}: {consequence(advice.holdout)}."


def consequence(of: Consequence) -> str:
    if not of.refused:
        return f"refuses none of {number(of.requests)} requests from {number(of.keys)} keys"
    automated = ""
    if of.keys_automated:
        who = "it" if of.keys_refused == 1 else "all of them"
        if of.keys_automated < of.keys_refused:
            who = f"{number(of.keys_automated)} of them"
        verb = "looks" if of.keys_automated == 1 else "look"
        automated = f"; {who} {verb} automated"
    return (
        f"refuses {share(of.refused_share)} of {number(of.requests)} requests, from"
        f" {number(of.keys_refused)} of {number(of.keys)} keys{automated}"
    )


def basis(advice: Recommendation) -> list[str]:
    """What the figures of the first line are from, and what else would do."""
    assert advice.whole is not None
    out = [
        "Chosen from the first 70 % of the time; the figures above are from the last 30 %. In the"
        f" whole log it {consequence(advice.whole)}."
    ]
    if advice.trades:
        out.append(
            f"Rate and burst can be traded: {' or '.join(advice.trades)} refuses nobody either who"
            " does not look automated."
        )
    return out


def likely(each: WindowChoice) -> str:
    """The 99.9 % or what was asked for, as an interval."""
    low, high = each.uncertainty
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def sections(advice: Recommendation) -> list[Section]:
    out = [Section("", [headline(advice)])]
    if advice.requests:
        out[0].lines.append(
            f"{shown_time(advice.first)} to {shown_time(advice.last)} UTC,"
            f" {number(advice.requests)} requests, {number(advice.keys)} keys"
        )
    if advice.limit is not None:
        assert advice.choice is not None
        out[0].lines.append(f"Why: {advice.choice.why}.")
        out[0].lines += basis(advice)
    if advice.windows:
        out.append(
            Section(
                "by window: the most that a key needed",
                columns=[
                    "window", ">median", ">99 %", ">99.9 %", ">99.9 %, 95 % sure", ">most",
                    ">limit", "why",
                ],
                rows=[
                    [
                        format_period(each.window), *(
                            number(each.quantiles[name]) for name in ("p50", "p99", "p99.9")
                        ), likely(each), number(each.quantiles["p100"]),
                        number(each.choice.limit), each.choice.why,
                    ]
                    for each in advice.windows
                ],
            )
        )  # fmt: skip
    if advice.heaviest:
        out.append(
            Section(
                "the heaviest keys",
                columns=["key", ">requests", "how it behaves"],
                rows=[
                    [safe(key.key), number(key.asked), safe(describe(key), 100)]
                    for key in advice.heaviest[:_SHOWN_KEYS]
                ],
            )
        )
    if advice.warnings:
        out.append(Section("what this log cannot tell", [f"- {each}" for each in advice.warnings]))
    if advice.yaml:
        lines = advice.yaml.rstrip().split("\n")
        out.append(Section("rules to begin with", lines, is_verbatim=True))
    out.append(Section("read", [*advice.notes]))
    return out
