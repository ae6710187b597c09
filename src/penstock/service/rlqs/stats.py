"""What the quota service has done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RlqsStats:
    """Counts since the start."""

    reports: int = 0
    assignments: int = 0  # answers to reports
    pushes: int = 0  # assignments that nobody asked for
    denials: int = 0  # DENY_ALL, because nothing was free
    abandoned: int = 0
    undivided: int = 0  # reports of buckets whose limits cannot be divided
    ignored: int = 0  # reports of more buckets than are kept
    unanswered: int = 0  # because the bank could not be asked, or was asked too early
    failures: int = 0  # of the bank
    stalled: int = 0  # streams that were closed because nothing arrived
