"""Random scenarios for a fleet: load that moves, idle times, sudden bursts, and faults."""

from __future__ import annotations

import random

from penstock.limits import Limit
from service.rlqs.envoys import Envelope, Envoy, World

LIMITS = (
    "100/second",
    "200/second burst 20",
    "10/second burst 3",
    "30/minute",
    "50/second burst 300",
)
STEP = 100
# Less than the slack of a message, there and back.
SLOWEST = 900


def rules_of(limit: str) -> str:
    return f"domain: envoys\ndescriptors:\n- key: user\n  limits: {limit}\n"


class Scenario:
    def __init__(self, seed: int, limit: str | None = None, can_prove: bool | None = None) -> None:
        self.chance = chance = random.Random(seed)
        self.limit = Limit.parse(limit or chance.choice(LIMITS))
        if can_prove is None:
            can_prove = chance.random() < 0.75
        self.world = World(
            rules_of(str(self.limit)), servers=chance.randint(1, 3), seed=seed, can_prove=can_prove
        )
        rate = 1e9 / self.limit.interval_ns
        self.envelope = Envelope(rate, self.limit.burst, self.world.now)
        self.world.delivered = self.check
        for _ in range(chance.randint(1, 4)):
            self.come()

    def check(self) -> None:
        self.envelope.check(self.world.envoys, self.world.now)

    # Faults -------------------------------------------------------------------------------

    def living(self) -> list[Envoy]:
        return [envoy for envoy in self.world.envoys if envoy.alive]

    def come(self) -> None:
        if len(self.living()) < 6:
            self.world.envoy(f"envoy-{len(self.world.envoys)}")

    def kill(self) -> None:
        if self.living():
            self.chance.choice(self.living()).kill()

    def disconnect(self) -> None:
        if self.living():
            link = self.chance.choice(self.living()).link
            if link is not None:
                link.over()

    def crash(self) -> None:
        self.world.crash(self.chance.randrange(len(self.world.services)))

    def restart(self) -> None:
        for index in range(len(self.world.services)):
            self.world.restart(index)

    def outage(self) -> None:
        """No server for about as long as an assignment lives."""
        for index in range(len(self.world.services)):
            self.world.crash(index)
        self.load(self.chance.randint(5_000, 20_000))
        self.restart()

    def weather(self) -> None:
        self.world.longest_delay = self.chance.choice([0, 5, 200, SLOWEST])
        self.world.lost_proofs = self.chance.choice([0, 0, 0.3, 1])

    # Load ---------------------------------------------------------------------------------

    def drain(self) -> None:
        """Every Envoy allows as much as it can, at once."""
        for envoy in self.living():
            for _ in range(self.limit.burst + 5):
                if not envoy.request():
                    break
                self.envelope.admit(self.world.now)

    def load(self, milliseconds: int) -> None:
        """One Envoy has most of the load, or nobody has any."""
        living = self.living()
        hot = self.chance.choice(living) if living else None
        factor = self.chance.choice([0, 0.02, 0.5, 2, 2])
        for _ in range(milliseconds // STEP):
            for envoy in self.living():
                rate = self.envelope.rate * factor * (1 if envoy is hot else 0.05)
                requests = rate * STEP / 1000
                whole = int(requests) + (self.chance.random() < requests % 1)
                for _ in range(whole):
                    if envoy.request():
                        self.envelope.admit(self.world.now)
            self.world.run_until(self.world.now + STEP)
            self.check()
        if self.chance.random() < 0.5:
            self.drain()

    def run(self, steps: int) -> None:
        faults = [
            self.come, self.kill, self.disconnect, self.crash, self.restart, self.restart,
            self.outage, self.weather, self.weather,
        ]  # fmt: skip
        for _ in range(steps):
            if self.chance.random() < 0.4:
                self.chance.choice(faults)()
            self.load(self.chance.choice([300, 1_000, 3_000, 7_000, 12_000]))
