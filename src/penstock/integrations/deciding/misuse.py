"""Errors that say what to write, for mistakes with the decorator ``limit``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any, get_origin, get_type_hints

from penstock.integrations.deciding.request import Request


def check_limit_function(limit: Callable[..., Any]) -> None:
    """``@limit`` without a limit gets the handler, where a function of the request may be."""
    try:
        signature = inspect.signature(limit)
        parameters = list(signature.parameters.values())
        signature.bind(None)
    except ValueError:  # it has no signature: a builtin
        return
    except TypeError:
        raise without_limit(limit) from None
    try:
        annotation = get_type_hints(limit, include_extras=True).get(parameters[0].name)
    except (NameError, TypeError):
        return
    if get_origin(annotation) is Annotated or (
        isinstance(annotation, type) and not issubclass(Request, annotation)
    ):
        raise without_limit(limit)


def without_limit(handler: Any) -> TypeError:
    return TypeError(
        f'@limit has no limit: write @limit("10/second"), or give a function of one '
        f"penstock.integrations.Request, not {handler!r:.100}"
    )


def may_have_a_route(handler: Any, own: int) -> bool:
    """Whether something refers to a function that is being decorated, such as a route.

    ``own`` is how often it is referred to here if nothing else does: by its decorator's frames.
    A function gets its name in its module only after all its decorators. One that has it is
    decorated a second time, and may have another route without a limit.
    """
    if sys.getrefcount(handler) <= own:
        return False
    names = getattr(handler, "__globals__", {})
    return names.get(getattr(handler, "__name__", None)) is not handler


def has_its_route(handler: Any, route: str) -> TypeError:
    name = getattr(handler, "__name__", repr(handler))
    return TypeError(
        f"{name} has its route already, which would not be limited: write @limit(...) "
        f"below {route}, next to the function"
    )
