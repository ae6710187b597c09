"""Exchange: the bank's script on the server of a `RedisStore`."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from redis import RedisCluster
from redis.crc import key_slot
from redis.exceptions import NoScriptError

from penstock.durations import MICROSECOND, SECOND
from penstock.stores.leased import wire
from penstock.stores.leased.lease import Lease
from penstock.stores.leased.wire import Parcel
from penstock.stores.redis import RedisStore

# A call of so many messages blocks the server for about 1 ms.
MOST_MESSAGES = 64
# So many calls may leave together. Others of the server get their turn in between.
MOST_CALLS = 8
# The connection is given up after so long without an answer, in seconds.
_TIMEOUT = "250ms"


class Exchange:
    """Sends messages, as few calls as possible: see `wire.py`. For one thread at a time."""

    def __init__(self, store: RedisStore) -> None:
        self.store = store
        self.calls = 0
        self._text = wire.bank_script()
        self._sha = hashlib.sha1(self._text.encode(), usedforsecurity=False).hexdigest()
        self._client: Any = None
        self._inherited: list[Any] = []

    def start_over(self) -> None:
        """In a forked child: the parent's connection is not ours, and must not be closed."""
        self._inherited.append(self._client)
        self._client = None

    def trips(self, leases: Sequence[Lease]) -> Iterator[list[Sequence[Lease]]]:
        """Divide them into trips to the server, of one or several calls.

        In a cluster, a call is for keys of one slot, and a trip is one call.
        """
        if not isinstance(self._connected(), RedisCluster):
            calls = _divided(leases, MOST_MESSAGES)
            yield from (calls[at : at + MOST_CALLS] for at in range(0, len(calls), MOST_CALLS))
            return
        slots: dict[int, list[Lease]] = defaultdict(list)
        for lease in leases:
            slots[key_slot(lease.places[0])].append(lease)
        for members in slots.values():
            yield from ([call] for call in _divided(members, MOST_MESSAGES))

    def send(self, calls: Sequence[Sequence[Parcel]]) -> list[Any]:
        """One trip: a `Reply`, REFRESH or an exception for each message of all calls.

        Raises what redis-py raises.
        """
        client = self._connected()
        self.calls += len(calls)
        if len(calls) == 1:
            return self._call(client, wire.encode(calls[0]))
        arguments = [wire.encode(parcels) for parcels in calls]
        with client.pipeline(transaction=False) as pipe:
            for each in arguments:
                pipe.evalsha(self._sha, *each)
            answers = pipe.execute(raise_on_error=False)
        replies: list[Any] = []
        for parcels, each, answer in zip(calls, arguments, answers, strict=True):
            if isinstance(answer, NoScriptError):
                replies += self._call(client, each)
            elif isinstance(answer, Exception):
                replies += [answer] * len(parcels)
            else:
                replies += wire.decode(answer)
        return replies

    def records(self, key: bytes) -> tuple[dict[bytes, bytes], int]:
        """The records of a key's leases, and the server's time in nanoseconds.

        For any thread, over a connection of its own.
        """
        with self.store.client(timeout=_TIMEOUT) as client:
            fields: Any = client.hgetall(key)
            seconds, microseconds = client.time()
        return fields, seconds * SECOND + microseconds * MICROSECOND

    def _call(self, client: Any, arguments: list[Any]) -> list[Any]:
        try:
            return wire.decode(client.evalsha(self._sha, *arguments))
        except NoScriptError:
            return wire.decode(client.eval(self._text, *arguments))

    def _connected(self) -> Any:
        if self._client is None:  # in a cluster, this connects
            self._client = self.store.client(timeout=_TIMEOUT)
        return self._client

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def instance_name() -> str:
    """A name for this process, new with every call: host, process and 8 random digits."""
    host = re.sub(r"[^\w.-]", "_", socket.gethostname(), flags=re.ASCII)[:24]
    return f"{host}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def _divided(leases: Sequence[Lease], most: int) -> list[Sequence[Lease]]:
    return [leases[at : at + most] for at in range(0, len(leases), most)]
