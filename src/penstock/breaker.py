"""CircuitBreaker: stops calls to a dependency that keeps failing, and retries carefully.

::

    closed ── of the calls that ended in the last `window`, at least `failures` failed,
              and they were at least `ratio` of them ──> open
    open ── calls raise `CircuitOpen`, until a pause has passed ──> half-open
    half-open ── `probes` calls may pass; all of them succeeded ──> closed
    half-open ── one failed, or did not end within `longest_pause` after the last one ──> open

Both halves of the first rule are needed: a count alone opens a busy circuit for a few
errors in a million, and a ratio alone opens an idle one for the first error of the day.
The window is counted in tenths, so its memory does not depend on the traffic.

A call whose block raised one of `counts` failed; one that raised another `Exception` was
answered, which is a success. A call that ends without saying anything about the dependency is
neither and gives its probe back: a cancelled task, an interrupted program, and a `CircuitOpen`
from inside.

The result of a call only counts while the state in which it began lasts: a request that was
sent before the circuit opened neither closes it nor opens it again later.
"""

from __future__ import annotations

import functools
import inspect
import random
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from weakref import WeakSet

from penstock.circuit import CLOSED, HALF_OPEN, OPEN, CallCircuit, Permit
from penstock.clock import MONOTONIC, SECOND, Clock
from penstock.decorators import is_async_function
from penstock.durations import Duration, parse_duration
from penstock.errors import CircuitOpen
from penstock.events import Event, Hook, Hooks

__all__ = ["CLOSED", "HALF_OPEN", "OPEN", "CircuitBreaker", "CircuitChanged", "Permit"]

F = TypeVar("F", bound=Callable[..., Any])
Counts = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]

LONGEST_REASON = 200

# For tests, which close all breakers of a process.
BREAKERS: WeakSet[CircuitBreaker] = WeakSet()


@dataclass(frozen=True, slots=True)
class CircuitChanged(Event):
    """The circuit breaker with the name ``store`` changed from ``before`` to ``state``.

    ``reason`` is why it last opened.
    """

    before: str
    state: str
    reason: str


