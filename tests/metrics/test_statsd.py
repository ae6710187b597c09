"""Lines for statsd: differences of counters, gauges, and timers from histograms."""

from __future__ import annotations

import logging
import socket
from typing import Any

import pytest

from penstock.metrics import Snapshot, Statsd
from penstock.metrics.families import BOUNDS
from penstock.metrics.statsd import StatsdLines, datagrams, parse_address

DECISIONS = "penstock_decisions_total"


def counted(count: int, rule: str = "api/user") -> Snapshot:
    snapshot = Snapshot(0)
    snapshot.set(DECISIONS, ("api", rule, "refused"), count)
    return snapshot


def timed(**counts: int) -> Snapshot:
    """``ms_1=3``: three values of up to a millisecond."""
    buckets: list[int | float] = [0] * (len(BOUNDS) + 2)
    for name, count in counts.items():
        at = len(BOUNDS) if name == "above" else BOUNDS.index(int(name[3:]) / 1e3)
        buckets[at] = count
    snapshot = Snapshot(0)
    snapshot.set("penstock_decision_seconds", ("api",), buckets)
    return snapshot


@pytest.mark.parametrize(
    ("tags", "line"),
    [
        (False, "penstock.decisions.api.api_plan_free_user.refused:{}|c"),
        (True, "penstock.decisions:{}|c|#domain:api,rule:api/plan=free/user,outcome:refused"),
    ],
)
def test_counters_are_differences(tags: bool, line: str) -> None:
    lines = StatsdLines(tags=tags)
    rule = "api/plan=free/user"
    found = [list(lines.lines(counted(count, rule))) for count in (3, 3, 10, 4)]
    assert found == [[line.format(3)], [], [line.format(7)], [line.format(4)]]  # 4: began anew


def test_gauges_are_sent_each_time() -> None:
    snapshot = Snapshot(0)
    snapshot.set("penstock_rules", (), 12)
    snapshot.set("penstock_store_up", ("redis",), 0)
    lines = StatsdLines(tags=True)
    for _ in range(2):
        assert list(lines.lines(snapshot)) == [
            "penstock.rules:12|g",
            "penstock.store_up:0|g|#store:redis",
        ]


def test_a_histogram_becomes_timers_with_a_sample_rate() -> None:
    lines = StatsdLines(tags=False)
    name = "penstock.decision_seconds.api"
    assert list(lines.lines(timed(ms_1=1, ms_5=4))) == [f"{name}:1|ms", f"{name}:5|ms|@0.25"]
    assert list(lines.lines(timed(ms_1=1, ms_5=6, above=1))) == [
        f"{name}:5|ms|@0.5",
        f"{name}:1000|ms",
    ]


@pytest.mark.parametrize(("tags", "shown"), [(False, "a_b_c_d_e."), (True, "rule:a.b_c_d:e,")])
def test_labels_cannot_end_a_field(tags: bool, shown: str) -> None:
    (line,) = StatsdLines(tags=tags).lines(counted(1, "a.b|#c,\nd:e"))
    assert shown in line
    assert line.count("|") == (2 if tags else 1)


def test_as_many_lines_as_fit_go_into_a_datagram() -> None:
    packets = list(datagrams(["aaaa", "bbbb", "cc", "d" * 20], most=10))
    assert packets == [b"aaaa\nbbbb", b"cc", b"d" * 20]
    assert list(datagrams([])) == []


def test_it_is_sent_over_udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        statsd = Statsd(f"127.0.0.1:{server.getsockname()[1]}", "dogstatsd")
        statsd.send(counted(2))
        assert server.recv(2000).startswith(b"penstock.decisions:2|c|#domain:api,")


def test_a_host_that_cannot_be_found_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise socket.gaierror("unknown host")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    statsd = Statsd("statsd.invalid:8125")
    with caplog.at_level(logging.WARNING):
        for count in range(3):
            statsd.send(counted(count))
    assert ["unknown host" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize("wrong", ["", "host", "host:", ":8125", "host:0", "host:65536", "host:x"])
def test_wrong_addresses(wrong: str) -> None:
    with pytest.raises(ValueError, match="statsd is HOST:PORT"):
        parse_address(wrong)


def test_an_address_of_ipv6_and_a_wrong_format() -> None:
    assert parse_address("[::1]:8125") == ("::1", 8125)
    with pytest.raises(ValueError, match="format is one of plain, dogstatsd"):
        Statsd("a:1", "other")
