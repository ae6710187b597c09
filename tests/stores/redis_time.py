"""A RedisStore whose script is told the time by a FakeClock: production has no such door."""

from __future__ import annotations

from typing import Any

from penstock import Clock
from penstock.durations import MICROSECOND, SECOND
from penstock.stores.redis import RedisStore
from penstock.stores.redis.script import Script, script
from penstock.testing import FakeClock

# Keys expire by the real clock: that much later, a test has long ended.
LINGER = 3_600_000


class ToldScript(Script):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__(script(test_clock=True))
        self._clock = clock

    def deadline(self, server_ns: int) -> int:
        return 0

    def more_arguments(self) -> tuple[Any, ...]:
        now = self._clock.now()
        return now // SECOND, now % SECOND // MICROSECOND, LINGER, 1


class ToldStore(RedisStore):
    def __init__(self, where: object, clock: FakeClock, **options: Any) -> None:
        self._told = clock
        super().__init__(where, **{"deadline": "60s", "connect_timeout": "60s", **options})

    def _make_script(self) -> Script:
        return ToldScript(self._told)

    def _make_clock(self) -> Clock:
        return self._told
