"""RegionStats: figures of one process about its region."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RegionStats:
    """What `RegionStore.stats` returns."""

    region: str
    floor: float  # that the home has granted, as a part of each limit; 0 if none yet
    is_agent: bool  # whether this process speaks for the site
    fence: int  # how often an agent was elected
    is_cut_off: bool  # whether the home was not heard for a third of a lease
    share_left: float  # seconds until the shares end if the home stays away
    watched: int  # keys of this process that need more than their floor
    lent: int  # keys for which this process, as the agent, has shares
    rounds: int
    failures: int
    problem: str  # why the home lends nothing, if it says so
