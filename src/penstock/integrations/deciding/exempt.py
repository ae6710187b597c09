"""Which requests are never counted: by path, or by a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable

from penstock.integrations.deciding.paths import AmbiguousText, plain
from penstock.integrations.deciding.request import Request

Exempt = Callable[[Request], bool | Awaitable[bool]]


def as_exempt(exempt: Iterable[str] | Exempt) -> Exempt | None:
    """``"/health"`` is that path alone, ``"/static/*"`` all that begins with ``/static/``.

    A path that servers may read in several ways is exempt if all readings are:
    ``/static/../admin`` is not, as it may lead to ``/admin``.
    """
    if callable(exempt):
        return exempt
    if isinstance(exempt, str):
        raise TypeError(f"exempt is a list of paths, such as [{exempt!r}], or a function")
    paths = [_check(path) for path in exempt]
    if not paths:
        return None
    is_named = matcher(paths)

    def is_exempt(request: Request) -> bool:
        path = request.rule_path
        if isinstance(path, AmbiguousText):
            return not path.problem and all(map(is_named, (path, *path.others)))
        return is_named(path)

    return is_exempt


def matcher(patterns: Collection[str]) -> Callable[[str], bool]:
    """Whether a text is one of the patterns. A ``*`` at the end of a pattern matches anything."""
    exact = {pattern for pattern in patterns if not pattern.endswith("*")}
    prefixes = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*"))
    return lambda text: text in exact or text.startswith(prefixes)


def _check(path: object) -> str:
    if not isinstance(path, str) or not path.startswith("/") or "*" in path[:-1]:
        raise ValueError(
            f"an exempt path is '/health', or '/static/*' for all below, not {path!r:.100}"
        )
    if isinstance(plain(f"{path[:-1]}x" if path.endswith("*") else path), AmbiguousText):
        raise ValueError(
            f"an exempt path is written decoded, and without '//', '/../' and the like, "
            f"not as {path!r:.100}"
        )
    return path
