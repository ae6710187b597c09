"""Decides on plain requests from Envoy by plans, from bytes to bytes.

Envoy sends the same bytes for the same descriptors, so the plan of a request that comes again
is kept, by its bytes::

    bytes ── kept? ────────────────────────────────── Plan ── hit ── rows ── bytes
         └── read_request ── Planner.make (if plain) ─┘

What responses report about a rule's limits is the same for all its requests. It is computed once
and attached to the plan.

This module is compiled where possible.
"""

from __future__ import annotations

from penstock.base_gate import BaseGate
from penstock.clock import Clock
from penstock.decision import Decision
from penstock.rules.deciding.plan import PlainRule, Plan, PlanCache, Planner
from penstock.service.envoy_constants import LONGEST_KEPT, MOST_PLANS, OK, OVER_LIMIT, SEEN
from penstock.service.grpc_status import UNKNOWN, GrpcError
from penstock.service.rls_general import reported_limit
from penstock.service.rls_request import RateLimitRequest, read_request
from penstock.service.rls_response import CurrentLimit, Row, new_row, row_of, write_row
from penstock.stores.base import pick


class MessagePlans:
    """Makes and keeps plans of messages. Attached to each are its limits, by descriptor."""

    def __init__(self, gate: BaseGate) -> None:
        self.gate = gate
        self.cache = PlanCache(MOST_PLANS, LONGEST_KEPT, SEEN)
        self.planner: Planner | None = None  # whose rules these are:
        self.limits: dict[PlainRule, list[CurrentLimit]] = {}

    def plan(self, message: bytes) -> Plan | RateLimitRequest:
        """The plan of a request, or the request itself if it is not plain."""
        planner: Planner = self.gate.planner
        plan = self.cache.get(message, planner)
        if plan is not None:
            return plan
        request = read_request(message)
        check(request)
        plan = self.make(request, planner)
        if plan is None:
            return request
        if self.cache.wants(message):
            self.cache.put(message, plan)
        return plan

    def make(self, request: RateLimitRequest, planner: Planner) -> Plan | None:
        descriptors = []
        for descriptor in request.descriptors:
            if not descriptor.is_plain():
                return None
            descriptors.append(descriptor.pairs)
        plan = planner.make(request.domain, descriptors, request.hits)
        if plan is None:
            return None
        if planner is not self.planner:
            self.planner = planner
            self.limits = {}
        attachment: list[list[CurrentLimit]] = []
        for rule in plan.rules:
            attachment.append(self.limits_of(rule))
        plan.attachment = attachment
        return plan

    def limits_of(self, rule: PlainRule | None) -> list[CurrentLimit]:
        if rule is None:
            return []
        limits = self.limits.get(rule)
        if limits is None:
            limits = [reported_limit(item.limit, item.name, rule.rule.id) for item in rule.counted]
            self.limits[rule] = limits
        return limits


def answer_one(plan: Plan, decision: Decision, clock: Clock) -> bytes:
    """The response for one descriptor with one limit."""
    code = OK if decision._allowed else OVER_LIMIT
    return write_row(row_of(decision, plan.attachment[0][0], code, clock))


def rows_of(plan: Plan, decisions: list[Decision], clock: Clock) -> list[Row]:
    """The status of each descriptor: that of its strictest limit."""
    rows: list[Row] = []
    at = 0
    for limits in plan.attachment:
        count = len(limits)
        if count == 0:  # no rule matched
            rows.append(new_row(OK, None, 0, -1))
            continue
        best, limit = decisions[at], limits[0]
        for index in range(1, count):
            chosen = pick(best, decisions[at + index])
            if chosen is not best:
                best, limit = chosen, limits[index]
        code = OK if best._allowed else OVER_LIMIT
        rows.append(row_of(best, limit, code, clock))
        at += count
    return rows


def check(request: RateLimitRequest) -> None:
    """Refuse an empty request, with the same status as Envoy's service."""
    if not request.domain:
        raise GrpcError(UNKNOWN, "a request names its domain; this one is empty")
    if not request.descriptors:
        raise GrpcError(UNKNOWN, "a request has at least one descriptor; this one has none")
