"""A servicer context that keeps the metadata of an interceptor, and notes how the call ends.

In `grpc.server` and in `grpc.aio`, `set_trailing_metadata` replaces what was there. In
`grpc.aio`, `abort` does so, too, and sends it at once. So the handler gets this context, which
adds the interceptor's metadata to whatever the handler sets.
"""

from __future__ import annotations

from asyncio import CancelledError, current_task
from collections.abc import Iterable
from typing import Any

import grpc
import grpc.aio

from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.grpc.trailers import Metadata

_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Watched:
    """The context of one call, as its handler sees it. Fits all of gRPC's contexts."""

    __slots__ = ("_aborted", "_added", "_code", "_context", "_metadata", "answered", "outcome")

    def __init__(self, context: Any, added: Metadata, outcome: Outcome) -> None:
        self._context = context
        self._added = added
        self.outcome = outcome
        self._metadata = already_set(context)
        self._code: grpc.StatusCode | None = None
        self._aborted = False
        self.answered = False  # whether the client was sent anything
        if added:
            context.set_trailing_metadata((*self._metadata, *added))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def set_trailing_metadata(self, trailing_metadata: Iterable[Any]) -> None:
        self._metadata = tuple(trailing_metadata)
        self._context.set_trailing_metadata((*self._metadata, *self._added))

    @property
    def penstock_limits(self) -> list[Watched]:
        """The contexts of all our interceptors that let this call pass, the innermost first."""
        return [self, *limits_of(self._context)]

    def replace_fields(self, added: Metadata) -> None:
        """Send these from now on, instead of those that were added before."""
        self._added = added
        self._context.set_trailing_metadata((*self._metadata, *added))

    def trailing_metadata(self) -> Any:
        """What the handler has set."""
        return self._metadata

    def set_code(self, code: Any) -> None:
        self._code = _as_code(code)
        self._context.set_code(code)

    # Not coroutine functions: if there is a coroutine, the handler awaits it.

    def write(self, message: Any) -> Any:
        self.answered = True
        return self._context.write(message)

    def send_initial_metadata(self, initial_metadata: Iterable[Any]) -> Any:
        self.answered = True
        return self._context.send_initial_metadata(initial_metadata)

    def abort(self, code: Any, details: str = "", trailing_metadata: Iterable[Any] = ()) -> Any:
        self._code = _as_code(code)
        self._aborted = True
        metadata = tuple(trailing_metadata)
        if metadata:
            self.set_trailing_metadata(metadata)
        return self._context.abort(code, details)

    def abort_with_status(self, status: Any) -> Any:
        return self.abort(status.code, status.details, status.trailing_metadata or ())


# For handlers, and type checks at run time.
grpc.ServicerContext.register(Watched)


def limits_of(context: Any) -> list[Watched]:
    """Also through the contexts of other interceptors, if they pass unknown attributes on."""
    watched: list[Watched] = getattr(context, "penstock_limits", [])
    return watched


def is_gone(context: Any, error: BaseException | None) -> bool:
    """Whether the client has gone away."""
    if isinstance(error, (GeneratorExit, CancelledError)):
        return True
    is_active = getattr(context, "is_active", None)
    if is_active is not None:  # threads are not cancelled; they can look
        return not is_active()
    cancelled = getattr(context, "cancelled", None)  # not in threads of grpc.aio
    if (cancelled is not None and cancelled()) or _is_broken(error):
        return True
    try:
        task = current_task()
    except RuntimeError:  # a thread of grpc.aio
        return False
    return task is not None and task.cancelling() > 0  # whatever the handler made of it


def _is_broken(error: BaseException | None) -> bool:
    """Whether a message could no longer be sent or read."""
    while error is not None:
        if isinstance(error, grpc.aio.InternalError):
            return True
        error = error.__cause__ or error.__context__
    return False


def final_code(watched: Watched, error: BaseException | None) -> tuple[Any, BaseException | None]:
    """The code with which the handler ended the call, and what it raised."""
    code = watched._code
    if watched._aborted:
        return code, None
    if error is not None and code in (None, grpc.StatusCode.OK):
        code = grpc.StatusCode.UNKNOWN
    return code or grpc.StatusCode.OK, error


def left_by_itself(watched: Watched, error: BaseException | None) -> bool:
    return error is None or watched._aborted


def already_set(context: Any) -> tuple[Any, ...]:
    """Trailing metadata that was set before, if the context knows."""
    read = getattr(context, "trailing_metadata", None)
    try:
        return () if read is None else tuple(read() or ())
    except NotImplementedError:  # an experimental part of gRPC, which need not be there
        return ()


def _as_code(code: Any) -> grpc.StatusCode:
    return code if isinstance(code, grpc.StatusCode) else _CODES.get(code, grpc.StatusCode.UNKNOWN)
