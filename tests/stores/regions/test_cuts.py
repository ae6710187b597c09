"""Sites far from their home, cut off and healed at random: never above, and as promised."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from stores.redis_server import Server
from stores.regions import sites

pytestmark = pytest.mark.realtime
# `make soak` asks for minutes.
SECONDS = float(os.environ.get("PENSTOCK_REGION_SECONDS", "20"))


@pytest.mark.timeout(SECONDS * 3 + 120)
def test_three_sites_cut_and_healed(own_server: Callable[..., Server]) -> None:
    home, *urls = [own_server().url for _ in range(4)]
    record = sites.run(home, urls, SECONDS, seed=1)
    admitted, seen = len(record.admitted()), sum(map(len, record.seen.values()))
    print(f"{admitted} of {seen} in {SECONDS} s, {len(record.cuts)} cuts")
    overrun, under_use = record.overrun(), record.under_use()
    print(f"worst interval {overrun:+.1f}, under-use {under_use:.2%}")
    assert overrun <= 0
    assert under_use <= 0.05
    rate, burst = 1e9 / sites.LIMIT.interval_ns, sites.LIMIT.burst
    cuts = list(record.cut_off())
    assert cuts
    for region, start, length, first, later in cuts:
        floor = sites.FLOOR * (burst + rate * length)
        print(
            f"{region} cut: {first}/s at first, then {later} in {length:.1f} s, floor {floor:.0f}"
        )
        assert later <= floor + 1, region
        assert later >= 0.8 * sites.FLOOR * rate * length, region
        on_floor = [each for each in record.seen[region] if start < each.start < start + length]
        assert all(each.degraded for each in on_floor)
    assert any(first > 2 * sites.FLOOR * rate for *_, first, _ in cuts)  # on its share
