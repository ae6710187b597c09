"""Views that the limits of their site pass over: by ``@exempt``, or by ``override=True``.

The mark is an attribute of the view. Decorators that use `functools.wraps` keep it.
"""

from __future__ import annotations

from typing import Any, TypeVar

View = TypeVar("View")

EXEMPT, OVERRIDE = "exempt", "override"
_ATTRIBUTE = "penstock_mark"
# Whether there are any. Most sites have none, and need not look for the view of a request.
_marked = False


def exempt(view: View) -> View:
    """A decorator for a view that is not limited, above or below the one for its route.

    The limits of the application and of its routers or blueprints do not count its requests.
    Deny lists still apply.
    """
    if not callable(view):
        raise TypeError(f"exempt decorates a view, not {view!r:.100}")
    return mark(view, EXEMPT)


def mark(view: View, kind: str) -> View:
    """Let the limits of the site pass over this view."""
    global _marked
    try:
        setattr(view, _ATTRIBUTE, kind)
    except AttributeError:
        raise TypeError(f"{kind} is for functions and classes, not for {view!r:.100}") from None
    _marked = True
    return view


def some_are_marked() -> bool:
    return _marked


def mark_of(view: Any) -> str | None:
    """``EXEMPT``, ``OVERRIDE`` or None. A view of a class may have the mark of its class."""
    kind: str | None = getattr(view, _ATTRIBUTE, None)
    if kind is None:
        kind = getattr(getattr(view, "view_class", None), _ATTRIBUTE, None)
    return kind
