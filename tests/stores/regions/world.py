"""Sites and their home in virtual time, and a network that does as it likes.

The home, the rows and the agents are the real ones: the models that the Lua is checked against, and
the rounds that the thread runs. Every message of a round can be lost, late or repeated, on its way
there or back, and an agent can die or fall asleep between any two of them.

`World` checks every admission: no interval may see more than burst + rate x time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock import Limit
from penstock.durations import MILLISECOND, SECOND
from penstock.stores.regions import law
from penstock.stores.regions.account import Account as HomeAccount
from penstock.stores.regions.agent import Agent, Round
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
from penstock.stores.regions.roster import JOINED, Roster
from penstock.stores.regions.row import Applied, Share, SiteRow

START = 1_704_067_200 * SECOND


class Overrun(AssertionError):
    """More was admitted than the limit allows."""


class Home:
    def __init__(self, times: law.Times, ahead: int) -> None:
        self.times = times
        self.ahead = ahead
        self.forget()

    def forget(self) -> None:
        """It is empty again, as after a restart without a dump."""
        self.roster = Roster(self.times)
        self.accounts: dict[bytes, HomeAccount] = {}

    def ask(self, ask: Ask, true: int) -> Answer:
        now = (true + self.ahead) // MILLISECOND
        region, site, fence, floor, granted, told, requests = ask
        joined = self.roster.join(region, site, fence, floor, granted, told, now)
        replies: list[Any] = []
        if joined.status == JOINED:
            floors = self.roster.floors(now)
            for account, request in requests:
                book = self.accounts.setdefault(account.place, HomeAccount(self.times))
                replies.append(
                    book.settle(
                        region, request, account.terms, floors, now, self.roster.opens,
                        self.roster.empty,
                    )
                )  # fmt: skip
        return Answer(now, joined, self.roster.opens, replies)


@dataclass
class Lease:
    """Units that an instance of the site has taken, to spend without asking."""

    units: int
    end: int


@dataclass
class Instance:
    agent: Agent
    round: Round | None = None
    call: Any = None  # under way to its receiver
    answer: Any = None  # under way back


@dataclass
class Site:
    """The Redis of a region, and its instances. Its clock is off, and may be fast or slow."""

    name: str
    ahead: int
    speed: int  # of a thousand
    rows: dict[Account, SiteRow] = field(default_factory=dict)
    leases: dict[Account, list[Lease]] = field(default_factory=dict)
    instances: list[Instance] = field(default_factory=list)
    demand: dict[bytes, int] = field(default_factory=dict)
    agent: str = ""
    agent_until: int = 0
    fence: int = 0
    state: dict[str, Any] = field(default_factory=dict)
    is_cut_off: bool = False

    def now(self, true: int) -> int:
        return START + self.ahead + (true - START) * self.speed // 1000

    def tick(self, tick: Tick, true: int, lease: int) -> SiteState:
        now = self.now(true)
        for key, units in tick.demand.items():
            self.demand[key] = self.demand.get(key, 0) + units
        if now >= self.agent_until:
            self.agent, self.fence = tick.name, self.fence + 1
        if self.agent == tick.name:
            self.agent_until = now + lease * MILLISECOND
        return SiteState(
            now, self.agent == tick.name, self.fence, f"site-{self.name}",
            self.state.get("granted"), self.state.get("told", 0), self.state.get("heard", 0),
            self.state.get("problem", ""),
        )  # fmt: skip

    def take(self, take: Take) -> dict[bytes, int] | None:
        if take.fence != self.fence:
            return None
        taken, self.demand = self.demand, {}
        return taken

    def note(self, note: Note) -> None:
        if note.fence == self.fence:
            self.state.update(note.fields)

    def apply(self, apply: Apply, true: int) -> Looks:
        now = self.now(true)
        rows: list[Applied | None] = []
        for account, share in apply.shares:
            row = self.row(account)
            live = self.live(account, now)
            out = sum(each.units for each in live)
            last = max((each.end for each in live), default=0)
            rows.append(row.apply(share, now, out, last))
        return Looks(now, rows)

    def live(self, account: Account, now: int) -> list[Lease]:
        leases = [each for each in self.leases.get(account, ()) if each.end > now and each.units]
        self.leases[account] = leases
        return leases

    def row(self, account: Account) -> SiteRow:
        floor = self.state.get("granted") or 0
        rate, burst = account.terms.part(floor)
        row = self.rows.get(account)
        if row is None:
            row = self.rows[account] = SiteRow(account.terms, rate, burst)
        row.floor_rate, row.floor_burst = max(1, rate), burst
        return row


class World:
    def __init__(
        self, limit: str, floors: Sequence[int], *, lease: int = 3_000, seed: int = 0,
        is_skewed: bool = False,
    ) -> None:  # fmt: skip
        chance = self.chance = random.Random(seed)
        self.limit = Limit.parse(limit)
        self.times = law.times_of(lease * MILLISECOND)
        self.account = Account(law.terms_of(self.limit), b"k")
        self.now = START
        self.home = Home(self.times, chance.randint(-10, 10) * SECOND)
        # A clock that is 0.9 % fast fills a bucket so much faster: that is no fault of the law.
        self.interval = self.limit.interval_ns * (991 if is_skewed else 1000) // 1009
        if not is_skewed:
            self.interval = self.limit.interval_ns
        self.sites: list[Site] = []
        self.numbers = 0
        for at, floor in enumerate(floors):
            speed = chance.choice([991, 1000, 1009]) if is_skewed else 1000
            site = Site(f"r{at}", chance.randint(-10, 10) * SECOND, speed)
            self.sites.append(site)
            for _ in range(2):
                site.instances.append(Instance(self._agent(site, floor)))
        self.repeats: list[tuple[Site, Any]] = []
        self.admitted = 0
        self.tat = 0  # of a bucket that saw the admissions and nothing else

    def _agent(self, site: Site, floor: int) -> Agent:
        self.numbers += 1
        return Agent(f"{site.name}-{self.numbers}", site.name, floor, self.times)

    # Time and admissions --------------------------------------------------------------------

    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds * MILLISECOND

    def admit(self, units: int) -> None:
        self.admitted += units
        self.tat = max(self.tat, self.now) + units * self.interval
        over = self.tat - self.now - self.limit.burst * self.interval
        if over > 0:
            raise Overrun(f"{over / self.interval:.3f} units too many of {self.limit}")

    def hit(self, site: Site, count: int) -> int:
        """So many requests at a site; how many pass."""
        if not site.state.get("granted"):
            return 0
        row, passed = site.row(self.account), 0
        for _ in range(count):
            passed += row.hit(1, site.now(self.now))
        key = self.account.packed()
        site.demand[key] = site.demand.get(key, 0) + count
        self.admit(passed)
        return passed

    def lease(self, site: Site, units: int, milliseconds: int) -> None:
        """An instance takes units to spend them without asking, as `stores/leased` does."""
        if not site.state.get("granted"):
            return
        now, row = site.now(self.now), site.row(self.account)
        if not row.hit(units, now):
            return
        out = units + sum(each.units for each in site.live(self.account, now))
        end = min(now + milliseconds * MILLISECOND, row.tat - out * row.interval)
        if row.burst or row.rate:
            end = min(end, row.finish)
        site.leases.setdefault(self.account, []).append(Lease(units, end))

    def spend(self, site: Site) -> None:
        now = site.now(self.now)
        for lease in site.live(self.account, now):
            units = self.chance.randint(1, lease.units)
            lease.units -= units
            self.admit(units)

    # Messages -------------------------------------------------------------------------------

    def begin(self, instance: Instance) -> None:
        if instance.round is None:
            instance.round = instance.agent.round({})
            instance.call = next(instance.round)

    def deliver(self, site: Site, instance: Instance) -> None:
        """The call under way arrives, if it can."""
        if instance.call is None:
            return
        call, instance.call = instance.call, None
        if isinstance(call, Ask) and site.is_cut_off:
            self.fail(instance)
            return
        self.repeats = [*self.repeats[-20:], (site, call)]
        instance.answer = [self._do(site, call)]

    def repeat(self) -> None:
        """A call that arrived before arrives once more, and its answer goes nowhere."""
        if self.repeats:
            site, call = self.chance.choice(self.repeats)
            self._do(site, call)

    def respond(self, instance: Instance) -> None:
        """The answer under way arrives."""
        if instance.answer is None or instance.round is None:
            return
        (answer,), instance.answer = instance.answer, None
        try:
            instance.call = instance.round.send(answer)
        except StopIteration:
            instance.round = None

    def fail(self, instance: Instance) -> None:
        """What is under way is lost, and the round is over."""
        if instance.round is not None:
            instance.round.close()
        instance.round = instance.call = instance.answer = None

    def crash(self, site: Site, instance: Instance) -> None:
        self.fail(instance)
        instance.agent = self._agent(site, instance.agent.floor)

    def _do(self, site: Site, call: Any) -> Any:
        if isinstance(call, Tick):
            return site.tick(call, self.now, self.times.lease)
        if isinstance(call, Take):
            return site.take(call)
        if isinstance(call, Note):
            return site.note(call)
        if isinstance(call, Apply):
            return site.apply(call, self.now)
        return self.home.ask(call, self.now)

    def run_round(self, site: Site, milliseconds: int = 0) -> None:
        """A whole round of a site's agent, in which each call to the home takes so long."""
        for instance in site.instances:
            if instance.round is not None:
                self.fail(instance)
            self.begin(instance)
            while instance.round is not None and instance.call is not None:
                far = isinstance(instance.call, Ask)
                self.deliver(site, instance)
                if far:
                    self.pass_time(milliseconds)
                self.respond(instance)

    def lose(self, site: Site, is_applied: bool) -> None:
        """A round of the agent that ends when the home has answered, or when that was applied."""
        for instance in site.instances:
            self.fail(instance)
            self.begin(instance)
            while instance.round is not None and instance.call is not None:
                is_end = isinstance(instance.call, Ask)
                if is_applied:
                    is_end = isinstance(instance.call, Apply) and any(
                        share is not None for _, share in instance.call.shares
                    )
                self.deliver(site, instance)
                if is_end:
                    self.fail(instance)
                    return
                self.respond(instance)

    def share(self, site: Site) -> Share | None:
        """What a site has been lent, now."""
        row = site.row(self.account).at(site.now(self.now))
        if not (row.burst or row.rate):
            return None
        return Share(row.burst, row.rate, 0, row.finish, row.number)
