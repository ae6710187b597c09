"""Reads limits from one line of text; ``str(limit)`` writes one.

::

    limits = limit ((";" | "," | "|") limit)*
    limit  = amount ["requests"] ("/" | "per") [number] unit option*
    amount = n | n","nnn | number"k" | number"M"
    option = algorithm | "burst" n | "initial" n | "debt" n | "cells" n
           | "rounding" word | "align" word | "tz" zone | "lockout" duration | "warm_up" duration
           | "soft" n["%"] "for" duration | "count_rejected"
           | "on_failure" word | "share" fraction

The rate strings of the ``limits`` package are a part of it, and so are nginx's ("10r/s").

A comma stands between two limits, except in the amount that a limit begins with: there it groups
digits by three. So "1,000/hour" is a thousand, and never "1" and "000/hour".
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from fractions import Fraction
from typing import Any

from penstock.durations import example_units, is_unit
from penstock.errors import LimitError

# So many limits may stand in one text: each is a decision.
MOST_LIMITS = 10
EXAMPLE = "write it like '100/minute', '5 per 30s' or '1000/hour burst 2000'"
_MOST_DIGITS = 30
_NUMBERS = ("burst", "initial", "debt", "cells")
_WORDS = ("rounding", "align", "tz", "lockout", "warm_up", "on_failure")
_OPTIONS = (*_NUMBERS, *_WORDS, "soft", "count_rejected", "share")
_FRACTION = re.compile(r"\d+(?:\.\d+)?(?:e-\d+)?", re.I)

_GROUPED = r"\d{1,3}(?:,\d{3})+"
_GROUPED_START = re.compile(rf"\s*{_GROUPED}(?![\d,])")
_SEPARATOR = re.compile(r"[;,|]")
_RATE = re.compile(
    r"\s*(?P<amount>[+-]?[\d_.,]+)?(?P<scale>(?-i:[kKM])(?![a-z]))?"
    r"\s*(?P<noun>(?!per\b)[a-z]+)?\s*(?P<per>/|per\b)?\s*"
    r"(?P<count>\d+(?:\.\d+)?)?\s*(?P<unit>[a-zµ]+)?(?P<more>(?:\d+(?:\.\d+)?[a-zµ]+)*)",
    re.I,
)
_SCALES = {"k": 1_000, "m": 1_000_000}
_NOUNS = frozenset(
    ("r", "req", "reqs", "request", "requests", "hit", "hits", "call", "calls", "times")
)
# What other libraries and papers call the algorithms.
_OTHER_NAMES = {
    "gcra": "token_bucket",
    "leaky": "leaky_bucket",
    "fixed": "fixed_window",
    "sliding": "sliding_window",
    "sliding_window_counter": "sliding_window",
    "sliding_window_log": "sliding_log",
    "moving_window": "sliding_log",
}


def split(text: str) -> list[str]:
    """The limits in ``text``, one or several, as they stand there."""
    if not isinstance(text, str):
        raise LimitError(f"a limit string is a str, not {type(text).__name__}: {EXAMPLE}")
    parts: list[str] = []
    at = 0
    while True:
        grouped = _GROUPED_START.match(text, at)
        separator = _SEPARATOR.search(text, at if grouped is None else grouped.end())
        if separator is None:
            parts.append(text[at:].strip())
            break
        parts.append(text[at : separator.start()].strip())
        at = separator.end()
    if len(parts) > 1:
        _check_parts(parts, text)
    return parts


def _check_parts(parts: list[str], text: str) -> None:
    if len(parts) > MOST_LIMITS:
        raise LimitError(f"{text[:60]!r}... has {len(parts)} limits: {MOST_LIMITS} is the most")
    for part in parts:
        if not part:
            raise LimitError(
                f"{text!r} has a separator without a limit beside it: write several limits like"
                " '5/minute; 100/day'"
            )
        if "," in text and part.isdigit():
            raise LimitError(
                f"{text!r}: {part!r} is not a limit. A comma stands between two limits; in an"
                " amount it groups digits by three ('1,000/hour'), and after an option no number"
                " has one ('burst 1000')"
            )


def read(text: str, algorithms: Collection[str]) -> tuple[int, str, dict[str, Any]]:
    """The arguments of the `Limit` that ``text`` describes: amount, per, options."""
    if len(split(text)) > 1:
        raise LimitError(
            f"{text!r} names several limits, and this is a place for one: a Limiter takes the"
            " text as it is, Limit.parse each limit by itself"
        )
    if not text.strip():
        raise LimitError(f"{text!r} is an empty limit: {EXAMPLE}")
    rate = _RATE.match(text)
    assert rate is not None  # every part of it is optional
    amount = _amount(rate["amount"], rate["scale"], text)
    noun = rate["noun"]
    if noun is not None and noun.lower() not in _NOUNS:
        _refuse_noun(noun, text)
    if rate["per"] is None:
        raise LimitError(f"{text!r} does not say per what time: {EXAMPLE}")
    if rate["unit"] is None:
        raise LimitError(f"{text!r} has no unit of time: {EXAMPLE}")
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


def _refuse_noun(noun: str, text: str) -> None:
    if is_unit(noun.lower()):
        if noun == "m":
            raise LimitError(f"{text!r}: a million is written 'M', as in '1M/day', not 'm'")
        raise LimitError(f"{text!r} does not say per what time: {EXAMPLE}")
    raise LimitError(
        f"{text!r}: {noun!r} means nothing after the amount, where 'requests' may stand: {EXAMPLE}"
    )


def _amount(digits: str | None, scale: str | None, text: str) -> int:
    if digits is None:
        raise LimitError(f"{text!r} does not start with a number: {EXAMPLE}")
    plain = digits.replace("_", "")
    if re.fullmatch(_GROUPED, plain):
        plain = plain.replace(",", "")
    if len(plain) > _MOST_DIGITS:
        raise LimitError(f"{text[:60]!r}: a number of {len(plain)} digits is too large")
    units = None
    if scale is not None and re.fullmatch(r"\d+(?:\.\d+)?", plain, re.ASCII):
        scaled = Fraction(plain) * _SCALES[scale.lower()]
        units = int(scaled) if scaled.denominator == 1 else None
    elif scale is None and plain.isascii() and plain.isdigit():
        units = int(plain)
    if units is None:
        raise LimitError(
            f"{text!r}: the amount {digits + (scale or '')!r} must be a whole number: {EXAMPLE}"
        )
    if len(plain) > 1 and plain[0] == "0" and "." not in plain:
        raise LimitError(
            f"{text!r}: the number {digits!r} begins with a zero. If it is the end of a larger"
            " one, write that without a comma: '1000'"
        )
    return units


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
            options[name] = _amount(_next(words, name, text), None, text)
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
            raise LimitError(f"{text!r}: {_unknown_option(name, algorithms)}")
    return options


# "100/minute per user": what people write to say who is counted.
_ABOUT_KEYS = ("per", "by", "each", "for")


def _unknown_option(name: str, algorithms: Collection[str]) -> str:
    option, equals, value = name.partition("=")
    if equals and option in _OPTIONS:
        return f"write '{option} {value}', without '='"
    if name in _ABOUT_KEYS:
        return (
            f"{name!r} is not an option: a limit does not say who is counted; the key does, such as"
            " hit('user:42') or key="
        )
    other = name.replace("-", "_")
    if other in _OTHER_NAMES or other in algorithms:
        return unknown_algorithm(name, algorithms)
    near = difflib.get_close_matches(other, [*_OPTIONS, *algorithms], 1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return (
        f"{name!r} is not an option{hint}. Options are {', '.join(_OPTIONS)}, and the name of an"
        f" algorithm: {', '.join(algorithms)}"
    )


def unknown_algorithm(name: object, algorithms: Collection[str]) -> str:
    """What to say to ``name``, with the algorithm that may be meant."""
    hint = ""
    if isinstance(name, str):
        plain = name.lower().replace("-", "_").replace(" ", "_")
        if plain == "gcra":
            hint = " (token_bucket is GCRA)"
        else:
            near = _OTHER_NAMES.get(plain) or next(
                iter(difflib.get_close_matches(plain, algorithms, 1)), None
            )
            hint = f" (did you mean {near!r}?)" if near else ""
    return f"unknown algorithm {name!r:.100}{hint}: use one of {', '.join(algorithms)}"


def _next(words: list[str], name: str, text: str) -> str:
    if not words:
        raise LimitError(f"{text!r}: {name} has no value behind it")
    return words.pop(0)


def _nearest_unit(name: str) -> str:
    near = difflib.get_close_matches(
        name.lower(), ("second", "minute", "hour", "day", "week", "month", "year"), 1
    )
    return f" (did you mean {near[0]!r}?)" if near else ""
