"""The report of a run, as text."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.limits import Limit
from penstock.loadgen.envelope import Accuracy, accuracy
from penstock.loadgen.scheduler import Run

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
MOST_KINDS = 5
# Above this part of one core, the generator itself is the bottleneck.
BUSY = 0.9


def accuracy_of(run: Run, limit: Limit) -> Accuracy:
    return accuracy(limit, run.seconds, run.counts.asked_by_key, run.counts.allowed_by_key)


def lines(run: Run, limit: Limit | None = None) -> Iterator[str]:
    counts, load = run.counts, run.load
    failed = sum(counts.errors.values())
    yield f"sent       {counts.sent:>12,}  in {run.seconds:.2f} s"
    yield f"answered   {counts.answers:>12,}  {_rate(counts.answers, run.seconds)}"
    yield f"  allowed  {counts.allowed:>12,}  {_part(counts.allowed, counts.answers)}"
    yield f"  refused  {counts.refused:>12,}  {_part(counts.refused, counts.answers)}"
    yield f"errors     {failed:>12,}"
    for kind, count in counts.errors.most_common(MOST_KINDS):
        yield f"           {count:>12,}  {kind:.100}"
    if len(counts.errors) > MOST_KINDS:
        yield f"           and {len(counts.errors) - MOST_KINDS} other kinds"
    if run.unanswered:
        yield f"unanswered {run.unanswered:>12,}  after {load.patience:g} s more"
    if run.unsent:
        yield f"never sent {run.unsent:>12,}  the service is slower than --rate"
    if counts.answers:
        yield ""
        since = "from the time it was due" if load.rate is not None else "from the time it was sent"
        yield f"latency    {since}"
        for per_cent in PERCENTILES:
            yield f"  {f'p{per_cent:g}':<8} {_time(counts.percentile(per_cent)):>12}"
        yield f"  {'longest':<8} {_time(counts.longest):>12}"
        yield f"  {'mean':<8} {_time(counts.mean):>12}"
    if limit is not None and counts.answers:
        yield ""
        yield from _accuracy(accuracy_of(run, limit))
    used = run.cpu / run.seconds if run.seconds else 0.0
    if used > BUSY:
        yield ""
        yield f"note: this generator used {used:.0%} of a core: the service may be faster than this"


def _accuracy(result: Accuracy) -> Iterator[str]:
    yield f"accuracy   against {result.limit}, by key"
    yield f"  at most  {result.most:>12,}  in this time"
    yield f"  most had {result.worst:>12,}  key-{result.worst_key}"
    yield f"  over     {result.over:>12,}  {'key' if result.over == 1 else 'keys'}"
    yield f"  used     {result.used:>12.1%}  of what the limit would have let through"


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:,.0f} a second" if seconds else ""


def _part(count: int, total: int) -> str:
    return f"{count / total:.1%}" if total else ""


def _time(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:,.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:,.2f} ms"
    return f"{seconds:,.2f} s"
