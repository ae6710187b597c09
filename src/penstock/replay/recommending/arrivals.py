"""Arithmetic over the arrivals of all keys, each key's times together.

``starts`` and ``times``: the times of key k, in order, are ``times[starts[k]:starts[k + 1]]``.

*Burst at a rate.* With T the time that one unit takes to come back, the backlog of a bucket that
never refuses is (Lindley)

    x = max(0, x - (t[i] - t[i-1])) + T          the smallest burst is  ceil(max x / T)

which is what a token bucket (GCRA) of that burst never refuses, and one of less does.

*Most in a window*: two pointers. Windows are half-open, as in a sliding log: a request at t and
one at t + w are not in one window.

The functions are compiled where possible; `tests/replay/recommending/test_arrivals.py` compares
them with brute force and with the algorithms.
"""

from __future__ import annotations

from array import array

HOUR = 3_600_000_000_000


def group_by_key(
    keys: array[int],
    times: array[int],
    n: int,
    count: int,
    starts: array[int],
    out: array[int],
) -> None:
    """A counting sort: ``starts`` has room for count + 1, and is zero."""
    for i in range(n):
        if keys[i] >= 0:
            starts[keys[i] + 1] += 1
    for i in range(count):
        starts[i + 1] += starts[i]
    for i in range(n):
        if keys[i] >= 0:
            at = starts[keys[i]]
            out[at] = times[i]
            starts[keys[i]] = at + 1
    for i in range(count, 0, -1):
        starts[i] = starts[i - 1]
    starts[0] = 0


def most_in_window(starts: array[int], times: array[int], window: int, out: array[int]) -> None:
    """For each key the most requests in any window of that length."""
    for k in range(len(out)):
        j = starts[k]
        best = 0
        for i in range(starts[k], starts[k + 1]):
            while times[i] - times[j] >= window:
                j += 1
            if i - j + 1 > best:
                best = i - j + 1
        out[k] = best


def most_in_aligned(starts: array[int], times: array[int], window: int, out: array[int]) -> None:
    """For each key the most requests in any window that is aligned to the epoch."""
    for k in range(len(out)):
        best = 0
        count = 0
        cell = -1
        for i in range(starts[k], starts[k + 1]):
            if times[i] // window != cell:
                cell = times[i] // window
                count = 0
            count += 1
            if count > best:
                best = count
        out[k] = best


def bursts_at(starts: array[int], times: array[int], interval: int, out: array[int]) -> None:
    """For each key the smallest burst of a bucket that refuses nothing, at one per interval."""
    for k in range(len(out)):
        backlog = 0
        most = 0
        last = times[starts[k]] if starts[k] < starts[k + 1] else 0
        for i in range(starts[k], starts[k + 1]):
            backlog -= times[i] - last
            last = times[i]
            if backlog < 0:
                backlog = 0
            backlog += interval
            if backlog > most:
                most = backlog
        out[k] = (most + interval - 1) // interval


def refused_by_bucket(
    starts: array[int], times: array[int], interval: int, burst: int, out: array[int]
) -> None:
    """For each key the requests that a token bucket refuses."""
    capacity = interval * burst
    for k in range(len(out)):
        tat = 0
        refused = 0
        for i in range(starts[k], starts[k + 1]):
            now = times[i]
            if tat < now:
                tat = now
            if tat - now + interval <= capacity:
                tat += interval
            else:
                refused += 1
        out[k] = refused


def refused_by_log(
    starts: array[int],
    times: array[int],
    window: int,
    limit: int,
    admitted: array[int],
    out: array[int],
) -> None:
    """For each key the requests that a sliding log refuses; ``admitted`` is as long as times."""
    for k in range(len(out)):
        first = starts[k]
        end = first
        oldest = first
        refused = 0
        for i in range(first, starts[k + 1]):
            now = times[i]
            while oldest < end and now - admitted[oldest] >= window:
                oldest += 1
            if end - oldest < limit:
                admitted[end] = now
                end += 1
            else:
                refused += 1
        out[k] = refused


def refused_times(
    starts: array[int], times: array[int], interval: int, burst: int, out: array[int]
) -> int:
    """The times of the requests that a token bucket refuses, into ``out``; how many they are."""
    capacity = interval * burst
    count = 0
    for k in range(len(starts) - 1):
        tat = 0
        for i in range(starts[k], starts[k + 1]):
            now = times[i]
            if tat < now:
                tat = now
            if tat - now + interval <= capacity:
                tat += interval
            else:
                out[count] = now
                count += 1
    return count


def count_hours(times: array[int], n: int, out: array[int]) -> None:
    """Requests by hour of the week, from Monday on, in UTC; ``out`` has 168 cells."""
    for i in range(n):
        hour = times[i] // HOUR
        # 1970 began on a Thursday.
        out[(hour + 72) % 168] += 1


def keep_sampled(keys: array[int], times: array[int], n: int, kept: array[int]) -> int:
    """Drop the requests of keys that are not ``kept``; how many requests are left."""
    left = 0
    for i in range(n):
        if keys[i] >= 0 and kept[keys[i]]:
            keys[left] = keys[i]
            times[left] = times[i]
            left += 1
    return left


def rows_from(needs: array[int], least: int) -> list[int]:
    """The keys that need at least so much."""
    out = []
    for i in range(len(needs)):
        if needs[i] >= least:
            out.append(i)
    return out
