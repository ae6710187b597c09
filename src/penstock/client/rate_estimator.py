"""How fast to call, estimated from the answers: before a refusal, not after it.

An answer says that ``r`` calls of a policy are left. Our own ``n`` calls in progress may still be
charged to these; the rest should last for a while, the *horizon* ``h``. So all callers together
may make ``(r - n) / h`` calls a second. A caller does not know how many others there are, but it
sees what is used, which gives its share::

    share = own calls / all calls            between our own answers
    all   = what r fell by + what came back meanwhile
    rate  = caution * share^0.85 * (r - n) / h

Shares add up to one, so rates add up to ``r / h``, however many callers there are. The exponent
makes them fair: a caller with a large share takes a little less than that, one with a small share
a little more. Together they then take ``N^0.15`` times as much, which leaves less ``r``, which
slows all of them down, until it settles.

The horizon depends on the kind of limit, which is inferred from how ``t`` varies with ``r``:

====== ============================ ==== ===================================================
window ``t`` counts down            t    used up just as it ends
bucket ``t = (q - r) * w / q``      w/2  settles half full, as it refills at ``q / w``; the other
                                         half is the room for chance
slide  ``t`` is always about ``w``  w/4  settles at 80 % of ``q / w``
====== ============================ ==== ===================================================

- If more than half of ``q`` is left after one more call of each caller, calls are not paced.
- If a window has nothing left for us, the next call is sent in the first quarter of the next one.
- A refusal halves ``caution``; each call that passes gives back a tenth, up to one.
- Every caller may call once in ``4 w``, whatever its share, so that a small share can grow again.

``t`` is given in whole seconds, rounded up, so on average half a second less is meant.

If answers say nothing about limits, refusals are used (`Blind`): call at 70 % of the rate that
passed since the last refusal, and 0.5 % faster with each call that passes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from penstock.client.fields import Standing

FAIRNESS = 0.85
MEMORY = 0.8  # the weight of older samples of the share, with each new one
RECOVERY = 0.1
LEAST_CAUTION = 1 / 64
WINDOWS_APART = 4
NEXT_WINDOW = 1 / 4  # the part of it over which the calls that waited for it spread
LEAST_LEVEL = 1 / 16  # a limit that refills is never considered empty: it has more by now
SETTLED = {"bucket": 2, "slide": 4}
ROUNDING = 1.0

BACK_TO = 0.7
GROWTH = 1.005
SLOWEST = 1 / 3600


def looks_like(standing: Standing) -> str:
    """``"window"``, ``"bucket"`` or ``"slide"``, as far as one answer shows."""
    quota, window, reset = standing.quota, standing.window, standing.reset
    if quota is None or window is None or reset is None:
        return "window"
    refilled = window * (quota - standing.remaining) / quota
    # Some servers say of an empty bucket when one call will be left.
    if abs(reset - refilled) <= ROUNDING or (
        standing.remaining == 0 and reset <= window / quota + 1
    ):
        return "bucket"
    return "slide" if reset >= window - ROUNDING and standing.remaining < 0.9 * quota else "window"


def used(which: str, before: Standing, now: Standing, elapsed: float, ours: float) -> float | None:
    """How many calls all callers made between two answers; None if that is unknown.

    ``ours`` is how much of the time between them was due to our pacing: refills while we had
    nothing to send say nothing about demand.
    """
    fell = before.remaining - now.remaining
    if which != "window" and now.quota and now.window:
        return fell + ours * now.quota / now.window
    if before.reset is None or now.reset is None:
        return fell if fell > 0 else None
    went_on = now.reset <= before.reset - elapsed + ROUNDING
    if went_on or elapsed < before.reset - ROUNDING:  # no window ends early
        return fell
    if now.quota is None or now.window is None:
        return None
    skipped = math.floor((ours - (now.window - now.reset)) / now.window)
    return now.quota - now.remaining + now.quota * max(0, skipped)


def rate(which: str, standing: Standing, under_way: int, share: float, caution: float) -> float:
    """Our calls a second; infinity if plenty are left, 0 if none until the reset."""
    left = standing.remaining - under_way
    if standing.quota is not None and left > standing.quota / 2 + min(
        1 / share, standing.quota / 4
    ):
        return math.inf
    if which == "window" or not standing.quota or not standing.window:
        reset = standing.window if standing.reset is None else standing.reset
        if reset is None:
            return math.inf
        pace = max(0, left) / max(reset - ROUNDING / 2, ROUNDING / 2)
    else:
        pace = max(left, standing.quota * LEAST_LEVEL) * SETTLED[which] / standing.window
    if pace == 0:
        return 0.0
    least = 0.0 if standing.window is None else 1 / (WINDOWS_APART * standing.window)
    return caution * max(_weight(share) * pace, least)


def steady(standing: Standing, share: float, caution: float) -> float:
    """Our share of the refill in the long run; infinity if that was not given."""
    if standing.quota is None or standing.window is None:
        return math.inf
    least = 1 / (WINDOWS_APART * standing.window)
    return caution * max(_weight(share) * standing.quota / standing.window, least)


def _weight(share: float) -> float:
    return math.pow(share, FAIRNESS)


@dataclass(slots=True)
class Policy:
    """What the answers said about one policy. Times are seconds of any one clock."""

    standing: Standing
    at: float
    caution: float = 1.0
    spacing: float = 0.0
    _own: float = 1.0
    _all: float = 1.0
    _passed: Standing | None = None
    _passed_at: float = 0.0
    _seen: dict[str, float] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind that most recent answers looked like: a single one may mislead."""
        return max(self._seen, key=lambda which: self._seen[which], default="window")

    @property
    def share(self) -> float:
        return self._own / self._all

    def learn(self, standing: Standing, now: float, passed: bool) -> None:
        """Learn from one more answer."""
        self.standing, self.at = standing, now
        self._seen = {which: weight * MEMORY for which, weight in self._seen.items()}
        self._seen[looks_like(standing)] = self._seen.get(looks_like(standing), 0.0) + 1
        if not passed:
            return
        self.caution = min(1.0, self.caution + RECOVERY)
        if self._passed is not None:
            elapsed = now - self._passed_at
            ours = min(elapsed, 2 * self.spacing)
            total = used(self.kind, self._passed, standing, elapsed, ours)
            if total is not None:
                self._own = self._own * MEMORY + 1
                self._all = max(self._all * MEMORY + total, self._own)
        self._passed, self._passed_at = standing, now

    def refused(self) -> None:
        self.caution = max(LEAST_CAUTION, self.caution / 2)

    def due(self, now: float, last: float, under_way: int, luck: float) -> float:
        """When our next call may be sent: its interval varies by ``luck``, from 0 to 1.

        Otherwise callers that learned together would keep calling together.
        """
        pace = rate(self.kind, self.standing, under_way, self.share, self.caution)
        ends = self.ends
        if ends is None:
            return last + (0.5 + luck) / pace
        later = steady(self.standing, self.share, self.caution)
        if now < ends and pace > 0 and (at := last + (0.5 + luck) / pace) <= ends:
            return at
        if now >= ends and self.standing.remaining > under_way:
            return last + (0.5 + luck) / later
        # In the next window: most callers that wait for it will be as early as they can.
        return ends + luck * min(1 / later, (self.standing.window or 0.0) * NEXT_WINDOW)

    def sent(self, now: float, last: float, under_way: int) -> None:
        """Note how far apart this policy keeps our calls."""
        pace = rate(self.kind, self.standing, under_way, self.share, self.caution)
        if self.ends is not None and now >= self.ends:
            pace = steady(self.standing, self.share, self.caution)
        self.spacing = now - last if pace == 0 else 1 / pace

    @property
    def ends(self) -> float | None:
        """When a window ends."""
        standing = self.standing
        if self.kind != "window" and standing.quota and standing.window:
            return None
        reset = standing.window if standing.reset is None else standing.reset
        return None if reset is None else self.at + reset


@dataclass(slots=True)
class Blind:
    """The pace if answers say nothing about limits except refusals."""

    since: float
    rate: float = math.inf
    _passed: int = 0

    def passed(self) -> None:
        self._passed += 1
        self.rate *= GROWTH

    def refused(self, now: float, after: float) -> None:
        """The rate that passed since the last refusal, waiting included, is what is available."""
        if self._passed:
            self.rate = BACK_TO * self._passed / max(now + after - self.since, 0.001)
        elif self.rate < math.inf:
            self.rate = max(self.rate / 2, SLOWEST)
        self.since = now + after
        self._passed = 0
