"""``settings.PENSTOCK``: what a middleware is told, and what is true of the whole site.

A value may be the dotted name of what it stands for, such as ``"shop.limits.key"``.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from penstock.integrations.deciding.options import ViewOptions, check_options
from penstock.integrations.deciding.views import OF_A_SITE, Options
from penstock.stores.base import Store

EXAMPLE = "PENSTOCK = {'limit': '100/minute'}"
# These may be dotted names. A gate is not among them: its text is the path of a file.
NAMED = (
    "limit", "key", "cost", "store", "dimensions", "exempt", "count_when", "hook", "clock",
    "fallback", "defer",
)  # fmt: skip

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def configured() -> Options:
    """What the middleware is told."""
    if getattr(settings, "PENSTOCK", None) is None:
        raise ImproperlyConfigured(f"PenstockMiddleware needs a setting, such as {EXAMPLE}")
    return {name: _value(name, value) for name, value in _checked().items()}


def of_the_site() -> Options:
    """What views need of it. The rest may be named in their own module, and be unknown yet."""
    return {n: _value(n, value) for n, value in _checked().items() if n in OF_A_SITE}


def _checked() -> Options:
    options = getattr(settings, "PENSTOCK", None)
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise ImproperlyConfigured(f"PENSTOCK is a dict, such as {EXAMPLE}, not {options!r:.100}")
    try:
        check_options("PENSTOCK", options, ViewOptions, "limit")
    except TypeError as error:
        raise ImproperlyConfigured(str(error)) from None
    return options


def _value(name: str, value: Any) -> Any:
    if name == "limit" and isinstance(value, (list, tuple)):
        return [_value(name, each) for each in value]
    if name not in NAMED or not isinstance(value, str) or not _DOTTED.fullmatch(value):
        return value
    return _store(value) if name == "store" else _imported(name, value)


@cache
def _store(dotted: str) -> Any:
    """One for all who ask: a store, or what a function without arguments makes."""
    found = _imported("store", dotted)
    return found if isinstance(found, Store) or not callable(found) else found()


def _imported(name: str, dotted: str) -> Any:
    try:
        return import_string(dotted)
    except ImportError as error:
        raise ImproperlyConfigured(f"PENSTOCK[{name!r}]: {error}") from error
