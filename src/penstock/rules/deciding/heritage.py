"""Carries usage over from limits that have changed since to the limits in force.

Nothing is moved at a reload: a store cannot list its keys. A key's first request after it looks
at all limits that were in force since the key's last request, as far as they still remember, and
takes the largest share that was used of any of them:

    used of the new = max(its own usage, used of the old * burst of the new / burst of the old)

rounded up. So the time until that first request counts by the old limit. A process remembers the
keys that it has seen (`SeenKeys`). A key that it has not seen, or has forgotten, is compared with
all ancestors again, which never makes a limit looser.

Other requests for a key wait while its usage is being carried over.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from penstock.decision import Decision
from penstock.errors import LimitError, UnsupportedLimit
from penstock.limits import Limit
from penstock.rules.deciding.lineage import Ancestor, Heritage
from penstock.rules.deciding.results import DescriptorResult
from penstock.rules.deciding.store_calls import Done, StoreCall, Work
from penstock.rules.deciding.switches import Override
from penstock.stores.base import Counters, Store

# A limit of a request that inherits, and the override that applies to it.
_Inheritance = tuple[DescriptorResult, Counters, Heritage, Override | None]


@dataclass(slots=True)
class _Claim:
    """What one limit of a request is to take over."""

    counters: Counters
    key: str
    hits: int
    ancestors: list[Counters]


def carry(
    results: Sequence[DescriptorResult], store: Store, now: int
) -> Generator[Work, Done, None]:
    """Carry over what the keys of a request had used of limits that have changed since."""
    inherited = [
        (result, counters, *inheritance)
        for result in results
        for (counters, _), inheritance in zip(result.counted, result.heritages, strict=True)
        if inheritance is not None and inheritance[0].until > now
    ]
    if not inherited:
        return
    while any(heritage.due(result.key, now) for result, _, heritage, _ in inherited):
        mine: Future[None] = Future()
        mine.set_running_or_notify_cancel()  # so that a waiting request cannot cancel it
        held: dict[tuple[int, str], Heritage] = {}
        claims: dict[tuple[int, str], _Claim] = {}
        waits: dict[int, Future[None]] = {}
        done = False
        try:
            for result, counters, heritage, override in inherited:
                key = result.key
                if not heritage.due(key, now) or (id(heritage), key) in held:
                    continue
                other = heritage.claim(key, mine)
                if other is not mine:
                    waits[id(other)] = other
                    continue
                held[id(heritage), key] = heritage
                # Ask again: another thread may have finished just before the claim.
                old = sources(heritage.due(key, now), override, store)
                new_claim = _Claim(counters, key, result.hits, [])
                claim = claims.setdefault((id(counters), key), new_claim)
                claim.ancestors += [each for each in old if each.limit != counters.limit]
            done = yield from _carry_claims(list(claims.values()))
        finally:
            for (_, key), heritage in held.items():
                heritage.settle(key, done=done)
            mine.set_result(None)
        if not waits:
            break
        yield Work(waits=list(waits.values()))
    refunds = _refunds(inherited, store)
    if refunds:
        yield Work(calls=refunds)


def sources(
    ancestors: Sequence[Ancestor], override: Override | None, store: Store
) -> list[Counters]:
    """Where the ancestors were counted, under an override if the key has one."""
    counters = []
    for ancestor in ancestors:
        limit = ancestor.limit
        if override is not None:
            try:
                counters.append(store.counters(override.apply(limit)))
                continue
            except (LimitError, UnsupportedLimit):
                pass  # then the rule's own limit was in force
        counters.append(store.counters(limit))
    return counters


def _carry_claims(claims: Sequence[_Claim]) -> Generator[Work, Done, bool]:
    """Return whether it worked: not if the store is unavailable."""
    claims = [claim for claim in claims if claim.ancestors]
    if not claims:
        return True
    looks: list[StoreCall] = [
        ("peek", counters, (claim.key, 1))
        for claim in claims
        for counters in (claim.counters, *claim.ancestors)
    ]
    _, answers = yield Work(calls=looks)
    if any(answer.degraded for answer in answers):
        return False
    decisions: Iterator[Decision] = iter(answers)
    charges: list[StoreCall] = []
    for claim in claims:
        new = next(decisions)
        charges += _charges(claim, new, [next(decisions) for _ in claim.ancestors])
    if charges:
        yield Work(calls=charges)
    return True


def _charges(claim: _Claim, new: Decision, old: Sequence[Decision]) -> list[StoreCall]:
    limit, whole = claim.counters.limit, full(new)
    # If keys start less than full, what remains does not say how much was used.
    known = [decision for decision in old if decision.limit.initial is None]
    shares = [-(-used(decision) * whole // (full(decision) or 1)) for decision in known]
    share = max(shares, default=0)
    charges: list[StoreCall] = []
    if limit.lockout_ns and any(_is_locked(decision, claim.hits) for decision in old):
        # Charge beyond the overrun, so that the hit is refused and locks the key out here, too.
        share = max(share, whole + (limit.soft.overrun if limit.soft is not None else 0))
        charges.append(("hit", claim.counters, (claim.key, 1)))
    if share > used(new):
        charges.insert(0, ("charge", claim.counters, (claim.key, share - used(new))))
    return charges


def _is_locked(old: Decision, hits: int) -> bool:
    if old.allowed or not old.limit.lockout_ns:
        return False
    # If it is merely used up, a hit locks it and a look does not.
    return hits > 0 or old._retry > old.limit.period_ns


def full(decision: Decision) -> int:
    """Units of an untouched limit: fewer than its burst while it warms up."""
    limit = decision.limit
    if decision._unit == 1 or not limit.warm_up_ns:
        return limit.burst
    return max(1, limit.burst * limit.interval_ns // decision._unit)


def used(decision: Decision) -> int:
    """Units that were used, rounded up; more than the limit has if it is overdrawn."""
    return full(decision) - decision._room // decision._unit


def _refunds(inherited: Sequence[_Inheritance], store: Store) -> list[StoreCall]:
    """Give hits back to the ancestors, too. Otherwise another process, or an old limit that
    comes back, would carry them over again."""
    refunds: list[StoreCall] = []
    for result, counters, heritage, override in inherited:
        if result.hits < 0:
            for old in sources(heritage.ancestors, override, store):
                share = in_proportion(result.cost, counters.limit, old.limit)
                if share and old.limit != counters.limit:
                    refunds.append(("refund", old, (result.key, share)))
    return refunds


def in_proportion(cost: int, of: Limit, to: Limit) -> int:
    """Units of one limit as units of another, rounded down."""
    return cost * to.burst // of.burst if of.burst else 0  # nothing was taken of a limit of 0
