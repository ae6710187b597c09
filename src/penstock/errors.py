"""The exceptions that Penstock raises.

::

    PenstockError
     +-- LimitError     (ValueError)   a limit that makes no sense
     +-- InvalidKey     (TypeError, ValueError)   not a non-empty str
     +-- InvalidCost    (TypeError, ValueError)   not a whole number of at least 1
     +-- StoreError                    a store that cannot do what was asked
     |    +-- StoreFileError           a shared-memory file that cannot be used
     |    +-- UnsupportedLimit         a limit that this store cannot hold
     |    +-- StoreUnavailable         a shared store that does not answer
     |    +-- ForeignValue             a key in a shared store that holds something else
     +-- TooManyLimits                 requests have brought more limits than are counted
     +-- RulesError     (ValueError)   rules that cannot be used; lists all problems
     +-- LimitExceeded                 a guarded call was refused; carries the Decision
     +-- CircuitOpen                   a call was not made: its circuit breaker is open
     +-- NoSlot                        a call could not run beside those that are running
          +-- LineFull                 there was no place to wait, or no time
          +-- WaitedTooLong  (TimeoutError)   its time was up before its turn came
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.decision import Decision


class PenstockError(Exception):
    """The root of them all."""


class LimitError(PenstockError, ValueError):
    """A limit that makes no sense: the message says what was wrong and shows a right one."""


class InvalidKey(PenstockError, TypeError, ValueError):
    """A key that is not a non-empty ``str``."""


class InvalidCost(PenstockError, TypeError, ValueError):
    """A cost that is not a whole number of at least 1."""


class StoreError(PenstockError):
    """A store that cannot do what was asked of it."""

    # The failure policies of the limits that could not be decided on, where they are known.
    policies: tuple[str | None, ...] = ()


class StoreFileError(StoreError):
    """A shared-memory file that cannot be used; the file was left as it was."""


class UnsupportedLimit(StoreError, ValueError):
    """A limit whose state does not fit in this store."""


class StoreUnavailable(StoreError):
    """A shared store that does not answer, or not in time.

    Decisions do not raise it: they follow the failure policy. What must be known to
    have happened does: ``connect`` and ``reset``.
    """


class ForeignValue(StoreError):
    """A key in a shared store holds something that Penstock did not write there.

    Rate limits do not raise it: they follow the failure policy.
    """


class TooManyLimits(PenstockError):
    """A request brought a limit of its own, and there are as many different ones as may be."""


class RulesError(PenstockError, ValueError):
    """Rules that cannot be used.

    ``problems`` lists all that is wrong, each with its file, line and column.
    """

    def __init__(self, problems: str | Sequence[object]) -> None:
        self.problems: list[object] = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[RulesError], tuple[list[object]]]:
        return RulesError, (self.problems,)


class LimitExceeded(PenstockError):
    """A guarded call was refused.

    Raised by ``slot``, by the decorator and on entering a refused reservation.
    ``decision`` says by which limit and for how long.
    """

    def __init__(self, key: str, decision: Decision) -> None:
        self.key = key
        self.decision = decision
        after = decision.retry_after
        when = "never at this cost" if after is None else f"retry after {after:.3f} s"
        super().__init__(f"{key!r} is over its limit of {decision.limit}: {when}")

    def __reduce__(self) -> tuple[type[LimitExceeded], tuple[str, Decision]]:
        """It may have to come back from another process."""
        return LimitExceeded, (self.key, self.decision)


class CircuitOpen(PenstockError):
    """A call was not made, because its circuit breaker is open.

    ``name`` is the breaker's, ``reason`` what opened it, ``retry_after`` the seconds until
    a call may pass again.
    """

    def __init__(self, name: str, retry_after: float, reason: str) -> None:
        self.name = name
        self.retry_after = retry_after
        self.reason = reason
        super().__init__(f"{name!r} is open: {reason}; retry after {retry_after:.3f} s")

    def __reduce__(self) -> tuple[type[CircuitOpen], tuple[str, float, str]]:
        """It may have to come back from another process."""
        return CircuitOpen, (self.name, self.retry_after, self.reason)


class NoSlot(PenstockError):
    """A call could not run beside those that are running.

    ``key`` says for which slots, ``running`` and ``waiting`` how many had one and stood in
    the line, ``reason`` why there was none. `LineFull` and `WaitedTooLong` are what mostly
    happens; `NoSlot` itself is raised where the slots of a fleet cannot be counted.
    """

    def __init__(self, key: str, running: int, waiting: int, reason: str) -> None:
        self.key = key
        self.running = running
        self.waiting = waiting
        self.reason = reason
        super().__init__(f"no slot for {key!r}, {running} running, {waiting} waiting: {reason}")

    def __reduce__(self) -> tuple[type[NoSlot], tuple[str, int, int, str]]:
        """It may have to come back from another process."""
        return type(self), (self.key, self.running, self.waiting, self.reason)


class LineFull(NoSlot):
    """There was no place in the line, or no time to wait in it, or somebody took the place."""


class WaitedTooLong(NoSlot, TimeoutError):
    """The time to wait was up before a slot was free."""
