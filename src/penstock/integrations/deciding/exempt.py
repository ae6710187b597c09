"""Which requests are never counted: by path, or by a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from penstock.integrations.deciding.paths import AmbiguousText, plain
from penstock.integrations.deciding.request import Request

Exempt = Callable[[Request], bool | Awaitable[bool]] | None


def as_exempt(exempt: Iterable[str] | Callable[[Request], bool | Awaitable[bool]]) -> Exempt:
    """``"/health"`` is that path alone, ``"/static/*"`` all that begins with ``/static/``.

    A path that servers may read in several ways is exempt if all readings are:
    ``/static/../admin`` is not, as it may lead to ``/admin``.

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
        if isinstance(plain(f"{path[:-1]}x" if path.endswith("*") else path), AmbiguousText):
            raise ValueError(
                f"an exempt path is written decoded, and without '//', '/../' and the like, "
                f"not as {path!r:.100}"
            )
        if path.endswith("*"):
            prefixes.append(path[:-1])
        else:
            exact.add(path)
    if not exact and not prefixes:
        return None
    beginnings = tuple(prefixes)

    def is_exempt(request: Request) -> bool:
        path = request.rule_path
        if isinstance(path, AmbiguousText):
            return not path.problem and all(map(is_named, (path, *path.others)))
        return is_named(path)

    def is_named(path: str) -> bool:
        return path in exact or path.startswith(beginnings)

    return is_exempt
