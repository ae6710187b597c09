"""The service sends the sum of its workers to a real UDP socket."""

from __future__ import annotations

import re
import socket
import time

import pytest

from running.e2e.conftest import Start
from running.e2e.running import PATIENCE

RULES = "domain: api\ndescriptors: [{key: user, limits: 2/hour}]"
COUNT = re.compile(
    rb"^penstock\.decisions:(\d+)\|c\|#domain:api,rule:api/user,outcome:(\w+)$", re.M
)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_decisions_arrive_as_they_were_counted(penstock_service: Start, workers: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as statsd:
        statsd.bind(("127.0.0.1", 0))
        statsd.settimeout(1)
        service = penstock_service(
            RULES, "--statsd", f"127.0.0.1:{statsd.getsockname()[1]}", "--statsd-format",
            "dogstatsd", "--statsd-interval", "100ms", "--workers", workers,
        )  # fmt: skip
        for _ in range(5):
            service.check({"user": "42"})
        sums = {"refused": 0, "near_limit": 0, "allowed": 0}
        end = time.monotonic() + PATIENCE
        while sum(sums.values()) < 5 and time.monotonic() < end:
            for count, outcome in COUNT.findall(statsd.recv(2000)):
                sums[outcome.decode()] += int(count)
    assert sums["refused"] == 3
    assert sums["allowed"] + sums["near_limit"] == 2
