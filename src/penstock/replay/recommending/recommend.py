"""recommend: which limit fits the requests of a log.

::

    blocks ── Arrivals (time and key of each request, whole keys sampled if there are too many)
          ── first 70 % of the time ── needs of each key ── choosing.py ── limit and burst
          ── last 30 % ── what that limit would have refused there
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.durations import format_period
from penstock.errors import PenstockError
from penstock.integrations.deciding.descriptors import Dimension
from penstock.integrations.deciding.identity import NOBODY_TRUSTED, Trust
from penstock.integrations.deciding.request import Request
from penstock.replay.cautions import one_key_hint, out_of_memory
from penstock.replay.deciding.replay import needs as needs_of
from penstock.replay.deciding.replay import replay_of
from penstock.replay.deciding.settings import Settings
from penstock.replay.deciding.tallies import RuleTally
from penstock.replay.reading.blocks import count_of
from penstock.replay.reading.logs import LogRequests
from penstock.replay.recommending import arrivals
from penstock.replay.recommending.choosing import choose, interval, nice_up
from penstock.replay.recommending.needs import (
    Behaviour,
    consequence_of,
    in_order,
    per_key,
    quantile_of,
    refusals_of,
)
from penstock.replay.recommending.plotting import fill_plots
from penstock.replay.recommending.recommendation import SECOND, Recommendation, WindowChoice
from penstock.replay.recommending.sampling import Arrivals
from penstock.replay.recommending.yaml import rules_yaml
from penstock.replay.simulate import DEFAULT_MEMORY, RequestsLike, as_requests
from penstock.rules.reading.loading import read_rules

WINDOWS = (SECOND, 10 * SECOND, 60 * SECOND, 3600 * SECOND, 86400 * SECOND)
FIT = 0.7
LEAST_REQUESTS, LEAST_KEYS, LEAST_SPAN = 1000, 20, 600 * SECOND


def recommend(
    requests: RequestsLike,
    by: str | Sequence[str] = "remote_address",
    *,
    quantile: float = 0.999,
    headroom: float = 1.5,
    trust: Trust = NOBODY_TRUSTED,
    dimensions: Mapping[str, Dimension[Request]] | None = None,
    memory: int = DEFAULT_MEMORY,
) -> Recommendation:
    """Find a limit for each value of ``by``: ``"user"``, or ``"path,remote_address"``.

    A part may have a value: ``"path=/login,remote_address"`` is about log-ins only. ``memory``
    bounds the bytes for arrivals, keys and texts: if there are more arrivals, some keys are left
    out as a whole, but never the heaviest; if there are more keys, it stops reading.
    """
    if not 0 < quantile < 1 or not headroom >= 1:
        raise PenstockError("quantile is between 0 and 1, and headroom is at least 1")
    keys = tuple(part.strip() for part in (by.split(",") if isinstance(by, str) else by))
    source = as_requests(requests)
    settings = Settings(trust, dict(dimensions or {})).reading(source.fields)
    log_fields = source.fields
    rules = read_rules(_rules_by(keys))
    fields, numbers = needs_of(rules, settings)
    source.want(source.words if fields is None else fields, numbers)
    replay = replay_of(rules, source, settings)
    out = Recommendation(keys, notes=list(source.notes))
    collected = Arrivals(memory)
    refused_before = 0
    try:
        for block in source.blocks():
            rows = replay.feed_rows(block)
            tables = source.bytes + replay.bytes
            if not collected.has_room(tables):
                out.stopped = out_of_memory(source.lines, memory)
                break
            collected.add(rows, block.times, block.n, replay)
            out.memory = tables + collected.bytes
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
    _recommend(out, collected, tally, quantile, headroom, log_fields)
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
    if out.stopped:
        out.warnings.insert(0, out.stopped)
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


def _recommend(
    out: Recommendation,
    collected: Arrivals,
    tally: RuleTally,
    quantile: float,
    headroom: float,
    fields: Sequence[str],
) -> None:
    span = out.last - out.first
    keys = tally.tally.keys
    out.heaviest = tally.top(20, by_refused=False)
    out.reason = _too_little(out, span, fields)
    if out.reason:
        return
    cut = out.first + int(span * FIT)
    fit = collected.part(0, cut, keys)
    held = collected.part(cut, out.last + 1, keys)
    whole = collected.part(0, out.last + 1, keys)
    behaviour = Behaviour(tally, whole)
    for window in WINDOWS:
        if window * 4 > span * FIT or (window < 10 * SECOND and out.keys and _coarse(collected)):
            continue
        needs = per_key(arrivals.most_in_window, fit, window)
        ordered = in_order(needs)
        if len(ordered) < LEAST_KEYS:
            continue
        people = behaviour.people(needs)
        out.windows.append(
            WindowChoice(
                window,
                choose(ordered, people, quantile, headroom),
                {f"p{q:g}": quantile_of(ordered, q / 100) for q in (50, 90, 99, 99.9, 100)},
                interval(ordered, quantile),
            )
        )
    if not out.windows:
        out.reason = "no window has enough keys and time to choose from"
        return
    minute = next((each for each in out.windows if each.window == 60 * SECOND), out.windows[-1])
    out.choice = minute.choice
    interval_ns = -(-minute.window // minute.choice.limit)
    bursts = per_key(arrivals.bursts_at, fit, interval_ns)
    needed = behaviour.people(bursts)
    # More than the limit at once would make the limit itself meaningless, unless people do it.
    burst = max(1, needed, min(nice_up(needed * headroom), minute.choice.limit))
    text = minute.limit if burst == minute.choice.limit else f"{minute.limit} burst {burst}"
    out.limit = text
    out.bucket = SECOND / interval_ns, burst
    for limit in (nice_up(minute.choice.limit / 2), nice_up(minute.choice.limit * 2)):
        bursts = per_key(arrivals.bursts_at, whole, -(-minute.window // limit))
        if behaviour.people(bursts):
            out.trades.append(
                f"{limit}/{format_period(minute.window)} burst {behaviour.people(bursts)}"
            )
    refusals = refusals_of(held, interval_ns, burst)
    out.holdout = consequence_of(held[0], refusals, behaviour)
    refusals = refusals_of(whole, interval_ns, burst)
    out.whole = consequence_of(whole[0], refusals, behaviour)
    out.refused_keys = behaviour.refused_keys(refusals, 20)
    needs = per_key(arrivals.most_in_window, whole, minute.window)
    fill_plots(out, whole, collected, minute, needs, behaviour, (interval_ns, burst))
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


def _too_little(out: Recommendation, span: int, fields: Sequence[str]) -> str:
    if out.requests < LEAST_REQUESTS:
        few = "request is" if out.requests == 1 else "requests are"
        needed = f"{out.requests:,} {few} too few: a limit needs at least {LEAST_REQUESTS:,}"
        if out.lines - out.malformed > max(LEAST_REQUESTS, 2 * out.requests):
            needed += (
                f"; most of the {out.lines:,} lines say nothing about {' and '.join(out.by)}"
                " (see --by, --field and --dimension)"
            )
        return needed
    if out.keys < LEAST_KEYS:
        few = "key is" if out.keys == 1 else "different keys are"
        return (
            f"{out.keys:,} {few} too few: at least {LEAST_KEYS} are needed to tell"
            f" what is usual; {one_key_hint(out.by[-1], fields)}"
        )
    if span < LEAST_SPAN:
        return (
            f"the log covers {span / SECOND:.0f} s, which is too short: at least"
            f" {LEAST_SPAN // SECOND // 60} minutes are needed, and a week is better"
        )
    return ""


def _coarse(collected: Arrivals) -> bool:
    return all(time % SECOND == 0 for time in collected.times[:1000])


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
