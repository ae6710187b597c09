"""The roster: the regions that share a home, and the floor of each. Twin of `home.lua`.

A floor is reserved before its region may use it, and stays reserved for a while after it was
lowered. Both take as long as a lease lasts: then nobody uses anything that was lent, or decided
on, before.

A home without a roster is new, or has lost its memory; for that long it lends nothing beyond what
regions prove to have. They also say how much was reserved for all of them, so that the floor of a
region that cannot be heard stays reserved.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.stores.regions.law import WHOLE, Times

# How the home answers an agent: it may go on, or why not.
JOINED, TAKEN, STALE, TOO_MUCH = range(4)


@dataclass(slots=True)
class Member:
    floor: int
    site: str  # the name of a site is its region, and this tells two sites of one name apart
    fence: int
    seen: int
    counted: int = 0  # of what was told, this much was its own floor
    before: int = 0  # the floor that may be used until `usable`
    usable: int = 0
    old_floor: int = 0  # stays reserved until `old_until`
    old_until: int = 0

    def reserved(self, now: int) -> int:
        return max(self.floor, self.old_floor) if now < self.old_until else self.floor

    def granted(self, now: int) -> int:
        return self.floor if now >= self.usable else min(self.floor, self.before)


class Joined(NamedTuple):
    status: int
    granted: int  # the floor that the region may use
    reserved: int  # the floors of all regions


@dataclass(slots=True)
class Roster:
    times: Times
    opens: int = 0  # 0: it is new
    told: int = 0  # how much was reserved before it lost its memory, as regions say
    members: dict[str, Member] = field(default_factory=dict)

    def join(
        self, region: str, site: str, fence: int, floor: int, granted: int, told: int, now: int
    ) -> Joined:
        """An agent reports for its region, which may use the floor ``granted`` already, and has
        last heard that ``told`` is reserved in all."""
        whole = self.times.whole
        if self.opens == 0:
            self.opens = now + whole
        member = self.members.get(region)
        if now < self.opens and member is None:  # what it heard before
            self.told = max(self.told, told)
        others = sum(each.reserved(now) for name, each in self.members.items() if name != region)
        if member is not None and member.site != site and abs(now - member.seen) < whole:
            return Joined(TAKEN, 0, others + member.reserved(now))
        if member is not None and member.site == site and fence < member.fence:
            return Joined(STALE, 0, others + member.reserved(now))
        absent = 0
        if granted < floor:  # else it is one of those for whom something was reserved
            absent = self._absent() if member else max(0, self._absent() - granted)
        if others + floor + absent > WHOLE:
            return Joined(TOO_MUCH, granted, others + floor + absent)
        if member is None:
            usable = now if granted >= floor else now + whole
            member = Member(floor, site, fence, now, granted, granted, usable)
            self.members[region] = member
        elif floor > member.floor:
            member.before, member.usable = granted, now + whole
            member.floor = floor
        elif floor < member.floor:
            member.old_floor, member.old_until = member.reserved(now), now + whole
            member.floor = floor
        member.site, member.fence, member.seen = site, fence, now
        return Joined(JOINED, member.granted(now), sum(self.floors(now).values()))

    def floors(self, now: int) -> dict[str, int]:
        """What is reserved for each region; for those that are not heard under the name ''."""
        floors = {name: each.reserved(now) for name, each in self.members.items()}
        floors[""] = self._absent()
        return floors

    @property
    def empty(self) -> int:
        """Until when accounts that are not known must be taken for empty; 0 if the home is new."""
        return self.opens if self.told else 0

    def _absent(self) -> int:
        return max(0, self.told - sum(each.counted for each in self.members.values()))
