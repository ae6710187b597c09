"""The short way of a rate limit request: from its bytes to a plan, and from that to the answer.

It is for requests to which nothing special applies: plain rules, nothing switched, no limits
or hits of a descriptor's own, nothing to debit. Envoy sends the same bytes for the same
descriptors, so the plan of a request that comes again is kept, by its bytes::

    bytes ── kept? ───────────────────────── Plan ── counters.hit ── Row ── bytes
         └── read_request ── match ─────────┘

It is kept when its bytes come for the second time: keys that come only once would drive out
those that come often. Plans are for one set of rules, and are forgotten with it.

This module is compiled where it can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.decision import Decision
from penstock.gate import Gate
from penstock.rules.compiled import Compiled, Told, is_plain
from penstock.rules.match import Match
from penstock.rules.model import Rule
from penstock.rules.work import Item
from penstock.service.envoy_constants import LONGEST_KEPT, MOST_PLANS, OK, OVER_LIMIT, SEEN
from penstock.service.grpc_status import UNKNOWN, GrpcError
from penstock.service.rls_general import limit_told
from penstock.service.rls_request import Request, read_request
from penstock.service.rls_response import Row, new_row, row_of, write_row
from penstock.stores.base import pick

if TYPE_CHECKING:
    from penstock.rules.compiled import Counted


class Ready:
    """A rule that always means the same limits, with what is the same for all its requests."""

    def __init__(self, rule: Rule, counted: tuple[Counted, ...]) -> None:
        self.rule = rule
        self.counted = counted
        self.cost = rule.cost
        self.counters = [one.counters for one in counted]
        self.limits = [limit_told(one.limit, one.name, rule.id) for one in counted]
        self.envoy = any(one.envoy for one in counted)


class Plan:
    """What a request asks of the store. ``readies`` has an entry, or None, for each descriptor."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.items: list[Item] = []
        self.readies: list[Ready | None] = []
        self.single = False  # one descriptor with one limit
        self._told: list[Told] | None = None

    def told(self) -> list[Told]:
        """For a verdict: see `Lane.take`. Made when it is first asked for."""
        if self._told is None:
            self._told = [
                (asked.pairs, None, ())
                if ready is None
                else (asked.pairs, ready.rule, ready.counted)
                for asked, ready in zip(self.request.asked, self.readies, strict=True)
            ]
        return self._told

    def hit(self) -> Decision:
        """Decide on the only item."""
        counters, key, cost = self.items[0]
        return counters.hit(key, cost)

    def answer(self, decision: Decision, clock: Clock) -> bytes:
        """Of a single one."""
        ready = self.readies[0]
        assert ready is not None
        code = OK if decision._allowed else OVER_LIMIT
        return write_row(row_of(decision, ready.limits[0], code, clock))

    def rows(self, decisions: list[Decision], clock: Clock) -> list[Row]:
        """The status of each descriptor: that of its strictest limit."""
        rows: list[Row] = []
        at = 0
        for ready in self.readies:
            if ready is None:
                rows.append(new_row(OK, None, 0, -1))
                continue
            best, limit = decisions[at], ready.limits[0]
            count = len(ready.limits)
            for index in range(1, count):
                chosen = pick(best, decisions[at + index])
                if chosen is not best:
                    best, limit = chosen, ready.limits[index]
            code = OK if best._allowed else OVER_LIMIT
            rows.append(row_of(best, limit, code, clock))
            at += count
        return rows


class Planner:
    """Makes plans of requests, and keeps them."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.compiled: Compiled | None = None  # what all below was made for
        self.switches = gate.switches
        self.plans: dict[bytes, Plan] = {}
        self.readies: dict[int, Ready | None] = {}
        self.seen: list[int | None] = [None] * SEEN

    def plan(self, message: bytes) -> Plan | Request:
        """The plan of a request, or what was read where it may not go the short way."""
        compiled = self.gate.compiled
        if compiled is not self.compiled:
            self.forget(compiled)
        calm: bool = self.switches.calm
        if calm:
            plan = self.plans.get(message)
            if plan is not None:
                return plan
        request = read_request(message)
        check(request)
        if not calm:
            return request
        plan = self.make(request)
        if plan is None:
            return request
        if len(message) <= LONGEST_KEPT:
            self.keep(message, plan)
        return plan

    def forget(self, compiled: Compiled) -> None:
        """Other rules are in force."""
        self.compiled = compiled
        self.plans.clear()
        self.readies.clear()

    def keep(self, message: bytes, plan: Plan) -> None:
        known = hash(message)
        place = known & (SEEN - 1)
        if self.seen[place] != known:
            self.seen[place] = known
            return
        if len(self.plans) >= MOST_PLANS:
            self.plans.clear()
        self.plans[message] = plan

    def make(self, request: Request) -> Plan | None:
        """None if something is special about the request: then the gate sees to it."""
        assert self.compiled is not None
        domain = request.domain
        if domain not in self.compiled.lanes:
            return None
        find = self.compiled.matchers[domain].match
        plan = Plan(request)
        for asked in request.asked:
            if not asked.is_plain():
                return None
            match = find(asked.pairs)
            if match is None:
                plan.readies.append(None)
                continue
            if match.denied or match.allowed:
                return None
            ready = self.ready(match)
            if ready is None or (request.hits > 1 and ready.envoy):
                return None  # of the latter: debits may have to be booked
            plan.readies.append(ready)
            cost = ready.cost if request.hits <= 1 else ready.cost * request.hits
            for counters in ready.counters:
                plan.items.append((counters, match.key, cost))
        items = plan.items
        if len(items) == 1:
            plan.single = len(plan.readies) == 1
        elif len({(id(counters), key) for counters, key, _ in items}) < len(items):
            return None  # one counter twice
        return plan

    def ready(self, match: Match) -> Ready | None:
        rule = match.rule
        known = id(rule)  # which lives as long as the compiled rules
        if known in self.readies:
            return self.readies[known]
        assert self.compiled is not None
        found = None
        if is_plain(rule):
            counted = self.compiled.counted(match, (), 0)
            if any(one.heritage is not None for one in counted):
                return None  # for now: what it inherits runs out
            found = Ready(rule, counted)
        self.readies[known] = found
        return found


def check(request: Request) -> None:
    """That it asks for something; if not, the status is that of Envoy's service."""
    if not request.domain:
        raise GrpcError(UNKNOWN, "a request names its domain; this one is empty")
    if not request.asked:
        raise GrpcError(UNKNOWN, "a request has at least one descriptor; this one has none")
