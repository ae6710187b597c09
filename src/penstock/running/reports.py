"""Reports of instances: which rules each of them has in force.

A report has the ``number`` and the ``digest`` of the set in force, None while it is from files, and
why a newer one was ``rejected``, with that one's digest as ``rejected_digest``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.clock import Clock
from penstock.durations import SECOND
from penstock.errors import PenstockError
from penstock.kv import AsyncKeyValue, KeyValue

Reports = Mapping[str, Mapping[str, Any]]  # by the name of the instance
LOOK_AGAIN = 0.05  # seconds
REPORT = 5.0  # seconds between two reports
REPORT_LASTS = "20s"

INSTANCES = ".instances"  # the end of the namespace, or of the file's name


class Reporter:
    """Reports of this instance, in a store of their own: they would fill the log of changes."""

    def __init__(self, control: str, instance: str) -> None:
        where, options = _place(control)
        self._kv = AsyncKeyValue(where, **options)
        self._instance = instance

    async def report(self, report: Mapping[str, Any]) -> None:
        with contextlib.suppress(PenstockError):  # the store is away; the next one follows
            await self._kv.put(self._instance, json.dumps(report), ttl=REPORT_LASTS)

    async def repeat(self, report: Callable[[], Mapping[str, Any]]) -> None:
        """Until it is cancelled."""
        while True:
            await self.report(report())
            await asyncio.sleep(REPORT)

    async def close(self) -> None:
        """An instance that ends takes its report with it."""
        with contextlib.suppress(PenstockError):
            await self._kv.delete(self._instance)
        await self._kv.aclose()


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


def progress_of(reports: Reports, number: int, digests: Collection[str]) -> Progress:
    """``digests`` are of the set, and of the one in force if it was replaced by a later one since.

    The number alone does not tell: a store that has lost its data counts from 1 again. The digest
    alone does not, either: an instance may have had the same files before.
    """
    in_force = 0
    rejected, waiting = {}, {}
    for name, report in sorted(reports.items()):
        runs = report.get("number")
        if (runs or 0) >= number and report.get("digest") in digests:
            in_force += 1
        elif report.get("rejected") and report.get("rejected_digest") in digests:
            rejected[name] = str(report["rejected"])
        elif runs is None:
            waiting[name] = "still at its files"
        else:
            other = ", of before the store was lost" if runs >= number else ""
            waiting[name] = f"still at set {runs}{other}"
    return Progress(in_force, rejected, waiting)


def wait_for_set(
    read: Callable[[], Reports],
    number: int,
    digests: Callable[[], Collection[str]],
    timeout_ns: int,
    clock: Clock,
) -> Progress:
    """Until every instance has the set or has rejected it, or for ``timeout_ns``."""
    end = clock.now() + timeout_ns
    while True:
        progress = progress_of(read(), number, digests())
        left = end - clock.now()
        if progress.settled or left <= 0:
            return progress
        clock.sleep(min(LOOK_AGAIN, left / SECOND))


def _place(control: str) -> tuple[str, dict[str, Any]]:
    if control.startswith("file:"):
        return control + INSTANCES, {}
    return control, {"namespace": f"penstock{INSTANCES}"}
