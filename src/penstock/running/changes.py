"""ChangeHistory: what operators changed in the store of a fleet: made, listed and taken back.

An instance uses it for its admin API, and ``penstock admin --control`` without any instance. A
change is one write: it has the revision of that write as its number.
"""

from __future__ import annotations

import json
from typing import Any

from penstock.admin.commands import Answer, Command, done, failed
from penstock.clock import SECOND, Clock
from penstock.control import rule_sets, switch_entries
from penstock.errors import RevisionConflict, StoreError
from penstock.kv import AsyncKeyValue, Change
from penstock.kv.entry import LONGEST_WHO, LONGEST_WHY

PAGE = 500  # of the log


class ChangeHistory:
    """``mode`` is the one for all rules while nothing is switched. ``clock`` is a wall clock."""

    def __init__(self, kv: AsyncKeyValue, clock: Clock, mode: str = "enforce") -> None:
        self._kv = kv
        self._clock = clock
        self._mode = mode

    async def make(self, command: Command, who: str) -> Answer:
        """Write a change; the answer has no result."""
        key, expect = switch_entries.key_of(command), command.get("expect")
        who, why = who[:LONGEST_WHO], str(command.get("why") or "")[:LONGEST_WHY]
        try:
            if switch_entries.clears(command, self._mode):
                await self._kv.delete(key, expect=expect, who=who, why=why)
            else:
                value, ttl = switch_entries.value_of(command), command.get("lasts")
                await self._kv.put(key, value, ttl=ttl, expect=expect, who=who, why=why)
        except RevisionConflict as conflict:
            state = f"at change {conflict.actual}" if conflict.actual else "not set"
            return failed(409, f"{key} is {state}, not at {expect}: see /v1/changes")
        except StoreError as error:
            return _away(error)
        return done()

    async def rows(self, limit: int) -> Answer:
        """What was changed, the newest first. Pieces of files are left out."""
        rows: list[dict[str, Any]] = []
        before: int | None = None
        newest: set[str] = set()
        try:
            while len(rows) < limit:
                page = await self._kv.history(limit=PAGE, before=before)
                for change in filter(_is_shown, page):
                    rows.append(await self._row(change, change.key not in newest))
                    newest.add(change.key)
                if len(page) < PAGE:
                    break
                before = page[-1].revision
        except StoreError as error:
            return failed(503, f"the control store is away: {error}")
        return done(rows[:limit])

    async def _row(self, change: Change, newest: bool) -> dict[str, Any]:
        previous = await self._kv.change(change.previous) if change.previous else None
        return {
            "number": change.revision,
            "at": change.at,
            "who": change.who,
            "why": change.why,
            "what": change.key,
            "before": shown(previous) if change.previous else None,
            "after": shown(change),
            "lasts": _lasts(change),
            "can_undo": newest and not self._has_expired(change) and not _is_first_set(change),
        }

    def _has_expired(self, change: Change) -> bool:
        ends = None if change.entry is None else change.entry.expires_at
        return ends is not None and ends <= self._now()

    def _now(self) -> float:
        return self._clock.now() / SECOND

    async def undo(self, number: int, why: str, who: str) -> Answer:
        """Put back what was there before a change, unless it was changed again since.

        The result has what was there before the undo, and after it.
        """
        who, why = who[:LONGEST_WHO], (why or f"undo of {number}")[:LONGEST_WHY]
        try:
            change = await self._kv.change(number)
            if change is None or not _is_shown(change):
                return failed(404, f"there is no change {number}: see /v1/changes")
            if self._has_expired(change):
                return failed(
                    409, f"what change {number} set has expired: there is nothing to undo"
                )
            if _is_first_set(change):
                return failed(409, f"there were no rules before change {number}: push other ones")
            previous = await self._kv.change(change.previous) if change.previous else None
            if change.previous and previous is None:
                return failed(409, f"what change {number} replaced is no longer remembered")
            await self._put_back(change, previous, who, why)
        except RevisionConflict:
            return failed(409, f"what change {number} changed was changed again since")
        except StoreError as error:
            return _away(error)
        after = None if previous is None or self._has_expired(previous) else shown(previous)
        return done({"before": shown(change), "after": after})

    async def _put_back(self, change: Change, previous: Change | None, who: str, why: str) -> None:
        expect = 0 if change.entry is None else change.revision
        entry = None if previous is None else previous.entry
        ends = None if entry is None else entry.expires_at
        left = None if ends is None else round(ends - self._now(), 3)
        if entry is None or (left is not None and left <= 0):
            await self._kv.delete(change.key, expect=expect, who=who, why=why)
        else:
            await self._kv.put(
                change.key, entry.value, ttl=left, expect=expect, who=who, why=why
            )  # fmt: skip


def _away(error: StoreError) -> Answer:
    return failed(503, f"nothing was changed, as the control store is away: {error}")


def _is_shown(change: Change) -> bool:
    return change.key == rule_sets.CURRENT or switch_entries.is_switch(change.key)


def _is_first_set(change: Change) -> bool:
    """The rules that it put in force stay in force, as there are no others."""
    return change.key == rule_sets.CURRENT and not change.previous


def _lasts(change: Change) -> float | None:
    """For how many seconds it was made; None if until it is taken back."""
    entry = change.entry
    ends = None if entry is None else entry.expires_at
    return None if ends is None else round(ends - change.at, 3)


def shown(change: Change | None) -> str | None:
    """The state that a change has set, in a few words; None if it has removed it."""
    if change is None:
        return "?"
    if change.entry is None:
        return None
    try:
        if change.key == rule_sets.CURRENT:
            return f"set {rule_sets.info_of(change.entry).number}"
        data = json.loads(change.entry.text)
        if data["do"] == "log":
            return "logged"
        return str(data.get("mode") or data.get("limit") or f"x{data['factor']:g}")
    except (ValueError, KeyError, TypeError, StoreError):
        return "listed"
