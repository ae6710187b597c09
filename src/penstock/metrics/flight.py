"""FlightRecorder: the last requests of a process, to try other rules on.

It costs every request a few stores into a ring::

    times     8 bytes    when
    entries   4 bytes    which request, by number; the top bit: it was refused

A request is its domain, descriptors and hits. Equal ones have one number, found once for each plan.
At most ``most_requests`` different ones are known. When there are more, numbers that the ring no
longer has are freed; if all are in use, further requests are recorded as unknown, number 0.

This module is compiled where possible.
"""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from penstock.clock import WALL, Clock

if TYPE_CHECKING:
    from penstock.rules.deciding.plan import Plan

CAPACITY = 500_000
MOST_REQUESTS = 50_000
# What descriptors of one request may take, in characters: a longer one is recorded as unknown.
LONGEST = 2_000
UNKNOWN = 0
REFUSED = 1 << 31
_NUMBER = REFUSED - 1

# A domain, the pairs of each descriptor, and hits.
Request = tuple[str, tuple[tuple[tuple[str, str], ...], ...], int]


class FlightRecorder:
    """Used by one thread. ``clock`` is the time of day."""

    def __init__(
        self,
        capacity: int = CAPACITY,
        most_requests: int = MOST_REQUESTS,
        clock: Clock = WALL,
    ) -> None:
        self.capacity = capacity
        self.most_requests = most_requests
        self.now = time.time_ns if clock is WALL else clock.now  # a call less
        self.times = array("q", bytes(8 * capacity))
        self.entries = array("I", bytes(4 * capacity))
        self.place = 0  # of the next request
        self.count = 0  # of all requests, also those that are no longer in the ring
        self.epoch = 1  # numbers that plans know are valid for one epoch
        self.numbers: dict[Request, int] = {}
        self.requests: list[Request | None] = [None]
        self.free: list[int] = []
        self.look_again = 0  # the count at which it is worth looking for free numbers again

    def planned(self, plan: Plan, refused: bool) -> None:
        """A request was decided by a plan."""
        if plan.flight_epoch != self.epoch:
            plan.flight = self.number_of((plan.domain, tuple(plan.descriptors), plan.hits))
            plan.flight_epoch = self.epoch
        self.add(plan.flight, refused)

    def decided(
        self, domain: str, descriptors: Sequence[tuple[tuple[str, str], ...]], refused: bool
    ) -> None:
        """A request was decided in another way. Its hits are not known, and count as one."""
        self.add(self.number_of((domain, tuple(descriptors), 1)), refused)

    def add(self, number: int, refused: bool) -> None:
        place = self.place
        self.times[place] = self.now()
        self.entries[place] = number | REFUSED if refused else number
        place += 1
        self.place = 0 if place == self.capacity else place
        self.count += 1

    def number_of(self, request: Request) -> int:
        number = self.numbers.get(request)
        if number is not None:
            return number
        if _length(request) > LONGEST:
            return UNKNOWN
        if self.free:
            number = self.free.pop()
            self.requests[number] = request
        elif len(self.requests) <= self.most_requests:
            number = len(self.requests)
            self.requests.append(request)
        elif self.count >= self.look_again:
            # Not for every request: a client may send a new one each time.
            self.look_again = self.count + self.capacity // 8
            self.free_unused()
            return self.number_of(request) if self.free else UNKNOWN
        else:
            return UNKNOWN
        self.numbers[request] = number
        return number

    def free_unused(self) -> None:
        """Free the numbers that no entry of the ring has."""
        used = bytearray(len(self.requests))
        entries, size = self.entries, min(self.count, self.capacity)
        for place in range(size):
            used[entries[place] & _NUMBER] = 1
        for number in range(1, len(used)):
            request = self.requests[number]
            if not used[number] and request is not None:
                del self.numbers[request]
                self.requests[number] = None
                self.free.append(number)
        self.epoch += 1

    def dump(self, since: int) -> bytes:
        """What was recorded since a time, in nanoseconds, oldest first: see `Recorded.load`."""
        size = min(self.count, self.capacity)
        first = self.place if self.count > self.capacity else 0
        times, entries = array("q"), array("I")
        for start, stop in ((first, size), (0, first)):
            times.frombytes(bytes(self.times[start:stop]))
            entries.frombytes(bytes(self.entries[start:stop]))
        begin = next((at for at, when in enumerate(times) if when >= since), len(times))
        del times[:begin], entries[:begin]
        used = sorted({entry & _NUMBER for entry in entries} - {UNKNOWN})
        requests = [(number, self.requests[number]) for number in used]
        head = {"count": len(times), "requests": requests}
        return json.dumps(head).encode() + b"\n" + times.tobytes() + entries.tobytes()


class Recorded:
    """The requests of one or several recorders, in the order of time."""

    def __init__(
        self, times: array[int], numbers: array[int], refused: bytearray, requests: list[Request]
    ) -> None:
        self.times = times
        self.numbers = numbers  # into ``requests``
        self.refused = refused
        self.requests = requests
        self.unknown = 0  # requests that were not kept

    def __len__(self) -> int:
        return len(self.times)

    @classmethod
    def load(cls, dumps: Iterable[bytes], most: int | None = None) -> Recorded:
        """Of the dumps of several recorders, the newest ``most`` requests."""
        numbers: dict[Request, int] = {}
        rows: list[tuple[int, int, bool]] = []
        unknown = 0
        for dump in dumps:
            head, _, body = dump.partition(b"\n")
            fields: dict[str, Any] = json.loads(head)
            size = fields["count"]
            times, entries = array("q"), array("I")
            times.frombytes(body[: 8 * size])
            entries.frombytes(body[8 * size : 12 * size])
            mapped = {
                number: numbers.setdefault(_request(row), len(numbers))
                for number, row in fields["requests"]
            }
            for at, entry in zip(times, entries, strict=True):
                number = mapped.get(entry & _NUMBER)
                if number is None:
                    unknown += 1
                else:
                    rows.append((at, number, entry >= REFUSED))
        rows.sort(key=itemgetter(0))  # stable: a worker's own order stays
        if most is not None:
            del rows[:-most]
        recorded = cls(
            array("q", [row[0] for row in rows]),
            array("I", [row[1] for row in rows]),
            bytearray(row[2] for row in rows),
            list(numbers),
        )
        recorded.unknown = unknown
        return recorded


def _request(row: Any) -> Request:
    domain, descriptors, hits = row
    return domain, tuple(tuple((key, value) for key, value in pairs) for pairs in descriptors), hits


def _length(request: Request) -> int:
    return sum(len(key) + len(value) for pairs in request[1] for key, value in pairs)
