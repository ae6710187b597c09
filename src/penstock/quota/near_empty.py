"""When a balance becomes nearly empty: the event is emitted once, by whoever made it so.

A balance is nearly empty when what has not been spent is at most a share of the credits that count
now. What is held has not been spent: a stock that is set aside for a gate empties nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.events import Hooks, QuotaNearEmpty
from penstock.quota.book import Book
from penstock.quota.errors import InvalidQuota
from penstock.quota.views import runs_out

NEAR_EMPTY = 0.1


def check_share(share: object) -> float:
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:
        raise InvalidQuota(
            f"near_empty is a share from 0 to below 1, such as {NEAR_EMPTY}, not {share!r:.100}"
        )
    return float(share)


class Watch:
    """The balances of a transaction that were not nearly empty before it."""

    def __init__(self, hooks: Hooks, share: float, name: str) -> None:
        self._hooks = hooks
        self._share = share
        self._name = name
        self._enough: set[tuple[str, str]] = set()

    def __bool__(self) -> bool:
        """Whether anybody listens."""
        return bool(self._hooks)

    def begin(self) -> None:
        self._enough.clear()

    def before(self, books: Iterable[Book]) -> None:
        """Called before what has become due happens, and after it: both may empty a balance."""
        for book in books:
            for meter in book.balances:
                remaining, amount = _remaining(book, meter)
                if remaining > amount * self._share:
                    self._enough.add((book.account.id, meter))

    def after(self, books: Iterable[Book], now: int) -> list[QuotaNearEmpty]:
        """The events, to be emitted when the transaction has been committed."""
        return [
            QuotaNearEmpty(
                self._name, book.account.id, meter, remaining, amount, runs_out(book, meter, now)
            )
            for book in books
            for meter in book.balances
            if (book.account.id, meter) in self._enough
            for remaining, amount in [_remaining(book, meter)]
            if remaining <= amount * self._share
        ]

    def emit(self, events: Iterable[QuotaNearEmpty]) -> None:
        for event in events:
            self._hooks.emit(event)


def _remaining(book: Book, meter: str) -> tuple[int, int]:
    """What has not been spent, and what the credits that count now have granted."""
    balance = book.balances[meter]
    amount = sum(credit.amount - credit.gone for credit in book.live(meter))
    return balance.granted - balance.spent, amount
