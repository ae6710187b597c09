"""Heritage: what a key had used of a limit that has changed since, brought over to the new one.

Nothing is moved at a reload: a store cannot list its keys. A key's first request after it looks
at all limits that were in force since the key last asked, as far as they still remember, and
takes the largest part of any of them that was used:

    used of the new = max(what it says itself, used of the old * burst of the new / of the old)

rounded up. So the time that passes until that first request counts by the old limit. A process
remembers which of its keys have asked (`SeenKeys`); a key that it has not seen, or has forgotten,
is compared with all ancestors again, which never makes a limit looser.

Who comes for a key while its usage is being brought over waits until that is done.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from penstock.decision import Decision
from penstock.errors import LimitError, UnsupportedLimit
from penstock.limit import Limit
from penstock.rules.deciding.lineage import Ancestor
from penstock.rules.deciding.work import Done, Single, Work
from penstock.stores.base import Counters, Store

if TYPE_CHECKING:
    from penstock.rules.deciding.switches import Override
    from penstock.rules.deciding.verdicts import DescriptorResult

# Keys that are remembered to have asked, over all limits that have changed: some 40 MB.
MOST_ASKED = 200_000


class SeenKeys:
    """In which generation of the rules each key was last asked about, in this process."""

    __slots__ = ("_found", "_tokens")

    def __init__(self) -> None:
        self._found: dict[tuple[int, str], int] = {}
        self._tokens = 0

    def token(self) -> int:
        """What one limit is known by here, over all its reloads."""
        self._tokens += 1
        return self._tokens

    def get(self, token: int, key: str) -> int:
        return self._found.get((token, key), -1)

    def put(self, token: int, key: str, generation: int) -> None:
        if len(self._found) >= MOST_ASKED:
            self._found.clear()
        self._found[token, key] = generation

    def clear(self) -> None:
        self._found.clear()

    def __len__(self) -> int:
        return len(self._found)


class Heritage:
    """The ancestors of one limit, and which keys have taken over from them."""

    __slots__ = ("_asked", "_generation", "_under_way", "ancestors", "token", "until")

    def __init__(
        self, ancestors: Sequence[Ancestor], generation: int, asked: SeenKeys, token: int
    ) -> None:
        self.ancestors = ancestors
        self.until = max(each.until for each in ancestors)
        self.token = token
        self._generation = generation
        self._asked = asked
        self._under_way: dict[str, Future[None]] = {}

    def due(self, key: str, now: int) -> list[Ancestor]:
        """Those that may know something of this key that the limit itself does not."""
        last = self._asked.get(self.token, key)
        if last == self._generation:
            return []
        return [each for each in self.ancestors if each.generation >= last and each.until > now]

    def claim(self, key: str, mine: Future[None]) -> Future[None]:
        """``mine`` if the caller is to bring over what the key used, else whom to wait for."""
        return self._under_way.setdefault(key, mine)

    def settle(self, key: str, *, done: bool) -> None:
        """The claim ends; unless it is ``done``, the next request tries again."""
        if done:
            self._asked.put(self.token, key, self._generation)
        self._under_way.pop(key, None)


# A limit of a request: its heritage, and the override in whose place it stands.
Inherited = tuple[Heritage, "Override | None"]


class _Claim:
    """What one limit of a request is to take over."""

    __slots__ = ("ancestors", "counters", "hits", "key")

    def __init__(self, counters: Counters, key: str, hits: int, ancestors: list[Counters]) -> None:
        self.counters = counters
        self.key = key
        self.hits = hits
        self.ancestors = ancestors


def carry(
    results: Sequence[DescriptorResult], store: Store, now: int
) -> Generator[Work, Done, None]:
    """Bring over what the keys of a request had used of limits that have changed since."""
    inherited = _inherited(results, now)
    if not inherited:
        return
    while any(heritage.due(key, now) for _, key, _, (heritage, _) in inherited):
        mine: Future[None] = Future()
        mine.set_running_or_notify_cancel()  # from now on nobody who waits can cancel it
        held: dict[tuple[int, str], Heritage] = {}
        claims: dict[tuple[int, str], _Claim] = {}
        waits: dict[int, Future[None]] = {}
        done = False
        try:
            for counters, key, hits, (heritage, override) in inherited:
                if not heritage.due(key, now) or (id(heritage), key) in held:
                    continue
                other = heritage.claim(key, mine)
                if other is not mine:
                    waits[id(other)] = other
                    continue
                held[id(heritage), key] = heritage
                # Looked at again: another thread may have been done just before the claim.
                found = sources(heritage.due(key, now), override, store)
                claim = claims.setdefault((id(counters), key), _Claim(counters, key, hits, []))
                claim.ancestors += [each for each in found if each is not counters]
            done = yield from _bring(list(claims.values()))
        finally:
            for (_, key), heritage in held.items():
                heritage.settle(key, done=done)
            mine.set_result(None)
        if not waits:
            break
        yield Work(waits=list(waits.values()))
    back = _given_back(results, store, now)
    if back:
        yield Work(singles=back)


def _inherited(
    results: Sequence[DescriptorResult], now: int
) -> list[tuple[Counters, str, int, Inherited]]:
    return [
        (counters, result.key, result.hits, inherited)
        for result in results
        for (counters, _), inherited in zip(result.counted, result.heritages, strict=True)
        if inherited is not None and inherited[0].until > now
    ]


def sources(
    ancestors: Sequence[Ancestor], override: Override | None, store: Store
) -> list[Counters]:
    """Where the ancestors were counted; of a key with an override, by that."""
    found = []
    for each in ancestors:
        limit = each.limit
        if override is not None:
            try:
                found.append(store.counters(override.apply(limit)))
                continue
            except (LimitError, UnsupportedLimit):
                pass  # then the rule's own limit held
        found.append(store.counters(limit))
    return found


def _bring(claims: Sequence[_Claim]) -> Generator[Work, Done, bool]:
    """Whether all is as it should be; if the store could not be asked, it is not."""
    claims = [claim for claim in claims if claim.ancestors]
    if not claims:
        return True
    looks: list[Single] = [
        ("peek", counters, (claim.key, 1))
        for claim in claims
        for counters in (claim.counters, *claim.ancestors)
    ]
    _, answers = yield Work(singles=looks)
    if any(answer.degraded for answer in answers):
        return False
    seen: Iterator[Decision] = iter(answers)
    charges: list[Single] = []
    for claim in claims:
        own = next(seen)
        charges += _charges(claim, own, [next(seen) for _ in claim.ancestors])
    if charges:
        yield Work(singles=charges)
    return True


def _charges(claim: _Claim, own: Decision, before: Sequence[Decision]) -> list[Single]:
    limit, whole = claim.counters.limit, full(own)
    part = max(-(-used(each) * whole // full(each)) for each in before)
    charges: list[Single] = []
    locked = bool(limit.lockout_ns) and any(_is_locked(each, claim.hits) for each in before)
    if locked:
        # Beyond its overrun, so that the hit is refused: locked out there, locked out here.
        part = max(part, whole + (limit.soft.overrun if limit.soft is not None else 0))
        charges.append(("hit", claim.counters, (claim.key, 1)))
    if part > used(own):
        charges.insert(0, ("charge", claim.counters, (claim.key, part - used(own))))
    return charges


def _is_locked(before: Decision, hits: int) -> bool:
    if before.allowed or not before.limit.lockout_ns:
        return False
    # One that is merely used up is locked by a hit, and not by a look.
    return hits > 0 or before._retry > before.limit.period_ns


def full(decision: Decision) -> int:
    """Units of an untouched limit: fewer than its burst while it warms up."""
    limit = decision.limit
    if decision._unit == 1 or not limit.warm_up_ns:
        return limit.burst
    return max(1, limit.burst * limit.interval_ns // decision._unit)


def used(decision: Decision) -> int:
    """Units that were used, rounded up; more than there are if it is overdrawn."""
    return full(decision) - decision._room // decision._unit


def _given_back(results: Sequence[DescriptorResult], store: Store, now: int) -> list[Single]:
    """Hits that are given back are given back by the ancestors, too: else another process,
    or a limit that comes back, would know of them still."""
    back: list[Single] = []
    for result in results:
        if result.hits >= 0:
            continue
        for (counters, _), inherited in zip(result.counted, result.heritages, strict=True):
            if inherited is None or inherited[0].until <= now:
                continue
            for old in sources(inherited[0].ancestors, inherited[1], store):
                part = in_proportion(result.cost, counters.limit, old.limit)
                if part and old is not counters:
                    back.append(("refund", old, (result.key, part)))
    return back


def in_proportion(cost: int, of: Limit, to: Limit) -> int:
    """Units of one limit as units of another, rounded down."""
    return cost * to.burst // of.burst
