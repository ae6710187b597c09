"""The exceptions of quotas.

::

    QuotaError (PenstockError)
     +-- QuotaExceeded                there is not enough left
     +-- UnknownAccount  (LookupError)   no such account: open it first
     +-- UnknownPlan     (LookupError)   no such plan in this ledger
     +-- UnknownHold     (LookupError)   no such hold in this ledger
     +-- AccountExists                it was opened before, with other settings
     +-- RefReused                    a ref that was used for something else
     +-- InvalidQuota    (ValueError, TypeError)   an amount, name, zone or plan that is not valid
     +-- LedgerUnavailable            the database does not answer
     +-- LedgerVersion                the database was written by a newer Penstock, or by others
"""

from __future__ import annotations

from penstock.errors import PenstockError


class QuotaError(PenstockError):
    """The base class of all of them."""


class QuotaExceeded(QuotaError):
    """An account has not enough left.

    ``wanted`` and ``available`` are units of ``meter``. ``renews`` is when the account's next
    period begins, in nanoseconds since 1970, or None if it has no plan for this meter.
    """

    def __init__(
        self, account: str, meter: str, wanted: int, available: int, renews: int | None
    ) -> None:
        self.account = account
        self.meter = meter
        self.wanted = wanted
        self.available = available
        self.renews = renews
        super().__init__(
            f"account {account!r} has {available:,} {meter} left, and {wanted:,} were asked for"
        )

    def __reduce__(self) -> tuple[type[QuotaExceeded], tuple[str, str, int, int, int | None]]:
        """Can be pickled, to come back from another process."""
        return QuotaExceeded, (self.account, self.meter, self.wanted, self.available, self.renews)


class UnknownAccount(QuotaError, LookupError):
    """The ledger has no account of this name."""

    def __init__(self, account: str) -> None:
        self.account = account
        super().__init__(f"there is no account {account!r}: open it with ledger.open({account!r})")

    def __reduce__(self) -> tuple[type[UnknownAccount], tuple[str]]:
        return UnknownAccount, (self.account,)


class UnknownPlan(QuotaError, LookupError):
    """The ledger has no plan of this name; the message lists those that it has."""


class UnknownHold(QuotaError, LookupError):
    """The ledger has no hold of this id."""


class AccountExists(QuotaError):
    """The account was opened before, with another plan, zone or anchor."""


class RefReused(QuotaError):
    """A ``ref`` that was used before, for another amount or meter. Nothing was written."""


class InvalidQuota(QuotaError, ValueError, TypeError):
    """An amount, a name, a time zone or a plan that is not valid. Nothing was written."""


class LedgerUnavailable(QuotaError):
    """The database does not answer.

    What was asked for may have been written or not. All verbs of a ledger can be repeated: with
    the same ``ref``, or the same total of a source, nothing is counted twice.
    """


class LedgerVersion(QuotaError):
    """The database holds a ledger of a newer version, or something else. It was left untouched."""
