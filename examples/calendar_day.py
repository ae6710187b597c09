"""Five SMS per day, where the day begins at midnight in Taipei, wherever the server is.

A fake clock saves waiting for midnight.

Run it: python examples/calendar_day.py
"""

from datetime import datetime
from zoneinfo import ZoneInfo

from penstock import Limiter, MemoryStore
from penstock.testing import FakeClock

TAIPEI = ZoneInfo("Asia/Taipei")


def nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000_000


clock = FakeClock(start=nanoseconds(datetime(2025, 3, 14, 23, 58, tzinfo=TAIPEI)))
limiter = Limiter("5/day tz Asia/Taipei", store=MemoryStore(clock=clock))


def send(number: str) -> None:
    now = datetime.fromtimestamp(clock.now() / 1e9, TAIPEI)
    decision = limiter.hit(number)
    if decision:
        note = "sent, the last one today" if decision.last else "sent"
    else:
        note = f"refused, the next day begins in {decision.retry_after:.0f} s"
    print(f"  {now:%a %d %b %H:%M:%S} in Taipei: {note}")


print(limiter.peek("+886 2 5550 0100").limit)
for _ in range(7):
    send("+886 2 5550 0100")
    clock.advance(20)
