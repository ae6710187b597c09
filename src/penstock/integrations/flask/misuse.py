"""Errors that say what to write, for mistakes that Flask would not notice or not explain."""

from __future__ import annotations

import gc
from types import CellType, FunctionType
from typing import Any

import flask

from penstock.integrations.deciding.misuse import has_its_route, may_have_a_route


def check_view(view: Any) -> None:
    """``@limit`` above ``@app.get``: Flask calls the function without the limit."""
    if isinstance(view, type):
        raise TypeError(
            f"limit decorates a view function, not the class {view.__name__}: "
            'write decorators = [limit("10/second")] in the class'
        )
    if not callable(view):
        raise TypeError(f"limit decorates a view function, not {view!r:.100}")
    # To look for the route takes some milliseconds.
    if not may_have_a_route(view, own=4):
        return
    for each in gc.get_referrers(view):
        if (isinstance(each, dict) and _is_of_an_application(each)) or (
            isinstance(each, CellType) and _is_of_a_blueprint(each)
        ):
            raise has_its_route(view, "@app.route(...)")


def _is_of_an_application(views: dict[Any, Any]) -> bool:
    """Whether they are the ``view_functions`` of an application."""
    return any(
        (isinstance(owner, flask.Flask) and owner.view_functions is views)
        or (isinstance(owner, dict) and owner.get("view_functions") is views)
        for owner in gc.get_referrers(views)
    )


def _is_of_a_blueprint(cell: CellType) -> bool:
    """Whether a function of a blueprint holds it, which adds the view to the application later."""
    return any(
        isinstance(function, FunctionType) and function.__module__.startswith("flask.")
        for closure in gc.get_referrers(cell)
        if isinstance(closure, tuple)
        for function in gc.get_referrers(closure)
    )
