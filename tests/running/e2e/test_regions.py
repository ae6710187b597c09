"""``penstock serve --region``: two sites of one limit, over real servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from running.e2e.conftest import Start
from running.e2e.running import PATIENCE, Penstock, ask
from stores import redis_server
from stores.redis_server import wait_until

# So slow that nothing comes back while the test looks.
RULES = """
domain: api
descriptors:
  - {key: tenant, limits: 100/day}
  - {key: phone, limits: 5/day fixed_window}
"""


@pytest.fixture
def valkey() -> Iterator[Callable[[], redis_server.Server]]:
    pytest.importorskip("redis")
    binary = redis_server.find_binary()
    if binary is None:
        pytest.skip(redis_server.NO_SERVER)
    with ExitStack() as cleanup:

        def start() -> redis_server.Server:
            server = redis_server.Server(binary)
            cleanup.callback(server.stop)
            server.start()
            return server

        yield start


def passed(service: Penstock, key: str, value: str, hits: int) -> int:
    """How many of so many requests pass."""
    return sum(service.check({key: value}).status == 200 for _ in range(hits))


def test_two_sites_share_a_limit_and_one_loses_its_home(
    penstock_service: Start, valkey: Callable[[], redis_server.Server]
) -> None:
    home = valkey()
    options = ("--home", home.url, "--on-failure", "closed", "--deadline", "20s")
    lease = ("--floor", "20%", "--region-lease", "2s", "--workers", "2")
    sites = [
        penstock_service(RULES, "--store", valkey().url, "--region", name, *options, *lease)
        for name in ("eu", "us")
    ]
    for name, site in zip(("eu", "us"), sites, strict=True):
        site.said(rf"store  redis://\S+, region {name}")

        def has_floor(site: Penstock = site) -> bool:
            return site.counted("penstock_region_floor") == 0.2

        wait_until(has_floor, "the floor", PATIENCE)
    eu, us = sites
    assert passed(eu, "tenant", "acme", 15) == 15  # on the floor

    total = [0]

    def borrows() -> bool:
        total[0] += passed(eu, "tenant", "large", 10)
        return total[0] >= 60

    wait_until(borrows, "more than its floor", PATIENCE)
    assert total[0] <= 80  # the other site's floor is never lent
    # What cannot be divided is decided at home, for all.
    assert passed(eu, "phone", "1", 4) + passed(us, "phone", "1", 4) == 5
    assert eu.counted("penstock_region_agents") == 1

    home.kill()

    def knows() -> bool:
        return eu.counted("penstock_region_cut_off") == 1

    wait_until(knows, "the site to notice", PATIENCE)
    parts = json.loads(ask(eu.admin, "/v1/health").body)["components"]
    assert (parts["home"], parts["store"], parts["ratelimit"]) == ("down", "up", "up")
    assert passed(eu, "tenant", "new", 30) == 20  # the floor, and never more
