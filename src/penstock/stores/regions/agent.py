"""Agent: asks the home for shares of what its site is asked for, and applies them to the rows.

Every instance of a site has one, and runs a round once in a while. Only the one that is elected,
by a lease in the site's Redis, talks to the home. A round is a generator: it yields what is to be
said to the site or to the home, and is sent the answer. So it knows no sockets and no threads, and
tests can lose, delay and repeat every message of it.

The way of a share::

    Tick    demand of this instance; who is the agent?
    Take    demand of all instances
    Apply   look at the rows, and at the site's clock: the share will end by it
    Ask     report to the home, which books before it answers
    Apply   write the shares; a row keeps the one with the highest number
    Ask     confirm what has become less, so that others may have it
    Note    the floor that is granted, and when the home was heard

An agent that dies loses what it had not passed on, and another is elected when its lease ends. One
that was only slow does no harm: rows ignore older numbers, and the home older fences.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.durations import MILLISECOND, SECOND
from penstock.stores.regions import roster
from penstock.stores.regions.account import CONFIRM, REPORT, Reply, Request
from penstock.stores.regions.law import USABLE_PERCENT, Times
from penstock.stores.regions.messages import (
    Account,
    Answer,
    Apply,
    Ask,
    Looks,
    Note,
    SiteState,
    Take,
    Tick,
)
from penstock.stores.regions.row import APPLIED, Applied, Share

Round = Generator[Tick | Take | Note | Apply | Ask, Any, None]

# A call of so many accounts blocks the server for about a millisecond.
MOST_ACCOUNTS = 64


@dataclass(slots=True)
class Active:
    """A key that needs more than its floor, and what it was asked for since the last report."""

    units: int = 0
    idle_since: int = 0


class Agent:
    def __init__(self, name: str, region: str, floor: int, times: Times) -> None:
        self.name = name
        self.region = region
        self.floor = floor
        self.times = times
        self.state: SiteState | None = None
        self.active: dict[Account, Active] = {}
        self.lent: dict[Account, tuple[Applied, Reply]] = {}
        self._taken_at = 0

    def round(self, demand: Mapping[bytes, int]) -> Round:
        """``demand`` is what this instance was asked for, by packed `Account`."""
        state: SiteState = yield Tick(self.name, demand)
        self.state = state
        if not state.is_agent:
            self.active.clear()
            self.lent.clear()
            self._taken_at = 0
            return
        taken: Mapping[bytes, int] | None = yield Take(state.fence)
        if taken is None:
            return
        elapsed = self._count(taken, state.now)
        granted = state.granted or 0
        if self.floor < granted:  # before the home hears of it, and may lend the difference
            granted = self.floor
            yield Note(state.fence, {"granted": granted})
        accounts = list(self.active)
        batches = [
            accounts[at : at + MOST_ACCOUNTS] for at in range(0, len(accounts), MOST_ACCOUNTS)
        ]
        for batch in batches or [[]]:
            answer: Answer | None = yield from self._settle(state, granted, batch, elapsed)
            if answer is None:
                return
            news = self._news(answer, state)
        yield Note(state.fence, news)

    def _count(self, taken: Mapping[bytes, int], now: int) -> int:
        """Note the demand; the milliseconds in which it came."""
        since = self._taken_at or now - self.times.pace * MILLISECOND
        self._taken_at = now
        for data, units in taken.items():
            account = Account.unpacked(data)
            self.active.setdefault(account, Active(idle_since=now)).units += units
        for account, active in list(self.active.items()):
            if active.units:
                active.idle_since = now
            elif now - active.idle_since > self.times.lease * MILLISECOND // 2:
                del self.active[account]
                self.lent.pop(account, None)
        return max(1, (now - since) // MILLISECOND)

    def _settle(
        self, state: SiteState, granted: int, batch: list[Account], elapsed: int
    ) -> Generator[Apply | Ask | Note, Any, Answer | None]:
        looks: Looks = yield Apply(granted, [(account, None) for account in batch])
        requests = []
        for account, row in zip(batch, looks.rows, strict=True):
            if row is not None:
                requests.append((account, self._report(account, row, elapsed)))
        answer: Answer = yield self._ask(state, granted, requests)
        if answer.joined.status != roster.JOINED:
            yield Note(state.fence, {"problem": self._problem(answer)})
            return None
        for account, _ in requests:
            self.active[account].units = 0
        finish = looks.now + self.times.lease * MILLISECOND * USABLE_PERCENT // 100
        replies = [
            (account, request, reply)
            for (account, request), reply in zip(requests, answer.replies, strict=True)
            if reply is not None
        ]
        shares = [
            (account, Share(reply.burst, reply.rate, reply.paid, finish, reply.number))
            for account, _, reply in replies
        ]
        if not shares:
            return answer
        applied: Looks = yield Apply(granted, shares)
        confirms = []
        for (account, request, reply), row in zip(replies, applied.rows, strict=True):
            if row is None:
                continue
            self.lent[account] = row, reply
            is_less = row.burst < request.burst or row.rate < request.rate
            if row.status == APPLIED and is_less:
                number, burst, rate = row.number, row.burst, row.rate
                confirm = Request(CONFIRM, 0, number, burst, rate, row.left, row.returned)
                confirms.append((account, confirm))
        if confirms:
            answer = yield self._ask(state, granted, confirms)
        return answer

    def _report(self, account: Account, row: Applied, elapsed: int) -> Request:
        span = account.terms.span
        demand = self.active[account].units * span // elapsed
        if row.demand:
            demand += row.demand * span * MILLISECOND // SECOND
            self.active[account].idle_since = self._taken_at
        return Request(REPORT, demand, row.number, row.burst, row.rate, row.left)

    def _ask(self, state: SiteState, granted: int, requests: list[tuple[Account, Request]]) -> Ask:
        return Ask(self.region, state.site, state.fence, self.floor, granted, state.told, requests)

    def _news(self, answer: Answer, state: SiteState) -> dict[str, int | str]:
        _, granted, told = answer.joined
        news: dict[str, int | str] = {"heard": state.now, "problem": "", "told": told}
        if granted > 0 or state.granted is not None:
            news["granted"] = granted
        return news

    def _problem(self, answer: Answer) -> str:
        status, _, reserved = answer.joined
        if status == roster.TOO_MUCH:
            return (
                f"the floors of all regions add up to {reserved / 10_000:g} %, more than 100 %:"
                f" lower the floor of {self.region!r} or of another region"
            )
        if status == roster.TAKEN:
            return f"another site has the name {self.region!r}: give each site a name of its own"
        return ""  # there is a newer agent, which says what there is to say
