"""``settings.PENSTOCK``: the options of the middleware and of the whole site.

A value may be a dotted name to import, such as ``"shop.limits.key"``.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from penstock.errors import PenstockError
from penstock.integrations.deciding.environment import with_environment
from penstock.integrations.deciding.options import ExtensionOptions, check_options
from penstock.integrations.deciding.views import SITE_OPTIONS, Options
from penstock.stores.base import Store

EXAMPLE = "PENSTOCK = {'limit': '100/minute'}"
# These may be dotted names. A gate is not among them: its text is the path of a file.
NAMED = (
    "limit", "key", "cost", "store", "dimensions", "exempt", "count_when", "hook", "clock",
    "fallback", "defer",
)  # fmt: skip

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def configured() -> Options:
    """The options of the middleware."""
    if getattr(settings, "PENSTOCK", None) is None:
        raise ImproperlyConfigured(f"PenstockMiddleware needs a setting, such as {EXAMPLE}")
    return {name: _value(name, value) for name, value in _checked().items()}


def site_options() -> Options:
    """The options that views inherit. Others may be defined in the views' module, later."""
    return {n: _value(n, value) for n, value in _checked().items() if n in SITE_OPTIONS}


def _checked() -> Options:
    options = getattr(settings, "PENSTOCK", None)
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise ImproperlyConfigured(f"PENSTOCK is a dict, such as {EXAMPLE}, not {options!r:.100}")
    try:
        check_options("PENSTOCK", options, ExtensionOptions, "limit")
    except TypeError as error:
        raise ImproperlyConfigured(str(error)) from None
    try:
        return with_environment(options)
    except (TypeError, ValueError, OSError, PenstockError) as error:
        raise ImproperlyConfigured(f"PENSTOCK: {error}") from error


def _value(name: str, value: Any) -> Any:
    if name == "limit" and isinstance(value, (list, tuple)):
        return [_value(name, each) for each in value]
    if name == "limit" and isinstance(value, dict):
        return {_value("key", key): _value(name, each) for key, each in value.items()}
    if name not in NAMED or not isinstance(value, str) or not _DOTTED.fullmatch(value):
        return value
    return _store(value) if name == "store" else _imported(name, value)


@cache
def _store(dotted: str) -> Any:
    """The same for all limits: a store, or what a function without arguments returns."""
    store = _imported("store", dotted)
    return store if isinstance(store, Store) or not callable(store) else store()


def _imported(name: str, dotted: str) -> Any:
    try:
        return import_string(dotted)
    except ImportError as error:
        raise ImproperlyConfigured(f"PENSTOCK[{name!r}]: {error}") from error
