"""Testing code that uses limits: the test moves the clock, and nothing sleeps.

`Newsletter` takes the place of your code. It receives its limiter as an argument, so a
test can pass one with a `FakeClock`. The tests are plain functions that pytest also finds.

Run it: python examples/testing_your_code.py
"""

from penstock import Limiter, MemoryStore
from penstock.testing import FakeClock


class Newsletter:
    """Sends at most two mails per hour to one address."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self.sent: list[str] = []

    def send(self, address: str) -> bool:
        if not self._limiter.hit(address):
            return False
        self.sent.append(address)
        return True


def newsletter() -> tuple[Newsletter, FakeClock]:
    clock = FakeClock()
    return Newsletter(Limiter("2/hour", store=MemoryStore(clock=clock))), clock


def test_the_third_mail_in_an_hour_is_not_sent() -> None:
    letters, _ = newsletter()
    assert [letters.send("a@example.com") for _ in range(3)] == [True, True, False]
    assert letters.sent == ["a@example.com"] * 2


def test_half_an_hour_later_there_is_room_for_one() -> None:
    letters, clock = newsletter()
    for _ in range(3):
        letters.send("a@example.com")
    clock.advance_ns(30 * 60 * 1_000_000_000 - 1)
    assert not letters.send("a@example.com")
    clock.advance_ns(1)
    assert letters.send("a@example.com")


def test_addresses_do_not_share_a_limit() -> None:
    letters, _ = newsletter()
    assert all(letters.send(f"{name}@example.com") for name in "abc")


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"passed: {name.removeprefix('test_').replace('_', ' ')}")
