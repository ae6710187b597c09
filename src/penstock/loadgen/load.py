"""Load: how many requests, for how long, and for which keys."""

from __future__ import annotations

import random
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate

# Keys are chosen before the run: this many, then the same again.
CHOICES = 65_536
DEFAULT_SKEW = 1.1


@dataclass(frozen=True, slots=True)
class Load:
    """The options of a run.

    - ``rate``: requests a second, sent when they are due, whether or not answers arrive;
      None: as fast as answers arrive
    - ``connections``, ``streams``: how many connections, and requests at once on each
    - ``seconds``: how long
    - ``keys``: how many keys; ``skew``: 0 for a uniform choice, else the exponent of Zipf's
      law: the n-th key is chosen 1/n**skew times as often as the first
    - ``patience``: seconds to wait for the last answers
    """

    seconds: float = 10.0
    rate: float | None = None
    connections: int = 8
    streams: int = 1
    keys: int = 1_000
    skew: float = 0.0
    patience: float = 5.0
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("connections", "streams", "keys"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 < self.seconds <= 86_400:
            raise ValueError(f"duration must be above 0 and at most a day, not {self.seconds:g} s")
        if self.rate is not None and not 0 < self.rate <= 1e9:
            raise ValueError(f"rate must be more than 0 a second, not {self.rate:g}")
        if not 0 <= self.skew <= 10:
            raise ValueError(f"the exponent of zipf must be from 0 to 10, not {self.skew:g}")

    def choices(self) -> list[int]:
        """Which key each request is for; the same for the same load."""
        drawn = random.Random(self.seed)
        if self.keys == 1:
            return [0]
        if not self.skew:
            return [drawn.randrange(self.keys) for _ in range(max(CHOICES, self.keys))]
        weights = list(accumulate((n + 1) ** -self.skew for n in range(self.keys)))
        return [bisect_left(weights, drawn.random() * weights[-1]) for _ in range(CHOICES)]


def skew_of(text: str) -> float:
    """``uniform``, ``zipf`` or ``zipf:1.2``."""
    name, colon, exponent = text.partition(":")
    try:
        if name == "uniform" and not colon:
            return 0.0
        if name == "zipf":
            return float(exponent) if colon else DEFAULT_SKEW
    except ValueError:
        pass
    raise ValueError(f"keys are chosen by 'uniform', 'zipf' or 'zipf:1.2', not {text!r:.100}")
