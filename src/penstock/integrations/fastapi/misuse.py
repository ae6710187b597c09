"""Errors that say what to write, for mistakes that FastAPI would not notice or not explain."""

from __future__ import annotations

import gc
from typing import Any, NoReturn

from starlette.routing import BaseRoute

from penstock.integrations.deciding.misuse import has_its_route, may_have_a_route


class NotCalled:
    """A dependency of `limit` itself, which FastAPI finds in ``Depends(limit)``."""

    @property
    def __signature__(self) -> NoReturn:
        raise TypeError('Depends(limit) has no limit: write Depends(limit("10/second"))')

    def __call__(self) -> None:
        """FastAPI does not get here: it reads the signature first."""


def without_depends() -> TypeError:
    return TypeError(
        'a limit among dependencies needs Depends: write dependencies=[Depends(limit("10/second"))]'
    )


def check_handler(handler: Any) -> None:
    """``@limit`` above ``@app.get``: the route has the function without the limit."""
    if not callable(handler):
        raise TypeError(f"limit decorates a handler, not {handler!r:.100}")
    # FastAPI returns the function as it is, and only the route refers to it. To look for the
    # route takes some milliseconds, so look only if something refers to the function.
    if not may_have_a_route(handler, own=6):
        return
    for each in gc.get_referrers(handler):
        of_route = isinstance(each, dict) and "path_format" in each
        if isinstance(each, BaseRoute) or (of_route and each.get("endpoint") is handler):
            raise has_its_route(handler, "@app.get(...)")
