"""recommend: which limit fits the requests of a log.

::

    blocks ── Arrivals (time and key of each request, whole keys sampled if there are too many)
          ── first 70 % of the time ── needs of each key ── choosing.py ── limit and burst
          ── last 30 % ── what that limit would have refused there
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.durations import format_period
from penstock.errors import PenstockError
from penstock.integrations.deciding.descriptors import Dimension
from penstock.integrations.deciding.identity import NOBODY_TRUSTED, Trust
from penstock.integrations.deciding.request import Request
from penstock.replay.behaviour import describe, looks_automated
from penstock.replay.deciding.replay import needs as needs_of
from penstock.replay.deciding.replay import replay_of
from penstock.replay.deciding.settings import Settings
from penstock.replay.deciding.tallies import KeyTally, RuleTally, key_tally
from penstock.replay.reading.blocks import count_of
from penstock.replay.reading.requests import LogRequests
from penstock.replay.recommending import arrivals
from penstock.replay.recommending.choosing import Choice, choose, interval, nice_up
from penstock.replay.recommending.yaml import rules_yaml
from penstock.replay.simulate import RequestsLike, as_requests
from penstock.rules.reading.loading import read_rules

SECOND = 1_000_000_000
WINDOWS = (SECOND, 10 * SECOND, 60 * SECOND, 3600 * SECOND, 86400 * SECOND)
FIT = 0.7
LEAST_REQUESTS, LEAST_KEYS, LEAST_SPAN = 1000, 20, 600 * SECOND
_LOOKED_AT = 2000  # keys whose behaviour is looked at: those that need most
_HEAVIEST = 1000
_LEAST_ARRIVALS = 100_000
_CANDIDATES = 48
_DEFAULT_MEMORY = 1 << 30


@dataclass(frozen=True, slots=True)
class Consequence:
    """What a limit would have refused, on requests that it was not chosen from."""

    requests: int
    refused: int
    keys: int
    keys_refused: int
    keys_automated: int

    @property
    def refused_share(self) -> float:
        return self.refused / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True)
class WindowChoice:
    """A limit for one window."""

    window: int
    choice: Choice
    quantiles: dict[str, int]
    uncertainty: tuple[int, int]

    @property
    def limit(self) -> str:
        return f"{self.choice.limit}/{format_period(self.window)}"


@dataclass(slots=True)
class Recommendation:
    """A limit to begin with, why, and what it would have done.

    ``limit`` is None if there is too little to recommend from; ``reason`` says why.
    """

    by: tuple[str, ...]
    requests: int = 0
    keys: int = 0
    first: int = 0
    last: int = 0
    limit: str | None = None
    reason: str = ""
    choice: Choice | None = None
    windows: list[WindowChoice] = field(default_factory=list)
    holdout: Consequence | None = None
    whole: Consequence | None = None
    heaviest: list[KeyTally] = field(default_factory=list)
    # (limit per chosen window, refused share, keys refused), for a plot
    curve: list[tuple[int, float, int]] = field(default_factory=list)
    # (requests a second, burst for the median, 99 %, and all people)
    frontier: list[tuple[float, int, int, int]] = field(default_factory=list)
    bucket: tuple[float, int] | None = None  # the chosen rate a second, and its burst
    # (need, keys, automated keys)
    distribution: list[tuple[int, int, int]] = field(default_factory=list)
    timeline: tuple[int, int, list[int], list[int]] = (0, SECOND, [], [])
    week: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    sampled: float = 1.0
    lines: int = 0
    malformed: int = 0
    interrupted: bool = False
    yaml: str = ""

    @property
    def automated(self) -> list[KeyTally]:
        """The heaviest keys that look automated."""
        return [key for key in self.heaviest if looks_automated(key)]

    def as_dict(self) -> dict[str, Any]:
        def consequence(of: Consequence | None) -> dict[str, Any] | None:
            if of is None:
                return None
            return {
                "requests": of.requests,
                "refused": of.refused,
                "refused_share": of.refused_share,
                "keys": of.keys,
                "keys_refused": of.keys_refused,
                "keys_automated": of.keys_automated,
            }

        return {
            "by": list(self.by),
            "limit": self.limit,
            "reason": self.reason,
            "how": None if self.choice is None else self.choice.how,
            "why": None if self.choice is None else self.choice.why,
            "requests": self.requests,
            "keys": self.keys,
            "first": self.first / SECOND,
            "last": self.last / SECOND,
            "sampled": self.sampled,
            "malformed": self.malformed,
            "windows": [
                {
                    "window_seconds": each.window / SECOND,
                    "limit": each.limit,
                    "how": each.choice.how,
                    "why": each.choice.why,
                    "quantiles": each.quantiles,
                    "uncertainty": list(each.uncertainty),
                }
                for each in self.windows
            ],
            "holdout": consequence(self.holdout),
            "whole": consequence(self.whole),
            "heaviest": [
                {"key": key.key, "asked": key.asked, "behaviour": describe(key)}
                for key in self.heaviest
            ],
            "warnings": self.warnings,
            "yaml": self.yaml,
        }


def recommend(
    requests: RequestsLike,
    by: str | Sequence[str] = "remote_address",
    *,
    quantile: float = 0.999,
    headroom: float = 1.5,
    trust: Trust = NOBODY_TRUSTED,
    dimensions: Mapping[str, Dimension[Request]] | None = None,
    memory: int = _DEFAULT_MEMORY,
) -> Recommendation:
    """Find a limit for each value of ``by``: ``"user"``, or ``"path,remote_address"``.

    A part may have a value: ``"path=/login,remote_address"`` is about log-ins only. ``memory``
    bounds the bytes for arrivals: if they are more, some keys are left out as a whole, but never
    the heaviest.
    """
    if not 0 < quantile < 1 or not headroom >= 1:
        raise PenstockError("quantile is between 0 and 1, and headroom is at least 1")
    keys = tuple(part.strip() for part in (by.split(",") if isinstance(by, str) else by))
    source = as_requests(requests)
    settings = Settings(trust, dict(dimensions or {}))
    rules = read_rules(_rules_by(keys))
    fields, numbers = needs_of(rules, settings)
    source.want(source.words if fields is None else fields, numbers)
    replay = replay_of(rules, source, settings)
    out = Recommendation(keys, notes=list(source.notes))
    collected = _Arrivals(memory)
    refused_before = 0
    try:
        for block in source.blocks():
            rows = replay.feed_rows(block)
            collected.add(rows, block.times, block.n, replay)
            out.first = out.first or block.times[0]
            out.last = block.times[block.n - 1]
            if "status" in source.numbers:
                column = block.numbers[source.numbers.index("status")]
                refused_before += count_of(column, block.n, 429)
    except KeyboardInterrupt:
        out.interrupted = True
    tally = next(iter(replay.outcome().rules))
    out.requests, out.keys = tally.tally.asked, tally.tally.keys
    out.lines, out.malformed = source.lines, source.malformed
    out.sampled = collected.share(tally.tally.keys)
    _recommend(out, collected, tally, quantile, headroom)
    if refused_before:
        out.warnings.append(
            f"{refused_before:,} requests were answered 429 already: what those clients would"
            " have sent without that limit is not in the log"
        )
    if source.whole_seconds:
        out.warnings.append("the log has whole seconds only: limits below 10 seconds are estimates")
    if source.malformed and isinstance(source, LogRequests):
        name, line, _ = source.shown[0]
        out.warnings.append(
            f"{source.malformed:,} of {source.lines:,} lines could not be read, the first at"
            f" {name}:{line}"
        )
    if source.late:
        out.warnings.append(f"{source.late:,} lines were far out of order")
    if out.interrupted:
        out.warnings.append("interrupted: this is from the requests that were read until then")
    return out


def _rules_by(keys: Sequence[str]) -> dict[str, Any]:
    if not keys or not all(keys):
        raise PenstockError("say by what: 'remote_address', 'user', 'path,remote_address', ...")
    step: dict[str, Any] = {}
    for part in reversed(keys):
        key, equals, value = part.partition("=")
        above: dict[str, Any] = {"key": key, **({"value": value} if equals else {})}
        if step:
            above["descriptors"] = [step]
        else:
            above["rate_limit"] = {"unlimited": True}
        step = above
    return {"domain": "log", "descriptors": [step]}


class _Arrivals:
    """The time and the key of each request, in bounded memory."""

    def __init__(self, memory: int) -> None:
        self.keys: array[int] = array("i")
        self.times: array[int] = array("q")
        # Each request twice: as it came, and by key.
        self._most = max(_LEAST_ARRIVALS, memory // 24)
        self._halvings = 0
        self._heavy: set[int] = set()

    def add(self, rows: array[int], times: array[int], n: int, replay: Any) -> None:
        if self._halvings:
            # A key that has become one of the heaviest is taken in again.
            tally = next(iter(replay.outcome().rules)).tally
            self._heavy.update(tally.top(_HEAVIEST, False))
            kept = array("i", [self._is_kept(row) for row in range(tally.keys)])
            rows, times = rows[:n], times[:n]
            n = arrivals.keep_sampled(rows, times, n, kept)
        self.keys.extend(rows[:n])
        self.times.extend(times[:n])
        while len(self.keys) > self._most:
            self._halve(replay)

    def _halve(self, replay: Any) -> None:
        """Keep half of the keys, by a hash of their number, and the heaviest."""
        self._halvings += 1
        tally = next(iter(replay.outcome().rules)).tally
        self._heavy.update(tally.top(_HEAVIEST, False))
        kept = array("i", [self._is_kept(row) for row in range(tally.keys)])
        left = arrivals.keep_sampled(self.keys, self.times, len(self.keys), kept)
        del self.keys[left:], self.times[left:]
        if left > self._most * 0.9 and self._halvings > 40:
            raise PenstockError("the heaviest keys alone need more memory: give --memory more")

    def _is_kept(self, row: int) -> bool:
        mixed = (row * 0x9E3779B97F4A7C15 & (1 << 64) - 1) >> (64 - max(1, self._halvings))
        return self._halvings == 0 or mixed == 0 or row in self._heavy

    def share(self, keys: int) -> float:
        """Which part of the keys is there."""
        if not self._halvings:
            return 1.0
        return sum(1 for row in range(keys) if self._is_kept(row)) / max(1, keys)

    def part(self, start: int, end: int, keys: int) -> tuple[array[int], array[int]]:
        """The requests from ``start`` until before ``end``, by key."""
        low, high = _first_from(self.times, start), _first_from(self.times, end)
        starts: array[int] = array("q", bytes(8 * (keys + 1)))
        out: array[int] = array("q", bytes(8 * max(1, high - low)))
        arrivals.group_by_key(
            self.keys[low:high], self.times[low:high], high - low, keys, starts, out
        )
        return starts, out


def _first_from(times: array[int], time: int) -> int:
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        if times[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low


def _recommend(
    out: Recommendation, collected: _Arrivals, tally: RuleTally, quantile: float, headroom: float
) -> None:
    span = out.last - out.first
    keys = tally.tally.keys
    out.heaviest = tally.top(20, by_refused=False)
    out.reason = _too_little(out, span)
    if out.reason:
        return
    cut = out.first + int(span * FIT)
    fit = collected.part(0, cut, keys)
    held = collected.part(cut, out.last + 1, keys)
    whole = collected.part(0, out.last + 1, keys)
    behaviour = _Behaviour(tally, whole)
    for window in WINDOWS:
        if window * 4 > span * FIT or (window < 10 * SECOND and out.keys and _coarse(collected)):
            continue
        needs = _per_key(arrivals.most_in_window, fit, window)
        ordered = sorted(need for need in needs if need)
        if len(ordered) < LEAST_KEYS:
            continue
        people = behaviour.people(needs)
        out.windows.append(
            WindowChoice(
                window,
                choose(ordered, people, quantile, headroom),
                {f"p{q:g}": _quantile(ordered, q / 100) for q in (50, 90, 99, 99.9, 100)},
                interval(ordered, quantile),
            )
        )
    if not out.windows:
        out.reason = "no window has enough keys and time to choose from"
        return
    minute = next((each for each in out.windows if each.window == 60 * SECOND), out.windows[-1])
    out.choice = minute.choice
    interval_ns = -(-minute.window // minute.choice.limit)
    bursts = _per_key(arrivals.bursts_at, fit, interval_ns)
    needed = behaviour.people(bursts)
    # More than the limit at once would make the limit itself meaningless, unless people do it.
    burst = max(1, needed, min(nice_up(needed * headroom), minute.choice.limit))
    text = minute.limit if burst == minute.choice.limit else f"{minute.limit} burst {burst}"
    out.limit = text
    out.bucket = SECOND / interval_ns, burst
    out.holdout = _consequence(held, interval_ns, burst, behaviour)
    out.whole = _consequence(whole, interval_ns, burst, behaviour)
    needs = _per_key(arrivals.most_in_window, whole, minute.window)
    _plots(out, whole, collected, minute, needs, behaviour, (interval_ns, burst))
    out.warnings = _warnings(out, span, quantile)
    people, usual = behaviour.people(needs), minute.quantiles["p99"]
    if out.choice.how == "quantile" and people > 3 * usual:
        busiest = behaviour.busiest(needs)
        out.warnings.insert(
            0,
            f"{busiest.key} sets this limit alone: it needs {people:,}, 99 % of the keys at most"
            f" {usual:,}, and nothing shows that it is a program; look at it",
        )
    out.yaml = rules_yaml(out.by, text, minute.choice.why)


def _too_little(out: Recommendation, span: int) -> str:
    if out.requests < LEAST_REQUESTS:
        return f"{out.requests:,} requests are too few: a limit needs at least {LEAST_REQUESTS:,}"
    if out.keys < LEAST_KEYS:
        return (
            f"{out.keys:,} different keys are too few: at least {LEAST_KEYS} are needed to tell"
            " what is usual (is it the address of a proxy? see --trusted and --by)"
        )
    if span < LEAST_SPAN:
        return (
            f"the log covers {span / SECOND:.0f} s, which is too short: at least"
            f" {LEAST_SPAN // SECOND // 60} minutes are needed, and a week is better"
        )
    return ""


class _Behaviour:
    """Which keys look automated, of those that need most."""

    def __init__(self, tally: RuleTally, whole: tuple[array[int], array[int]]) -> None:
        self._tally = tally
        self._known: dict[int, bool] = {}
        self._starts = whole[0]

    def is_automated(self, row: int) -> bool:
        if row not in self._known:
            self._known[row] = looks_automated(self.key(row))
        return self._known[row]

    def key(self, row: int) -> KeyTally:
        stat = self._tally.tally.stat(row)
        return key_tally(stat, self._tally.key(row), self._tally.agent(stat[7]))

    def busiest(self, needs: array[int]) -> KeyTally:
        """The key that needs most and does not look automated."""
        most = self.people(needs)
        rows = [row for row in range(len(needs)) if needs[row] == most]
        return self.key(next((row for row in rows if not self.is_automated(row)), rows[0]))

    def people(self, needs: array[int]) -> int:
        """The most that a key needs which does not look automated."""
        order = sorted(range(len(needs)), key=needs.__getitem__, reverse=True)
        for row in order[:_LOOKED_AT]:
            if not self.is_automated(row):
                return needs[row]
        return needs[order[_LOOKED_AT]] if len(order) > _LOOKED_AT else 0


def _per_key(function: Any, grouped: tuple[array[int], array[int]], argument: int) -> array[int]:
    starts, times = grouped
    out: array[int] = array("q", bytes(8 * (len(starts) - 1)))
    function(starts, times, argument, out)
    return out


def _consequence(
    grouped: tuple[array[int], array[int]], interval_ns: int, burst: int, behaviour: _Behaviour
) -> Consequence:
    starts, times = grouped
    out: array[int] = array("q", bytes(8 * (len(starts) - 1)))
    arrivals.refused_by_bucket(starts, times, interval_ns, burst, out)
    refused = [row for row in range(len(out)) if out[row]]
    active = sum(1 for row in range(len(out)) if starts[row + 1] > starts[row])
    return Consequence(
        starts[len(starts) - 1],
        sum(out),
        active,
        len(refused),
        sum(1 for row in refused[:_LOOKED_AT] if behaviour.is_automated(row)),
    )


def _quantile(ordered: Sequence[int], q: float) -> int:
    return ordered[min(len(ordered) - 1, max(0, math.ceil(q * len(ordered)) - 1))]


def _coarse(collected: _Arrivals) -> bool:
    return all(time % SECOND == 0 for time in collected.times[:1000])


def _plots(
    out: Recommendation,
    whole: tuple[array[int], array[int]],
    collected: _Arrivals,
    chosen: WindowChoice,
    needs: array[int],
    behaviour: _Behaviour,
    bucket: tuple[int, int],
) -> None:
    """The numbers behind the plots of the report."""
    starts, times = whole
    total = max(1, starts[len(starts) - 1])
    most = max(needs)
    refused: array[int] = array("q", bytes(8 * (len(starts) - 1)))
    admitted: array[int] = array("q", bytes(8 * len(times)))
    limits = sorted(
        {max(1, round(most ** (at / (_CANDIDATES - 1)))) for at in range(_CANDIDATES)}
        | {chosen.choice.limit}
    )
    for limit in limits:
        arrivals.refused_by_log(starts, times, chosen.window, limit, admitted, refused)
        touched = len(refused) - refused.tolist().count(0)
        out.curve.append((limit, sum(refused) / total, touched))
    for limit in limits[:: max(1, len(limits) // 16)]:
        interval_ns = max(1, chosen.window // limit)
        bursts = _per_key(arrivals.bursts_at, whole, interval_ns)
        ordered = sorted(burst for burst in bursts if burst)
        out.frontier.append(
            (
                limit * SECOND / chosen.window,
                _quantile(ordered, 0.5),
                _quantile(ordered, 0.99),
                behaviour.people(bursts),
            )
        )
    counts: dict[int, list[int]] = {}
    for row, need in enumerate(needs):
        if need:
            cell = counts.setdefault(need, [0, 0])
            cell[0] += 1
            if need > chosen.choice.limit // 2 and cell[0] <= _LOOKED_AT:
                cell[1] += behaviour.is_automated(row)
    out.distribution = [(need, *counts[need]) for need in sorted(counts)]  # type: ignore[misc]
    out.week = [0] * 168
    week: array[int] = array("q", bytes(8 * 168))
    arrivals.count_hours(collected.times, len(collected.times), week)
    out.week = list(week)
    refused_at: array[int] = array("q", bytes(8 * len(times)))
    count = arrivals.refused_times(starts, times, *bucket, refused_at)
    width = max(SECOND, -(-(out.last - out.first) // 240))
    cells = (out.last - out.first) // width + 1
    asked, over = [0] * cells, [0] * cells
    for at in range(cells):
        low = _first_from(collected.times, out.first + at * width)
        asked[at] = _first_from(collected.times, out.first + (at + 1) * width) - low
    for at in range(count):
        over[(refused_at[at] - out.first) // width] += 1
    out.timeline = (out.first, width, asked, over)


def _warnings(out: Recommendation, span: int, quantile: float) -> list[str]:
    warnings = []
    if span < 7 * 86400 * SECOND:
        days = span / 86400 / SECOND
        warnings.append(
            f"the log covers {days:.1f} days: a weekly peak may be missing; two weeks are better"
        )
    if out.keys < 3 / (1 - quantile):
        warnings.append(
            f"{out.keys:,} keys are few for a quantile of {quantile:.1%}: about"
            f" {round(3 / (1 - quantile)):,} are needed"
        )
    if out.sampled < 1:
        warnings.append(
            f"{out.sampled:.1%} of the keys were looked at, and the heaviest of all: there were"
            " too many for the memory given"
        )
    warnings.append(
        "clients that are refused behave otherwise than the log says: begin with the shadow rule"
    )
    return warnings
