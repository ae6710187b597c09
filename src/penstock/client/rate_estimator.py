"""How fast to call, estimated from the answers: before a refusal, not after it.

An answer says that ``r`` calls of a policy are left. Our own ``n`` calls in progress may still be
charged to these; the rest should last for a while, the *horizon* ``h``. So all callers together
may make ``(r - n) / h`` calls a second. A caller does not know how many others there are, but it
sees what is used, which gives its share::

    share = own calls / all calls            between our own answers
    all   = the decrease of r + refills in between
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
- If several answers show that nobody else calls, a bucket need not be half full: an eighth is
  enough, but at least five calls.
- If a window has nothing left for us, the next call is sent in the first quarter of the next one.
- A refusal halves ``caution``; each call that passes gives back a tenth, up to one.
- Every caller may call once in ``4 w``, whatever its share, so that a small share can grow again.

Servers round ``t`` up to whole seconds, so on average it is half a second too large.

If answers say nothing about limits, refusals are used (`Blind`): call at 70 % of the rate that
passed since the last refusal, and 0.5 % faster with each call that passes. Each further refusal
halves that rate, until a call passes; then it returns by a quarter with each call.
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
SETTLED = {"bucket": 1 / 2, "slide": 1 / 4}  # how full it is in the long run
ALONE = 0.9  # the share above which nobody else seems to call
ALONE_SAMPLES = 3.0  # so many samples, weighted, show that
ALONE_SETTLED = 1 / 8  # but at least some calls
ALONE_CALLS = 5
ROUNDING = 1.0
UNKNOWN = 4.0  # calls a second in a new window of unknown size, until its first answer

BACK_TO = 0.7
GROWTH = 1.005
BACK_UP = 1.25
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


def rate(
    which: str,
    standing: Standing,
    under_way: int,
    share: float,
    caution: float,
    alone: bool = False,
) -> float:
    """Our calls a second; infinity if plenty are left, 0 if none until the reset."""
    left = standing.remaining - under_way
    quota = standing.quota
    settled = SETTLED.get(which, 0.0)
    unpaced = 1 / 2
    if alone and quota and which == "bucket":
        settled = unpaced = min(unpaced, max(ALONE_SETTLED, ALONE_CALLS / quota))
    if quota is not None and left > quota * unpaced + min(1 / share, quota / 4):
        return math.inf
    if which == "window" or not quota or not standing.window:
        reset = standing.window if standing.reset is None else standing.reset
        if reset is None:
            return math.inf
        pace = max(0, left) / max(reset - ROUNDING / 2, ROUNDING / 2)
    else:
        pace = max(left, quota * LEAST_LEVEL) / (settled * standing.window)
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
        return self._own / max(self._all, self._own)

    @property
    def alone(self) -> bool:
        """Whether nobody else seems to call; a few answers are needed to tell."""
        return self._own > ALONE_SAMPLES and self.share > ALONE

    def learn(self, standing: Standing, now: float, sent: float, passed: bool) -> None:
        """Learn from one more answer, to a call that was sent at ``sent``."""
        # Answers overtake each other. Of calls that were under way together, the least counts.
        if sent >= self.at or standing.remaining <= self.standing.remaining:
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
                self._all = self._all * MEMORY + total
        self._passed, self._passed_at = standing, now

    def refused(self) -> None:
        self.caution = max(LEAST_CAUTION, self.caution / 2)

    def due(self, now: float, last: float, under_way: int, luck: float) -> float:
        """When our next call may be sent: its interval varies by ``luck``, from 0 to 1.

        Otherwise callers that learned together would keep calling together.
        """
        pace = self._rate(under_way)
        ends = self.ends
        if ends is None:
            return last + (0.5 + luck) / pace
        later = steady(self.standing, self.share, self.caution)
        if now < ends and pace > 0 and (at := last + (0.5 + luck) / pace) <= ends:
            return at
        if now >= ends and self.standing.remaining > under_way:
            return last + (0.5 + luck) / later
        # In the next window: most callers that wait for it will be as early as they can.
        begins = ends + luck * min(1 / later, (self.standing.window or 0.0) * NEXT_WINDOW)
        if last < ends:
            return begins
        # One call is there already, and its answer will say more.
        return max(begins, last + (0.5 + luck) / (later if later < math.inf else UNKNOWN))

    def sent(self, now: float, last: float, under_way: int) -> None:
        """Note how far apart this policy keeps our calls."""
        pace = self._rate(under_way)
        if self.ends is not None and now >= self.ends:
            pace = steady(self.standing, self.share, self.caution)
        self.spacing = now - last if pace == 0 else 1 / pace

    def _rate(self, under_way: int) -> float:
        share, caution, alone = self.share, self.caution, self.alone
        return rate(self.kind, self.standing, under_way, share, caution, alone)

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
    _known: float = math.inf  # a rate that has passed
    _passed: int = 0

    def passed(self) -> None:
        self._passed += 1
        if self.rate < self._known:
            self.rate = min(self.rate * BACK_UP, self._known)
        else:
            self.rate *= GROWTH

    def refused(self, now: float, after: float) -> None:
        """The rate that passed since the last refusal, waiting included, is what is available."""
        if self._passed:
            self.rate = BACK_TO * self._passed / max(now + after - self.since, 0.001)
            self._known = self.rate
        elif self.rate < math.inf:
            self.rate = max(self.rate / 2, SLOWEST)
        self.since = now + after
        self._passed = 0
