"""Who holds leases of a key: read from the bank's records in Redis (see `bank.lua`)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.durations import MICROSECOND, SECOND

_RECORD = struct.Struct("<6d")


@dataclass(frozen=True, slots=True)
class Holder:
    """An instance that holds units of a key, as far as the bank knows."""

    instance: str  # host, process, and 8 random digits
    units: int  # not reported as spent yet
    demand: int  # units a second that it is asked for, refused ones included
    expires: float  # in so many seconds, if it is not renewed


@dataclass(frozen=True, slots=True)
class LeasedKey:
    """A key that this process leases."""

    limit: str
    key: str
    units: int  # in hand here
    demand: int  # units a second here, refused ones included
    holders: tuple[Holder, ...]  # in all processes, this one included


def read_holders(fields: Mapping[bytes, bytes], now: int) -> list[Holder]:
    """Those that are live at ``now``, in nanoseconds since 1970; who has most comes first."""
    holders = []
    for name, text in fields.items():
        if not name or len(text) != _RECORD.size:
            continue  # the sums, or nothing of ours
        granted, spent, returned, demand, end, _ = _RECORD.unpack(text)
        left = int(end) * MICROSECOND - now
        if left > 0:
            instance = name.decode("utf-8", "replace").rpartition(".")[0]
            units = int(granted - spent - returned)
            holders.append(Holder(instance, units, int(demand), left / SECOND))
    return sorted(holders, key=lambda holder: (-holder.units, holder.instance))
