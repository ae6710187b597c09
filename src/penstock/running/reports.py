"""Reports of instances: which rules each of them has in force.

A report has the ``number`` of the set in force, None while it is from files, and why a newer one
was ``rejected``, with that one's number as ``rejected_number``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.clock import Clock
from penstock.durations import SECOND
from penstock.kv import AsyncKeyValue, KeyValue

Reports = Mapping[str, Mapping[str, Any]]  # by the name of the instance
LOOK_AGAIN = 0.05  # seconds

INSTANCES = ".instances"  # the end of the namespace, or of the file's name


def open_reports(control: str) -> AsyncKeyValue:
    """A store of its own: the reports would fill the log of the changes."""
    where, options = _place(control)
    return AsyncKeyValue(where, **options)


def read_reports(control: str) -> dict[str, dict[str, Any]]:
    """By the name of the instance."""
    where, options = _place(control)
    with KeyValue(where, **options) as kv:
        return {entry.key: json.loads(entry.text) for entry in kv.list(read="primary")}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a set of rules has come: by instance, why it does not have it."""

    in_force: int
    rejected: Mapping[str, str]
    waiting: Mapping[str, str]

    @property
    def complete(self) -> bool:
        """In force everywhere; without any instance, it is in force nowhere."""
        return self.in_force > 0 and not self.rejected and not self.waiting

    @property
    def settled(self) -> bool:
        """Whether waiting longer would change nothing."""
        return not self.waiting and bool(self.in_force or self.rejected)


def progress_of(reports: Reports, number: int) -> Progress:
    """A later set counts as well: an instance may skip one that was replaced at once.

    A rejection counts only if it is of this set or a later one.
    """
    in_force = 0
    rejected, waiting = {}, {}
    for name, report in sorted(reports.items()):
        runs = report.get("number")
        if (runs or 0) >= number:
            in_force += 1
        elif report.get("rejected") and (report.get("rejected_number") or 0) >= number:
            rejected[name] = str(report["rejected"])
        else:
            waiting[name] = "still at its files" if runs is None else f"still at set {runs}"
    return Progress(in_force, rejected, waiting)


def wait_for_set(
    read: Callable[[], Reports], number: int, timeout_ns: int, clock: Clock
) -> Progress:
    """Until every instance has the set or has rejected it, or for ``timeout_ns``."""
    end = clock.now() + timeout_ns
    while True:
        progress = progress_of(read(), number)
        left = end - clock.now()
        if progress.settled or left <= 0:
            return progress
        clock.sleep(min(LOOK_AGAIN, left / SECOND))


def _place(control: str) -> tuple[str, dict[str, Any]]:
    if control.startswith("file:"):
        return control + INSTANCES, {}
    return control, {"namespace": f"penstock{INSTANCES}"}
