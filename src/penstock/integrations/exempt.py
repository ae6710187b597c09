"""Which requests are never counted: by path, or by a function."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable

from penstock.integrations.request import Request

Exempt = Callable[[Request], bool | Awaitable[bool]] | None

# ``/static/../admin`` begins with ``/static/``, and may yet lead to ``/admin``.
_STEPS = re.compile(r"[/\\]\.\.?(?:[/\\]|$)")


def as_exempt(exempt: Iterable[str] | Callable[[Request], bool | Awaitable[bool]]) -> Exempt:
    """``"/health"`` is that path alone, ``"/static/*"`` all that begins with ``/static/``.

    What a function returns may have to be awaited: a coroutine is true, whatever it says.
    """
    if callable(exempt):
        return exempt
    if isinstance(exempt, str):
        raise TypeError(f"exempt is a list of paths, such as [{exempt!r}], or a function")
    exact: set[str] = set()
    prefixes: list[str] = []
    for path in exempt:
        if not isinstance(path, str) or not path.startswith("/") or "*" in path[:-1]:
            raise ValueError(
                f"an exempt path is '/health', or '/static/*' for all below, not {path!r:.100}"
            )
        if path.endswith("*"):
            prefixes.append(path[:-1])
        else:
            exact.add(path)
    if not exact and not prefixes:
        return None
    beginnings = tuple(prefixes)

    def is_exempt(request: Request) -> bool:
        path = request.path
        return path in exact or (path.startswith(beginnings) and not _STEPS.search(path))

    return is_exempt