class CircuitBreaker:
    """``with breaker:`` runs the block, or raises `CircuitOpen` at once while it is open.

    Also ``async with breaker:``, and ``@breaker`` for functions, sync or async. Use one
    breaker for each dependency, and share it between all callers, threads and event loops.

    - ``failures``, ``ratio``, ``window``: it opens when, of the calls that ended in the
      last ``window``, at least ``failures`` failed and they were at least ``ratio`` of them
    - ``pause``, ``longest_pause``: how long it stays open the first time, and at most; it
      doubles each time, and each pause is shortened at random by up to a half
    - ``probes``: how many calls may pass then, and must succeed before it closes
    - ``counts``: what counts as a failure: one or several exception types, or a function
    - ``name``: its name in errors and events
    """

    def __init__(
        self,
        failures: int = 5,
        *,
        ratio: float = 0.5,
        window: Duration = 10.0,
        pause: Duration = 1.0,
        longest_pause: Duration = 30.0,
        probes: int = 1,
        counts: Counts = Exception,
        name: str = "circuit",
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        if callable(failures):
            raise TypeError("write @CircuitBreaker(), with parentheses")
        if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 <= ratio <= 1:
            raise ValueError(f"ratio is a number from 0 to 1, such as 0.5, not {ratio!r}")
        if not isinstance(name, str) or not name:
            raise ValueError(f"name is a non-empty str, such as 'payments', not {name!r}")
        first = parse_duration(pause, "pause")
        longest = parse_duration(longest_pause, "longest_pause")
        if longest < first:
            raise ValueError(f"longest_pause {longest_pause!r} is below pause {pause!r}")
        if clock is not None and not isinstance(clock, Clock):
            raise TypeError(f"a clock has now(), sleep() and sleep_async(); {clock!r} does not")
        self.name = name
        self._is_failure = _failure_test(counts)
        self._clock = MONOTONIC if clock is None else clock
        self._circuit = CallCircuit(
            _whole(failures, "failures"), ratio, parse_duration(window, "window"),
            first, longest, _whole(probes, "probes"), chance,
        )  # fmt: skip
        self._hooks = Hooks()
        self._lock = threading.Lock()
        BREAKERS.add(self)

    @property
    def state(self) -> str:
        """``"closed"``, ``"open"`` or ``"half-open"``, from the first probe on."""
        return self._circuit.state

    @property
    def reason(self) -> str:
        """Why it last opened; empty if it never did."""
        return self._circuit.reason

    @property
    def retry_after(self) -> float:
        """Seconds until a call may pass; during probes, ``pause`` as an estimate."""
        with self._lock:
            return self._circuit.retry_after(self._clock.now()) / SECOND

    def trip(self, reason: str) -> None:
        """Open it manually. It probes after its pause, as usual."""
        with self._lock:
            self._circuit.open(self._clock.now(), reason)
        self._emit_changes()

    def close(self) -> None:
        """Close it manually, and forget what was counted."""
        with self._lock:
            self._circuit.close()
        self._emit_changes()

    def subscribe(self, hook: Hook) -> None:
        """Call ``hook`` with a `CircuitChanged` whenever the state changes."""
        self._hooks.add(hook)

    def unsubscribe(self, hook: Hook) -> None:
        """Stop calling ``hook``."""
        self._hooks.remove(hook)

    # The three ways to use it -----------------------------------------------------------

    def __enter__(self) -> CircuitBreaker:
        permit = self.allows()
        if permit is None:
            raise self.refusal()
        _entered.set((*_entered.get(), (self, permit)))
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        permit = _pop_permit(self)
        if error is not None and (
            not isinstance(error, Exception) or isinstance(error, CircuitOpen)
        ):
            self.gave_up(permit)
        elif error is not None and self._is_failure(error):
            self.failed(permit, f"{type(error).__name__}: {error}"[:LONGEST_REASON])
        else:
            self.succeeded(permit)

    async def __aenter__(self) -> CircuitBreaker:
        return self.__enter__()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.__exit__(kind, error, trace)

    def __call__(self, function: F) -> F:
        """Protect a function with the breaker, sync or async."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{function!r} is a generator, which runs after it was called: write"
                " 'with breaker:' inside it"
            )
        if not callable(function):
            raise TypeError(f"a breaker decorates a function, not {function!r}")
        if is_async_function(function):

            @functools.wraps(function)
            async def guarded_async(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return cast(F, guarded_async)

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast(F, guarded)

    # The methods that these use ---------------------------------------------------------

    def allows(self) -> Permit | None:
        """A permit for a call; ``None`` if it may not be made.

        With a permit, report exactly once how the call ended: `succeeded`, `failed` or
        `gave_up`. Most callers should use ``with breaker:``, which does that.
        """
        with self._lock:
            permit = self._circuit.allows(self._clock.now())
        self._emit_changes()
        return permit

    def succeeded(self, permit: Permit | None = None) -> None:
        """A call succeeded. Without a permit it counts as if it had just begun."""
        with self._lock:
            self._circuit.succeeded(permit, self._clock.now())
        self._emit_changes()

    def failed(self, permit: Permit | None = None, reason: str = "a call failed") -> None:
        """A call failed; ``reason`` is shown by `CircuitOpen` if this opens the circuit."""
        with self._lock:
            self._circuit.failed(permit, self._clock.now(), reason)
        self._emit_changes()

    def gave_up(self, permit: Permit | None = None) -> None:
        """A call ended without a result; its probe is free again."""
        with self._lock:
            self._circuit.gave_up(permit)

    def refusal(self) -> CircuitOpen:
        """The error that says why a call may not be made, and for how long."""
        return CircuitOpen(self.name, self.retry_after, self.reason)

    def _emit_changes(self) -> None:
        """Emit events without the lock: a hook may use the breaker."""
        changes = self._circuit.changes
        while changes:
            try:
                before, after, reason = changes.popleft()
            except IndexError:  # another thread has emitted it
                return
            self._hooks.emit(CircuitChanged(self.name, before, after, reason))

    def __repr__(self) -> str:
        return f"<CircuitBreaker {self.name!r}: {self.state}>"


# The breakers whose blocks this task or thread is in. `with breaker:` has no object to keep its
# permit in, and many blocks may share one breaker.
_entered: ContextVar[tuple[tuple[CircuitBreaker, Permit], ...]] = ContextVar("entered", default=())


def _pop_permit(breaker: CircuitBreaker) -> Permit | None:
    """The permit of the innermost block; None if a block ends in another context."""
    blocks = _entered.get()
    for index in reversed(range(len(blocks))):
        if blocks[index][0] is breaker:
            _entered.set(blocks[:index] + blocks[index + 1 :])
            return blocks[index][1]
    return None


def _whole(value: object, what: str) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{what} is a whole number of at least 1, not {value!r}")
    return value


def _failure_test(counts: Counts) -> Callable[[Exception], bool]:
    """The function that says whether an exception counts as a failure."""
    kinds = (counts,) if isinstance(counts, type) else counts
    if not isinstance(kinds, tuple):
        if not callable(kinds):
            raise TypeError(f"counts is types of exceptions or a function of one, not {counts!r}")
        return kinds
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise TypeError(
                f"counts has {kind!r}, which is no kind of Exception: a cancelled or"
                " interrupted call is never a failure"
            )
    return lambda error: isinstance(error, kinds)
