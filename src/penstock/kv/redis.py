"""RedisBackend: entries in Redis or Valkey, alone, behind Sentinel or in a cluster.

The stream of redis.lua is the truth. Publishing a revision only wakes followers up: a message
that is lost costs one poll. All keys have one hash tag, so they are in one slot of a cluster.

Connections are redis-py's. A command is sent twice only if its connection broke; a write carries
a token by which the script knows that it has been done already.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Generator
from importlib import resources
from typing import Any

from redis.exceptions import ConnectionError, NoScriptError, ResponseError, TimeoutError

from penstock import flows
from penstock.errors import (
    ForeignValue,
    NotReplicated,
    RevisionConflict,
    StoreError,
    StoreUnavailable,
)
from penstock.kv.backend import Fetched, Flow, Position, Snapshot, T, Written, fetched
from penstock.kv.memory import MOST_BYTES, MOST_WRITES
from penstock.kv.record import Record, Write, parse_record
from penstock.kv.redis_clients import Clients
from penstock.kv.redis_wakeups import RedisWakeups
from penstock.stores.redis.server_errors import ServerError, server_error

logger = logging.getLogger("penstock.kv")

NAMESPACE = "penstock"
_SCRIPT = resources.files("penstock.kv").joinpath("redis.lua").read_text()
_SHA = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()
_NAMESPACE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_MOST_FETCHED = 500
_SCANNED = 500
_ATTEMPTS = 10
# A step: a method of redis-py's clients and its arguments.
Command = tuple[Any, ...]


class RedisBackend:
    """``replicas`` is how many replicas must confirm a write, within ``timeout`` seconds."""

    direct = False
    poll = 5.0

    def __init__(
        self,
        where: object,
        *,
        namespace: str = NAMESPACE,
        timeout: float = 2.0,
        replicas: int = 0,
        most_writes: int = MOST_WRITES,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
            raise ValueError(
                f"a namespace is up to 64 letters, digits and _.:-, not {namespace!r:.100}"
            )
        if type(replicas) is not int or replicas < 0:
            raise ValueError(f"replicas is a whole number from 0, not {replicas!r:.50}")
        tag = f"{{{namespace}:kv}}"
        self._keys = tuple(f"{tag}:{part}" for part in ("meta", "data", "log", "ttl"))
        self._channel = f"{namespace}:kv"
        self._replicas = replicas
        self._timeout = timeout
        self._bounds = (most_writes, most_bytes)
        self._clients = Clients(where, timeout)
        self.name = self._clients.name

    # Flows -------------------------------------------------------------------------------

    def write(self, write: Write) -> Flow[Written]:
        expect = -1 if write.expect is None else write.expect
        kind, payload = ("d", b"") if write.payload is None else ("p", write.payload)
        before = (
            "write", write.key, kind, payload, write.ttl, expect, write.who,
            write.why, write.token,
        )  # fmt: skip
        answer = yield from self._script(*before, 0, *self._rest(), again=(*before, 1))
        if answer[0] == 0:
            raise RevisionConflict(write.key, expect, answer[1])
        if answer[0] == 2:
            return Written(None, answer[1])
        record = parse_record(write.key.encode(), answer[2])
        if self._replicas and answer[3] < self._replicas:
            raise NotReplicated(write.key, record.revision, answer[3], self._replicas)
        return Written(record, answer[1])

    def _rest(self) -> tuple[Any, ...]:
        return (self._channel, *self._bounds)

    def read(self, key: str) -> Flow[tuple[Record | None, int]]:
        revision, data = yield from self._script("read", key)
        return None if data is None else parse_record(key.encode(), data), revision

    def fetch(self, position: Position) -> Flow[Fetched]:
        start = max(1, position.revision)
        now, epoch, revision, entries = yield from self._script("fetch", start, _MOST_FETCHED)
        records = [parse_record(key, data) for key, data in entries]
        return fetched(now, epoch.decode(), revision, position, records)

    def snapshot(self, prefix: str = "") -> Flow[Snapshot]:
        """Read bit by bit, so that the server is not blocked; then what was written meanwhile."""
        for _ in range(_ATTEMPTS):
            start = yield from self._position()
            records = yield from self._scan(prefix)
            while True:
                after = yield from self.fetch(start.position)
                if after.records is None:  # trimmed, or lost by the server: once more
                    break
                for record in after.records:
                    if record.key.startswith(prefix):
                        _apply(records, record)
                start = Fetched(after.now, after.revision, after.position, ())
                if after.position.revision == after.revision:
                    live = [record for record in records.values() if record.is_live(after.now)]
                    return Snapshot(after.now, after.position, live)
        raise StoreUnavailable(f"{self.name}: its log is trimmed faster than it can be read")

    def _position(self) -> Flow[Fetched]:
        """Where the log ends now."""
        now, epoch, revision, _ = yield from self._script("fetch", 1, 1)
        position = Position(epoch.decode(), revision)
        if revision:
            now, epoch, _, entries = yield from self._script("fetch", revision, 1)
            if entries:
                last = parse_record(*entries[0])
                position = Position(epoch.decode(), last.revision, last.token)
        return Fetched(now, revision, position, ())

    def _scan(self, prefix: str) -> Flow[dict[str, Record]]:
        records: dict[str, Record] = {}
        pattern = re.sub(r"([*?\[\]^\\-])", r"\\\1", prefix) + "*"
        cursor = 0
        while True:
            cursor, entries = yield from self._command(
                "hscan", self._keys[1], cursor, pattern, _SCANNED
            )
            for key, data in entries.items():
                try:
                    _apply(records, parse_record(key, data))
                except StoreError as error:
                    logger.warning("%s: %s; it is left out", self.name, error)
            if cursor == 0:
                return records

    def history(self, prefix: str, limit: int, before: int | None) -> Flow[list[Record]]:
        last = "+" if before is None else f"{before - 1}-0"
        records: list[Record] = []
        while len(records) < limit:
            if last in ("0-0", "-1-0"):
                break
            entries = yield from self._command("xrevrange", self._keys[2], last, "-", _SCANNED)
            for _, fields in entries:
                record = parse_record(fields[b"k"], fields[b"r"])
                if record.key.startswith(prefix):
                    records.append(record)
            if len(entries) < _SCANNED:
                break
            last = f"{int(entries[-1][0].partition(b'-')[0]) - 1}-0"
        return records[:limit]

    # Commands ----------------------------------------------------------------------------

    def _script(self, *args: Any, again: tuple[Any, ...] | None = None) -> Flow[Any]:
        """Call the script; if the connection breaks, once more, with ``again`` in front."""
        head = (len(self._keys), *self._keys)
        if again is not None and self._replicas:
            return (yield from self._translated(self._replicated(head, args, again)))
        second = args if again is None else (*again, *self._rest())

        def commands() -> Generator[Command, Any, Any]:
            for last, attempt in ((False, args), (True, second)):
                try:
                    try:
                        return (yield "evalsha", _SHA, *head, *attempt)
                    except NoScriptError:
                        return (yield "eval", _SCRIPT, *head, *attempt)
                except ConnectionError:
                    if last:
                        raise
            raise AssertionError("the last attempt returns or raises")

        return (yield from self._translated(commands()))

    def _replicated(
        self, head: tuple[Any, ...], args: tuple[Any, ...], again: tuple[Any, ...]
    ) -> Generator[Command, Any, Any]:
        """WAIT counts the writes of its own connection, so both commands go over the same."""
        wait = ("WAIT", self._replicas, int(self._timeout * 500))
        for last, attempt in ((False, args), (True, (*again, *self._rest()))):
            try:
                call = ("EVAL", _SCRIPT, *head, *attempt)
                answer, confirmed = yield "on_primary", self._keys[0], call, wait
                return [*answer, *([None] if len(answer) < 3 else []), confirmed]
            except ConnectionError:
                if last:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _command(self, *command: Any) -> Flow[Any]:
        def twice() -> Generator[Command, Any, Any]:
            try:
                return (yield command)
            except ConnectionError:
                return (yield command)

        return (yield from self._translated(twice()))

    def _translated(self, commands: Generator[Command, Any, Any]) -> Flow[Any]:
        """Errors of redis-py as ours."""
        try:
            return (yield from commands)
        except ResponseError as error:
            text = self._clients.hide(str(error))
            kind = server_error(error)
            if kind is ServerError.WRONG and "script" in text:
                kind = server_error(ResponseError(f"ERR {text}"))
            if kind is ServerError.FOREIGN:
                raise ForeignValue(
                    f"{self.name}: {self._keys[1]!r} or a sibling was not written by this version"
                    f" of Penstock: {text}"
                ) from None
            raise StoreUnavailable(f"{self.name}: {text}") from None
        except TimeoutError:
            raise StoreUnavailable(
                f"{self.name}: no answer within {self._timeout:g} s; a write may have been made"
            ) from None
        except StoreError:
            raise
        except Exception as error:  # redis-py lets many kinds through
            raise StoreUnavailable(
                f"{self.name}: {self._clients.hide(str(error)) or type(error).__name__}"
            ) from None

    # Running flows -----------------------------------------------------------------------

    def run(self, flow: Flow[T]) -> T:
        return flows.run(flow, self._clients.send)

    async def run_async(self, flow: Flow[T]) -> T:
        return await flows.run_async(flow, self._clients.send_async)

    def wakeups(self) -> RedisWakeups:
        return RedisWakeups(self._clients, self._channel)

    def close(self) -> None:
        self._clients.close()

    async def aclose(self) -> None:
        await self._clients.aclose()


def _apply(records: dict[str, Record], record: Record) -> None:
    """The later of two records of a key counts; a scan may have seen either of them."""
    known = records.get(record.key)
    if known is None or known.revision < record.revision:
        records[record.key] = record
