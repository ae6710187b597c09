"""Options from the environment: ``PENSTOCK_LIMIT``, ``PENSTOCK_STORE`` and so on.

Only with ``from_env=True``, because `penstock serve` has variables of the same names, which an
application on the same host should not obey by accident. An option that is given takes
precedence. ``PENSTOCK_ENABLED`` always applies: see `penstock.switch`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from penstock.async_gate import AnyGate
from penstock.errors import LimitError, StoreError
from penstock.integrations.deciding.checkpoint import yes_or_no
from penstock.integrations.deciding.notices import warn_once
from penstock.limits import Limit, as_limit
from penstock.stores.base import Store
from penstock.stores.url import store_from_url
from penstock.switch import ENABLED, read_switch

PREFIX = "PENSTOCK_"
Reader = Callable[[str, str], Any]  # of a variable and its text


def with_environment(options: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """The options; with ``from_env``, also those that the environment has and nobody gave.

    ``without`` are options that this integration does not have.
    """
    _warn_of_misspelt(os.environ)
    given = {name: value for name, value in options.items() if value is not None}
    if not yes_or_no(given.pop("from_env", False), "from_env"):
        return {name: value for name, value in options.items() if name != "from_env"}
    limiter = given.get("limiter")
    if limiter is None and "limit" not in given and "gate" not in given:
        given |= _read(_WHAT)
        if "limit" in given and "gate" in given:
            raise ValueError("PENSTOCK_LIMIT and PENSTOCK_RULES are both set: unset one of them")
    if given.keys().isdisjoint(_PROXIES.values()):
        given |= _read(_PROXIES)
    readable = {variable: name for variable, name in _OTHERS.items() if name not in without}
    if "gate" in given:
        readable |= _OF_A_GATE
    if isinstance(given.get("gate"), AnyGate):  # it has a store and a watch() of its own
        del readable["STORE"], readable["WATCH"]
    if limiter is not None and not isinstance(limiter, (str, Limit)):  # it has a store, too
        del readable["STORE"]
    missing = {variable: name for variable, name in readable.items() if name not in given}
    return given | _read(missing)


def _read(wanted: Mapping[str, str]) -> dict[str, Any]:
    """Options by their names. ``wanted`` has them by their variables."""
    values = {}
    for variable, name in wanted.items():
        text = os.environ.get(PREFIX + variable)
        if text is not None:
            values[name] = _READERS.get(name, _text)(PREFIX + variable, text)
    return {name: value for name, value in values.items() if value is not None}


def _warn_of_misspelt(environment: Mapping[str, str]) -> None:
    for name in environment:
        if name.startswith(PREFIX) and name not in VARIABLES:
            close = get_close_matches(name.removeprefix(PREFIX), _SUFFIXES, n=1, cutoff=0.75)
            if close:
                warn_once(
                    ("variable", name),
                    "the environment variable %s is unknown: did you mean %s?",
                    name, PREFIX + close[0],
                )  # fmt: skip


# How each of them is written ---------------------------------------------------------------


def _text(variable: str, text: str) -> str:
    if not text.strip():
        raise ValueError(f"{variable} is empty: unset it")
    return text.strip()


def _list(variable: str, text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _number(variable: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{variable} is a whole number, such as 1, not {text!r:.100}")
    return int(text)


def _limits(variable: str, text: str) -> str | list[str]:
    limits = [part.strip() for part in re.split("[;,|]", text)]
    for each in limits:
        try:
            as_limit(each)
        except LimitError as error:
            raise ValueError(f"{variable}: {error}") from None
    return limits[0] if len(limits) == 1 else limits


@cache  # one connection to a server, however many limits are counted there
def _store(variable: str, text: str) -> Store | None:
    text = _text(variable, text)
    if text in ("memory", "memory:"):
        return None  # the default: each limit has a store of its own
    try:
        return store_from_url(text)
    except (ValueError, StoreError) as error:
        raise ValueError(f"{variable}: {error}") from None


_READERS: dict[str, Reader] = {
    "limit": _limits, "store": _store, "trusted": _list, "exempt": _list, "hops": _number,
    "shadow": read_switch, "watch": read_switch,
}  # fmt: skip

# Options by the names of their variables. Of these, what is given excludes the others:
_WHAT = {"LIMIT": "limit", "RULES": "gate"}
_PROXIES = {"TRUSTED": "trusted", "HOPS": "hops", "FORWARDED": "forwarded"}
# Each of these is for itself:
_OTHERS = {
    "STORE": "store", "EXEMPT": "exempt", "SHADOW": "shadow", "ON_FAILURE": "on_failure",
    "FIELDS": "fields",
}  # fmt: skip
_OF_A_GATE = {"DOMAIN": "domain", "WATCH": "watch"}

_SUFFIXES = [
    ENABLED.removeprefix(PREFIX), *_WHAT, *_PROXIES, *_OTHERS, *_OF_A_GATE,
]  # fmt: skip
VARIABLES = frozenset(PREFIX + suffix for suffix in _SUFFIXES)
