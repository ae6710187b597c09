"""The exceptions that Penstock raises.

::

    PenstockError
     +-- LimitError     (ValueError)   an invalid limit
     +-- InvalidKey     (TypeError, ValueError)   not a non-empty str
     +-- InvalidCost    (TypeError, ValueError)   not a whole number of at least 1
     +-- StoreError                    a store that cannot do what it should
     |    +-- StoreFileError           a shared-memory file that cannot be used
     |    +-- UnsupportedLimit         a limit that this store cannot hold
     |    +-- StoreUnavailable         a shared store that does not answer
     |    +-- ForeignValue             a key in a shared store with a value of another program
     |    +-- RevisionConflict         a value that somebody else has changed meanwhile
     |    +-- NotReplicated            a value that too few replicas have confirmed
     +-- ValueTooLarge  (ValueError)   more than a value of a key-value store may have
     +-- TooManyLimits                 requests have brought too many different limits
     +-- RulesError     (ValueError)   rules that cannot be used; lists all problems
     +-- LimitExceeded                 a guarded call was refused; carries the Decision
     +-- CircuitOpen                   a call was not made: its circuit breaker is open
     +-- NoSlot                        all slots are taken, and the call did not get one
          +-- LineFull                 there was no place in the queue, or no time to wait
          +-- WaitedTooLong  (TimeoutError)   its time was up before it got a slot
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.decision import Decision


class PenstockError(Exception):
    """The base class of all of them."""


class LimitError(PenstockError, ValueError):
    """An invalid limit: the message says what is wrong and shows a valid one."""


class InvalidKey(PenstockError, TypeError, ValueError):
    """A key that is not a non-empty ``str``."""


class InvalidCost(PenstockError, TypeError, ValueError):
    """A cost that is not a whole number of at least 1."""


class StoreError(PenstockError):
    """A store that cannot do what it was called for."""

    # The failure policies of the undecided limits, where they are known.
    policies: tuple[str | None, ...] = ()


class StoreFileError(StoreError):
    """A shared-memory file that cannot be used; the file was left as it was."""


class UnsupportedLimit(StoreError, ValueError):
    """A limit whose state does not fit in this store."""


class StoreUnavailable(StoreError):
    """A shared store that does not answer, or not in time.

    Decisions do not raise it: they follow the failure policy. Calls that must not fail
    silently do: ``connect`` and ``reset``.
    """


class ForeignValue(StoreError):
    """A key in a shared store holds something that Penstock did not write there.

    Rate limits do not raise it: they follow the failure policy.
    """


class RevisionConflict(StoreError):
    """A write that expected another revision: somebody else has changed the key meanwhile.

    ``expected`` and ``actual`` are revisions; 0 means that the key does not exist.
    """

    def __init__(self, key: str, expected: int, actual: int) -> None:
        self.key = key
        self.expected = expected
        self.actual = actual
        now = f"is at revision {actual}" if actual else "does not exist"
        wanted = f"revision {expected}" if expected else "that it does not exist"
        super().__init__(f"{key!r} {now}, and the write expected {wanted}: read it again")

    def __reduce__(self) -> tuple[type[RevisionConflict], tuple[str, int, int]]:
        """Can be pickled, to come back from another process."""
        return RevisionConflict, (self.key, self.expected, self.actual)


class NotReplicated(StoreError):
    """A value was written, but too few replicas confirmed it in time.

    It is in force at ``revision``. It may be lost if the primary fails now.
    """

    def __init__(self, key: str, revision: int, confirmed: int, wanted: int) -> None:
        self.key = key
        self.revision = revision
        self.confirmed = confirmed
        self.wanted = wanted
        super().__init__(
            f"{key!r} was written as revision {revision}, but {confirmed} of {wanted} replicas"
            " have confirmed it"
        )

    def __reduce__(self) -> tuple[type[NotReplicated], tuple[str, int, int, int]]:
        """Can be pickled, to come back from another process."""
        return NotReplicated, (self.key, self.revision, self.confirmed, self.wanted)


class ValueTooLarge(PenstockError, ValueError):
    """More bytes than a value of a key-value store may have."""


class TooManyLimits(PenstockError):
    """A request brought a limit of its own, and too many different ones are in use already."""


class RulesError(PenstockError, ValueError):
    """Rules that cannot be used.

    ``problems`` lists everything that is wrong, with file, line and column.
    """

    def __init__(self, problems: str | Sequence[object]) -> None:
        self.problems: list[object] = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[RulesError], tuple[list[object]]]:
        return RulesError, (self.problems,)


class LimitExceeded(PenstockError):
    """A guarded call was refused.

    Raised by ``slot``, by the decorator and on entering a refused reservation.
    ``decision`` says which limit refused it, and for how long.
    """

    def __init__(self, key: str, decision: Decision) -> None:
        self.key = key
        self.decision = decision
        after = decision.retry_after
        when = "never at this cost" if after is None else f"retry after {after:.3f} s"
        super().__init__(f"{key!r} is over its limit of {decision.limit}: {when}")

    def __reduce__(self) -> tuple[type[LimitExceeded], tuple[str, Decision]]:
        """Can be pickled, to come back from another process."""
        return LimitExceeded, (self.key, self.decision)


class CircuitOpen(PenstockError):
    """A call was not made, because its circuit breaker is open.

    ``name`` is the breaker's name, ``reason`` why it opened, ``retry_after`` the seconds
    until a call may pass again.
    """

    def __init__(self, name: str, retry_after: float, reason: str) -> None:
        self.name = name
        self.retry_after = retry_after
        self.reason = reason
        super().__init__(f"{name!r} is open: {reason}; retry after {retry_after:.3f} s")

    def __reduce__(self) -> tuple[type[CircuitOpen], tuple[str, float, str]]:
        """Can be pickled, to come back from another process."""
        return CircuitOpen, (self.name, self.retry_after, self.reason)


class NoSlot(PenstockError):
    """A call got no slot of a concurrency limiter.

    ``key`` is the key of the slots, ``running`` and ``waiting`` how many calls held a slot and
    waited in the queue, ``reason`` why there was none. Usually it is a `LineFull` or a
    `WaitedTooLong`; `NoSlot` itself is raised when shared slots cannot be counted.
    """

    def __init__(self, key: str, running: int, waiting: int, reason: str) -> None:
        self.key = key
        self.running = running
        self.waiting = waiting
        self.reason = reason
        super().__init__(f"no slot for {key!r}, {running} running, {waiting} waiting: {reason}")

    def __reduce__(self) -> tuple[type[NoSlot], tuple[str, int, int, str]]:
        """Can be pickled, to come back from another process."""
        return type(self), (self.key, self.running, self.waiting, self.reason)


class LineFull(NoSlot):
    """The queue was full, there was no time to wait, or a call of higher rank took the place."""


class WaitedTooLong(NoSlot, TimeoutError):
    """The time to wait was up before a slot was free."""
