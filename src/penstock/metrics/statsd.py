"""The metrics for statsd, sent over UDP.

>>> from penstock.metrics import Recorder
>>> recorder = Recorder()
>>> statsd = Statsd("127.0.0.1:8125")
>>> statsd.send(recorder.snapshot())

statsd adds up what it gets, so counters are sent as differences to the last snapshot. Gauges are
sent as they are. Of a histogram only the number of values in each bucket is known: they are sent as
timers with the upper bound of their bucket, many at once with a sample rate.

::

    plain       penstock.decisions.api.api_user.refused:3|c
    dogstatsd   penstock.decisions:3|c|#domain:api,rule:api/user,outcome:refused
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterable, Iterator

from penstock.metrics.families import BOUNDS, COUNTER, FAMILIES, HISTOGRAM, Family
from penstock.metrics.snapshot import Labels, Snapshot, Value

logger = logging.getLogger("penstock.metrics")

PLAIN, DOGSTATSD = "plain", "dogstatsd"
FORMATS = (PLAIN, DOGSTATSD)
# Bytes of a datagram: fits into a packet of Ethernet.
MOST_BYTES = 1432
# In plain statsd, a part of a name must have neither dots nor what separates fields.
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_NOT_IN_TAGS = re.compile(r"[,|#\s]+")


class Statsd:
    """Sends snapshots to ``address``, ``"HOST:PORT"``. Each `send` looks the host up again."""

    def __init__(self, address: str, format: str = PLAIN) -> None:
        self._host, self._port = parse_address(address)
        if format not in FORMATS:
            raise ValueError(f"format is one of {', '.join(FORMATS)}, not {format!r:.100}")
        self._lines = StatsdLines(tags=format == DOGSTATSD)
        self._fails = False

    def send(self, snapshot: Snapshot) -> None:
        """Blocks while the name is looked up. Errors are logged, the first of a series only."""
        packets = datagrams(self._lines.lines(snapshot))
        try:
            (family, kind, protocol, _, place), *_ = socket.getaddrinfo(
                self._host, self._port, type=socket.SOCK_DGRAM
            )
            with socket.socket(family, kind, protocol) as link:
                for packet in packets:
                    link.sendto(packet, place)
        except OSError as error:
            if not self._fails:
                logger.warning("metrics could not be sent to statsd: %s", error)
            self._fails = True
        else:
            self._fails = False


class StatsdLines:
    """Turns snapshots into lines. Counts are the differences to the snapshot before."""

    def __init__(self, *, tags: bool) -> None:
        self._tags = tags
        self._before: dict[tuple[str, Labels], list[int | float]] = {}

    def lines(self, snapshot: Snapshot) -> Iterator[str]:
        for name, family in FAMILIES.items():
            for labels, value in snapshot.values.get(name, {}).items():
                yield from self._of(family, labels, value)

    def _of(self, family: Family, labels: Labels, value: Value) -> Iterator[str]:
        if family.kind == HISTOGRAM:
            assert isinstance(value, list)
            # The last bucket has no bound, and the last number is the sum.
            for bound, count in zip(
                (*BOUNDS, BOUNDS[-1]), self._new(family, labels, value)[:-1], strict=True
            ):
                if count:
                    rate = f"|@{1 / count:.12g}" if count > 1 else ""
                    yield self._line(family, labels, f"{bound * 1e3:g}|ms{rate}")
            return
        assert not isinstance(value, list)
        if family.kind == COUNTER:
            (new,) = self._new(family, labels, [value])
            if new:
                yield self._line(family, labels, f"{new:.12g}|c")
        else:
            yield self._line(family, labels, f"{value:.12g}|g")

    def _new(self, family: Family, labels: Labels, values: list[int | float]) -> list[int | float]:
        """What was added since the last snapshot; all of it if the counts began anew."""
        before = self._before.get((family.name, labels))
        self._before[family.name, labels] = values
        if before is None or any(new < old for new, old in zip(values, before, strict=True)):
            return values
        return [new - old for new, old in zip(values, before, strict=True)]

    def _line(self, family: Family, labels: Labels, value: str) -> str:
        name = family.name.removeprefix("penstock_").removesuffix("_total")
        if not self._tags:
            parts = [_NOT_IN_NAMES.sub("_", label) or "_" for label in labels]
            return f"{'.'.join(['penstock', name, *parts])}:{value}"
        pairs = zip(family.labels, labels, strict=True)
        tags = ",".join([f"{key}:{_NOT_IN_TAGS.sub('_', text)}" for key, text in pairs])
        return f"penstock.{name}:{value}{f'|#{tags}' if tags else ''}"


def datagrams(lines: Iterable[str], most: int = MOST_BYTES) -> Iterator[bytes]:
    """As many lines in each as fit."""
    packet = b""
    for line in lines:
        data = line.encode("utf-8", "replace")
        if packet and len(packet) + 1 + len(data) > most:
            yield packet
            packet = b""
        packet = packet + b"\n" + data if packet else data
    if packet:
        yield packet


def parse_address(text: str) -> tuple[str, int]:
    """``HOST:PORT``; raises `ValueError`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"statsd is HOST:PORT, such as 127.0.0.1:8125, not {text!r:.100}")
    return host.strip("[]"), int(port)
