"""Recommendation: a limit to begin with, as plain objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.durations import format_period
from penstock.replay.behaviour import describe, looks_automated
from penstock.replay.deciding.tallies import KeyTally
from penstock.replay.recommending.choosing import Choice

SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Consequence:
    """What a limit would have refused, on requests that it was not chosen from."""

    requests: int
    refused: int
    keys: int
    keys_refused: int
    keys_automated: int

    @property
    def refused_share(self) -> float:
        return self.refused / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True)
class WindowChoice:
    """A limit for one window.

    ``uncertainty``: the needs between which the true quantile lies, with 95 % confidence.
    """

    window: int
    choice: Choice
    quantiles: dict[str, int]
    uncertainty: tuple[int, int]

    @property
    def limit(self) -> str:
        return f"{self.choice.limit}/{format_period(self.window)}"


@dataclass(slots=True)
class Recommendation:
    """A limit to begin with, why, and what it would have done.

    ``limit`` is None if there is too little to recommend from; ``reason`` says why.
    """

    by: tuple[str, ...]
    requests: int = 0
    keys: int = 0
    first: int = 0
    last: int = 0
    limit: str | None = None
    reason: str = ""
    choice: Choice | None = None
    windows: list[WindowChoice] = field(default_factory=list)
    holdout: Consequence | None = None
    whole: Consequence | None = None
    heaviest: list[KeyTally] = field(default_factory=list)
    # Whom it would have refused in the whole log, most refused first
    refused_keys: list[KeyTally] = field(default_factory=list)
    # (limit per chosen window, refused share, keys refused), for a plot
    curve: list[tuple[int, float, int]] = field(default_factory=list)
    # (requests a second, burst for the median, 99 %, and all people)
    frontier: list[tuple[float, int, int, int]] = field(default_factory=list)
    bucket: tuple[float, int] | None = None  # the chosen rate a second, and its burst
    # Other limits with the burst that they need, which refuse nobody who does not look automated
    trades: list[str] = field(default_factory=list)
    # (need, keys, automated keys)
    distribution: list[tuple[int, int, int]] = field(default_factory=list)
    timeline: tuple[int, int, list[int], list[int]] = (0, SECOND, [], [])
    week: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    sampled: float = 1.0
    lines: int = 0
    malformed: int = 0
    interrupted: bool = False
    stopped: str = ""  # why not all of the log was read
    memory: int = 0  # bytes for arrivals, keys and texts
    yaml: str = ""

    @property
    def automated(self) -> list[KeyTally]:
        """The heaviest keys that look automated."""
        return [key for key in self.heaviest if looks_automated(key)]

    def as_dict(self) -> dict[str, Any]:
        def consequence(of: Consequence | None) -> dict[str, Any] | None:
            if of is None:
                return None
            return {
                "requests": of.requests,
                "refused": of.refused,
                "refused_share": of.refused_share,
                "keys": of.keys,
                "keys_refused": of.keys_refused,
                "keys_automated": of.keys_automated,
            }

        return {
            "by": list(self.by),
            "limit": self.limit,
            "reason": self.reason,
            "how": None if self.choice is None else self.choice.how,
            "why": None if self.choice is None else self.choice.why,
            "requests": self.requests,
            "keys": self.keys,
            "first": self.first / SECOND,
            "last": self.last / SECOND,
            "sampled": self.sampled,
            "malformed": self.malformed,
            "stopped": self.stopped,
            "memory": self.memory,
            "windows": [
                {
                    "window_seconds": each.window / SECOND,
                    "limit": each.limit,
                    "how": each.choice.how,
                    "why": each.choice.why,
                    "quantiles": each.quantiles,
                    "uncertainty": list(each.uncertainty),
                }
                for each in self.windows
            ],
            "trades": self.trades,
            "holdout": consequence(self.holdout),
            "whole": consequence(self.whole),
            "refused_keys": [
                {
                    "key": key.key,
                    "asked": key.asked,
                    "refused": key.refused,
                    "behaviour": describe(key),
                }
                for key in self.refused_keys
            ],
            "heaviest": [
                {"key": key.key, "asked": key.asked, "behaviour": describe(key)}
                for key in self.heaviest
            ],
            "warnings": self.warnings,
            "yaml": self.yaml,
        }
