"""Which calls are never counted: by name, or by a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from penstock.integrations.grpc.call import Call

ExemptFunction = Callable[[Call], bool | Awaitable[bool]]

# What machines ask of a server, not its users.
EXEMPT = ("grpc.health.v1.Health", "grpc.reflection.*")


class ExemptNames:
    """Methods and services by name: ``in`` looks a method up.

    ``"/shop.Orders/Place"`` is that method, ``"shop.Orders"`` all of that service, and
    ``"shop.*"`` all services whose names begin with ``shop.``.
    """

    def __init__(self, names: Iterable[str]) -> None:
        if isinstance(names, (str, bytes)):
            raise TypeError(f"exempt is a list of names, such as [{names!r}], or a function")
        self._exact: set[str] = set()
        beginnings: list[str] = []
        for name in names:
            text = _as_path(name)
            if text.endswith("*"):
                beginnings.append(text[:-1])
            else:
                self._exact.add(text)
        self._beginnings = tuple(beginnings)

    def __contains__(self, method: str) -> bool:
        return method in self._exact or method.startswith(self._beginnings)


def as_exempt(exempt: Iterable[str] | ExemptFunction) -> ExemptFunction:
    if callable(exempt):
        return exempt
    names = ExemptNames(exempt)
    return lambda call: call.method in names


def _as_path(name: object) -> str:
    """The path of a method, or how the paths of several begin, with a star."""
    if isinstance(name, str) and name.strip("/*") and "*" not in name[:-1]:
        if name.startswith("/") and name.count("/") == 2:
            return name
        if "/" not in name:
            return f"/{name}" if name.endswith("*") else f"/{name}/*"
    raise ValueError(
        "an exempt name is a method, '/shop.Orders/Place', a service, 'shop.Orders', or "
        f"several, 'shop.*', not {name!r:.100}"
    )
