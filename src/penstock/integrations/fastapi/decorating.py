"""A handler with a dependency that it does not see, and its own response."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, iscoroutinefunction, signature
from typing import Annotated, Any

from fastapi import Depends, Response

from penstock.integrations.deciding.applied_limits import AppliedLimits, fields_of

# The name of the parameter that a decorated handler has for FastAPI only.
_HIDDEN = "penstock_limit"


class Served:
    """The limits of a request that goes ahead, until its response."""

    __slots__ = ("_applied", "last", "status")

    def __init__(self, applied: AppliedLimits) -> None:
        self._applied = applied
        self.last = applied[-1]
        self.status: int | None = None

    def responded(self, result: Any) -> Any:
        """The handler's result. FastAPI does not add headers to a handler's own response."""
        if isinstance(result, Response):
            self.status = result.status_code
            for name, value in fields_of(self._applied):
                result.headers[name] = value
        return result


def with_dependency(handler: Callable[..., Any], dependency: Callable[..., Any]) -> Any:
    """The handler, with a dependency whose value is a `Served` or None."""
    plain = signature(handler)
    name = _HIDDEN
    while name in plain.parameters:  # it has more than one limit
        name += "_"
    limited: Any
    if iscoroutinefunction(handler):

        @wraps(handler)
        async def limited_async(*args: Any, **kwargs: Any) -> Any:
            served: Served | None = kwargs.pop(name, None)
            result = await handler(*args, **kwargs)
            return result if served is None else served.responded(result)

        limited = limited_async
    else:  # FastAPI looks behind it whether it is a generator

        @wraps(handler)
        def limited_sync(*args: Any, **kwargs: Any) -> Any:
            served: Served | None = kwargs.pop(name, None)
            result = handler(*args, **kwargs)
            return result if served is None else served.responded(result)

        limited = limited_sync
    annotation = Annotated[Any, Depends(dependency)]
    # As the first parameter, it is the first dependency that FastAPI solves.
    hidden = Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)
    limited.__signature__ = plain.replace(parameters=[hidden, *plain.parameters.values()])
    return limited
