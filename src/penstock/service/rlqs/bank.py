"""The bank: the accounts of all limits that are divided. `MemoryBank` is for one process.

A bank answers many requests in one exchange, in order. It has the clock: a shared bank's is the
same for everybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from penstock.clock import Clock
from penstock.durations import MILLISECOND
from penstock.service.rlqs.account import Account, Reply, Request
from penstock.service.rlqs.shares import SLACK, TTL, Terms
from penstock.stores.leased.boottime import BOOT


class Entry(NamedTuple):
    """A request, the key of its account, and the limit that is divided."""

    key: str
    terms: Terms
    request: Request


class Bank(Protocol):
    async def exchange(self, entries: Sequence[Entry]) -> list[Reply | None]:
        """A reply for each; None where nothing can be said yet. Raises `StoreError`."""

    async def close(self) -> None: ...


class MemoryBank:
    """Accounts in this process, which are lost with it.

    Envoys use what an earlier process assigned for as long as it may have assigned it, so for
    that long this bank says nothing: they go on with what they have.
    """

    def __init__(self, clock: Clock = BOOT, *, first: bool = False) -> None:
        self._clock = clock
        self._accounts: dict[str, Account] = {}
        self._swept = 0
        now = clock.now() // MILLISECOND
        self._opens = now if first else now + TTL + SLACK

    async def exchange(self, entries: Sequence[Entry]) -> list[Reply | None]:
        now = self._clock.now() // MILLISECOND
        if now < self._opens:
            return [None] * len(entries)
        self._sweep(now)
        return [self._settle(entry, now) for entry in entries]

    def _settle(self, entry: Entry, now: int) -> Reply:
        account = self._accounts.get(entry.key)
        if account is None:
            account = self._accounts[entry.key] = Account(entry.terms)
        return account.settle(entry.request, entry.terms, now)

    def _sweep(self, now: int) -> None:
        """Forget accounts that are as good as new."""
        if now - self._swept < 60_000:
            return
        self._swept = now
        idle = [key for key, account in self._accounts.items() if account.expiry() <= now]
        for key in idle:
            del self._accounts[key]

    async def close(self) -> None:
        """Nothing to close."""
