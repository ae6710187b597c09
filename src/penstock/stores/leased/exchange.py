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
from penstock.errors import StoreError
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
# Replicas have so long to confirm a grant, in milliseconds.
_CONFIRM = 100


class NotReplicated(StoreError):
    """Too few replicas have confirmed a grant, so it is not spent yet."""


class Exchange:
    """Sends messages, as few calls as possible: see `wire.py`. For one thread at a time.

    With ``replicas``, what is granted counts only when so many replicas have it. Until then it
    is as if the answer were lost: the next one has those units as well.
    """

    def __init__(self, store: RedisStore, replicas: int = 0) -> None:
        self.store = store
        self.replicas = replicas
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
        # What goes back need not be confirmed: to forget that is the safe side.
        confirm = self.replicas > 0 and any(
            parcel.message.want > 0 for call in calls for parcel in call
        )
        if len(calls) == 1 and not confirm:
            return self._call(client, wire.encode(calls[0]))
        arguments = [wire.encode(parcels) for parcels in calls]
        if not isinstance(client, RedisCluster):
            answers = self._together(client, arguments, confirm)
        else:
            answers = self._at_node(client, calls[0][0].key, arguments)
        replies: list[Any] = []
        for parcels, answer in zip(calls, answers, strict=True):
            if isinstance(answer, Exception):
                replies += [answer] * len(parcels)
            else:
                replies += wire.decode(answer)
        return replies

    def _together(self, client: Any, arguments: list[list[Any]], confirm: bool) -> list[Any]:
        """Several calls in one trip, and their confirmation, which is for one connection."""
        for _ in range(2):
            with client.pipeline(transaction=False) as pipe:
                for each in arguments:
                    pipe.evalsha(self._sha, *each)
                if confirm:
                    pipe.wait(self.replicas, _CONFIRM)
                answers: list[Any] = pipe.execute(raise_on_error=False)
            if not any(isinstance(answer, NoScriptError) for answer in answers):
                break
            client.script_load(self._text)  # then again: messages may be repeated
        if confirm:
            count = answers.pop()
            if isinstance(count, Exception):
                raise count
            if count < self.replicas:
                raise NotReplicated(f"{count} of {self.replicas} replicas have confirmed a grant")
        return answers

    def _at_node(self, cluster: Any, key: bytes, arguments: list[list[Any]]) -> list[Any]:
        """In a cluster, the replicas that confirm are those of the key's node."""
        try:
            node = cluster.get_node_from_key(key)
            answers = self._together(cluster.get_redis_connection(node), arguments, True)
        except Exception:
            self.close()  # the next call asks where the key is now
            raise
        if any(isinstance(answer, Exception) for answer in answers):  # it has moved
            self.close()
        return answers

    def records(self, places: Sequence[bytes]) -> tuple[list[dict[bytes, bytes]], int]:
        """The records of the leases of each key, and the server's time in nanoseconds.

        For any thread, over a connection of its own.
        """
        with self.store.counter_client(timeout=_TIMEOUT) as client:
            fields: list[Any] = [client.hgetall(place) for place in places]
            seconds, microseconds = client.time()
        return fields, seconds * SECOND + microseconds * MICROSECOND

    def _call(self, client: Any, arguments: list[Any]) -> list[Any]:
        try:
            return wire.decode(client.evalsha(self._sha, *arguments))
        except NoScriptError:
            return wire.decode(client.eval(self._text, *arguments))

    def _connected(self) -> Any:
        if self._client is None:  # in a cluster, this connects
            self._client = self.store.counter_client(timeout=_TIMEOUT)
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
