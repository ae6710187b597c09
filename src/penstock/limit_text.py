"""Reads a limit from one line of text; ``str(limit)`` writes it.

::

    limit  = amount ("/" | "per") [number] unit option*
    option = algorithm | "burst" n | "debt" n | "cells" n | "rounding" word
           | "align" word | "tz" zone | "lockout" duration | "warm_up" duration
           | "soft" n["%"] "for" duration | "count_rejected"
           | "on_failure" word | "share" fraction

The rate strings of the ``limits`` package are a part of it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from typing import Any

from penstock.durations import example_units, is_unit
from penstock.errors import LimitError

_EXAMPLE = "write it like '100/minute', '5 per 30s' or '1000/hour burst 2000'"
_MOST_DIGITS = 30
_NUMBERS = ("burst", "debt", "cells")
_WORDS = ("rounding", "align", "tz", "lockout", "warm_up", "on_failure")
_OPTIONS = (*_NUMBERS, *_WORDS, "soft", "count_rejected", "share")
_FRACTION = re.compile(r"\d+(?:\.\d+)?(?:e-\d+)?", re.I)

_SEVERAL = re.compile(r"[a-z]\s*[;,|]\s*\d", re.I)
_RATE = re.compile(
    r"\s*(?P<amount>[+-]?[\d_.,]+)?\s*(?P<per>/|\bper\b)?\s*"
    r"(?P<count>\d+(?:\.\d+)?)?\s*(?P<unit>[a-zµ]+)?(?P<more>(?:\d+(?:\.\d+)?[a-zµ]+)*)",
    re.I,
)


def read(text: str, algorithms: Collection[str]) -> tuple[int, str, dict[str, Any]]:
    """The arguments of the `Limit` that ``text`` describes: amount, per, options."""
    if not isinstance(text, str):
        raise LimitError(f"a limit string is a str, not {type(text).__name__}: {_EXAMPLE}")
    if _SEVERAL.search(text):
        raise LimitError(f"{text!r} names several limits: make one of each and use hit_all")
    rate = _RATE.match(text)
    assert rate is not None  # every part of it is optional
    amount = _amount(rate["amount"], text)
    if rate["per"] is None:
        raise LimitError(f"{text!r} does not say per what time: {_EXAMPLE}")
    if rate["unit"] is None:
        raise LimitError(f"{text!r} has no unit of time: {_EXAMPLE}")
    if not is_unit(rate["unit"].lower()):
        raise LimitError(
            f"{text!r} has an unknown unit {rate['unit']!r}{_nearest_unit(rate['unit'])}:"
            f" {example_units()}"
        )
    per = f"{rate['count'] or ''}{rate['unit']}{rate['more'] or ''}"
    options = _options(text[rate.end() :], text, algorithms)
    if "tz" in options or "align" in options:
        options.setdefault("algorithm", "fixed_window")
    return amount, per, options


def _amount(digits: str | None, text: str) -> int:
    if digits is None:
        raise LimitError(f"{text!r} does not start with a number: {_EXAMPLE}")
    plain = digits.replace("_", "")
    if not (plain.isascii() and plain.isdigit()):
        raise LimitError(f"{text!r}: the amount {digits!r} must be a whole number: {_EXAMPLE}")
    if len(plain) > _MOST_DIGITS:
        raise LimitError(f"{text[:60]!r}: a number of {len(plain)} digits is too large")
    return int(plain)


def _fraction(word: str, text: str) -> float:
    if not (word.isascii() and len(word) <= _MOST_DIGITS and _FRACTION.fullmatch(word)):
        raise LimitError(f"{text!r}: share is a number such as 0.25, not {word[:60]!r}")
    return float(word)


def _options(rest: str, text: str, algorithms: Collection[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    words = rest.split()
    while words:
        name = words.pop(0).lower()
        key = "algorithm" if name in algorithms else name
        if name == "algorithm":
            name = _next(words, name, text)
        if key in options:
            raise LimitError(f"{text!r} says {key} twice")
        if key == "algorithm":
            options[key] = name
        elif name == "count_rejected":
            options[name] = True
        elif name in _NUMBERS:
            options[name] = _amount(_next(words, name, text), text)
        elif name in _WORDS:
            options[name] = _next(words, name, text)
        elif name == "share":
            options[name] = _fraction(_next(words, name, text), text)
        elif name == "soft":
            overrun = _next(words, name, text)
            if _next(words, name, text) != "for":
                raise LimitError(f"{text!r}: soft is written like 'soft 20 for 10m'")
            options[name] = f"{overrun} for {_next(words, name, text)}"
        else:
            known = [*_OPTIONS, *algorithms]
            near = difflib.get_close_matches(name, known, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise LimitError(
                f"{text!r}: {name!r} is not an option{hint}. Options are an algorithm's name, "
                + ", ".join(_OPTIONS)
            )
    return options


def _next(words: list[str], name: str, text: str) -> str:
    if not words:
        raise LimitError(f"{text!r}: {name} has no value behind it")
    return words.pop(0)


def _nearest_unit(name: str) -> str:
    near = difflib.get_close_matches(
        name.lower(), ("second", "minute", "hour", "day", "week", "month", "year"), 1
    )
    return f" (did you mean {near[0]!r}?)" if near else ""
