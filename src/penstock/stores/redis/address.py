"""Addresses of servers, from a URL or a redis-py client; shown without secrets.

::

    redis://[user:password@]host[:port][/db][?option=value]     rediss:// with TLS
    unix://[user:password@]/path/to/socket[?db=0]
    redis+sentinel://[user:password@]host:port,host:port/service[/db]
    redis+cluster://[user:password@]host:port,host:port

``valkey`` means the same as ``redis``. Connections are opened by redis-py, which supports all
options of TLS and login, and then used by `Connection` of connection.py.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import redis
import redis.asyncio
from redis.asyncio.connection import (
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
    parse_url,
)
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff

from penstock.errors import StoreError

_SCHEME = re.compile(r"(?:(redis|valkey)(s?)(?:\+(sentinel|cluster))?|unix)\Z")
_PORT = 6379
_SENTINEL_PORT = 26379
_FORMS = "redis://, rediss://, valkey://, unix://, redis+sentinel:// or redis+cluster://"
# Without the URL: any part of it may be a part of the password.
_UNREADABLE = (
    "cannot read the store's URL: write it like redis://user:password@host:6379/0, with %XX for"
    " special characters in the password"
)
# The settings of a client that say how to reach its server and log in. The others (retries,
# timeouts, decoding) are for the client's own connections.
_KEPT = re.compile(
    r"host|port|path|db|username|password|credential_provider|client_name"
    r"|socket_keepalive|socket_keepalive_options|ssl_\w+"
)


class Address:
    """One server, and how to log in there."""

    def __init__(self, kind: type[Any], settings: dict[str, Any]) -> None:
        self.kind = kind
        self.settings = settings

    @property
    def place(self) -> tuple[str, int]:
        return self.settings.get("host", "localhost"), self.settings.get("port", _PORT)

    def at(self, host: str, port: int) -> Address:
        """The same login at another place."""
        return Address(self.kind, {**self.settings, "host": host, "port": port})

    def __str__(self) -> str:
        path = self.settings.get("path")
        host, port = self.place
        where = path or (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        return f"{where}/{self.settings['db']}" if self.settings.get("db") else where

    def __repr__(self) -> str:
        return f"<Address {self}>"

    def connection(self, seconds: float) -> Any:
        """A redis-py connection, not yet connected, which does not retry."""
        return self.kind(
            **self.settings,
            socket_timeout=seconds,
            socket_connect_timeout=seconds,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )

    async def open(self, seconds: float) -> asyncio.StreamWriter:
        """Connect and log in; the caller takes over the writer."""
        connection = self.connection(seconds)
        try:
            await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        writer: asyncio.StreamWriter = connection._writer
        connection._writer = connection._reader = None  # it must not close the caller's writer
        return writer


@dataclass(frozen=True)
class Target:
    """What a store talks to: ``single``, ``sentinel`` or ``cluster``."""

    kind: str
    seeds: tuple[Address, ...]
    # With Sentinel: the name to ask the seeds for, and how to log in at the master.
    service: str = ""
    master: Address | None = None

    @property
    def addresses(self) -> tuple[Address, ...]:
        return self.seeds if self.master is None else (*self.seeds, self.master)

    def __str__(self) -> str:
        several = ",".join(str(seed) for seed in self.seeds)
        if self.kind == "single":
            return several
        return f"{self.kind} {self.service} {several}" if self.service else f"cluster {several}"

    def __repr__(self) -> str:
        return f"<Target {self}>"


def read_target(where: object) -> Target:
    """From a URL or a redis-py client; error messages contain no secrets."""
    target = _from_url(where) if isinstance(where, str) else _from_client(where)
    for address in target.addresses:
        try:
            address.connection(1.0)
        except Exception as error:
            # Such as "unexpected keyword argument 'sokcet_timeout'".
            raise StoreError(f"the options of {address} do not work: {error}") from None
    return target


# URLs -----------------------------------------------------------------------------


def _from_url(url: str) -> Target:
    try:
        parts = urlsplit(url)
        scheme = _SCHEME.match(parts.scheme)
        if scheme is None:
            raise StoreError(f"a store's URL starts with {_FORMS}")
        if "@" in parts.path:  # a password with a "/" in it, cut in two
            raise StoreError(_UNREADABLE)
        if parts.scheme == "unix":
            return Target("single", (_address(url),))
        safe = f"redis{scheme[2]}"
        user, _, places = parts.netloc.rpartition("@")
        login = f"{user}@" if user else ""
        query = f"?{parts.query}" if parts.query else ""
        pieces = [unquote(piece) for piece in parts.path.split("/") if piece]
        if scheme[3] == "sentinel":
            return _sentinels(safe, login, places, pieces, query)
        db = _database(pieces)
        seeds = tuple(
            _address(f"{safe}://{login}{place}{db}{query}") for place in places.split(",")
        )
        if scheme[3] == "cluster":
            if db:
                raise StoreError("a cluster has no numbered databases: leave the path empty")
            return Target("cluster", seeds)
        if len(seeds) > 1:
            raise StoreError(f"{parts.scheme}:// names one server: use redis+cluster:// for more")
        return Target("single", seeds)
    except StoreError:
        raise
    except Exception:
        # The message may contain a part of a password that was not escaped.
        raise StoreError(_UNREADABLE) from None


def _sentinels(safe: str, login: str, places: str, pieces: list[str], query: str) -> Target:
    if not pieces:
        raise StoreError("name the service behind the sentinels: redis+sentinel://host:port/name")
    service, db = pieces[0], _database(pieces[1:])
    master = _address(f"{safe}://{login}localhost{db}{query}")
    sentinel_login = {
        name.removeprefix("sentinel_"): master.settings.pop(name)
        for name in ("sentinel_username", "sentinel_password")
        if name in master.settings
    }
    seeds = []
    for place in places.split(","):
        seed = _address(f"{safe}://{place}{query}")
        for name in ("sentinel_username", "sentinel_password", "db"):
            seed.settings.pop(name, None)
        seed.settings.setdefault("port", _SENTINEL_PORT)
        seed.settings.update(sentinel_login)
        seeds.append(seed)
    return Target("sentinel", tuple(seeds), service, master)


def _address(url: str) -> Address:
    settings: dict[str, Any] = dict(parse_url(url))
    kind = settings.pop("connection_class", Connection)
    return Address(kind, settings)


def _database(pieces: list[str]) -> str:
    if not pieces:
        return ""
    if len(pieces) > 1 or not (pieces[0].isascii() and pieces[0].isdigit()):
        # Not shown: it may be the rest of a password with a "/" in it.
        raise StoreError("the database in a URL is a number, as in redis://host:6379/0")
    return f"/{pieces[0]}"


# Clients ----------------------------------------------------------------------------

_KINDS: dict[type[Any], type[Any]] = {
    getattr(half, kind.__name__): kind
    for half in (redis, redis.asyncio)
    for kind in (Connection, SSLConnection, UnixDomainSocketConnection)
}
_MANAGED = (redis.sentinel.SentinelConnectionPool, SentinelConnectionPool)


def _from_client(client: object) -> Target:
    if isinstance(client, (redis.RedisCluster, redis.asyncio.RedisCluster)):
        return _from_cluster(client)
    if not isinstance(client, (redis.Redis, redis.asyncio.Redis)):
        raise TypeError(f"a Redis store takes a URL or a redis-py client, not {type(client)!r}")
    pool = client.connection_pool
    if isinstance(pool, _MANAGED):
        kind = SSLConnection if "SSL" in pool.connection_class.__name__ else Connection
        master = Address(kind, _kept(kind, pool.connection_kwargs))
        seeds = tuple(_of_pool(s.connection_pool) for s in pool.sentinel_manager.sentinels)
        return Target("sentinel", seeds, pool.service_name, master)
    return Target("single", (_of_pool(pool),))


def _of_pool(pool: Any) -> Address:
    kind = _KINDS.get(pool.connection_class)
    if kind is None:
        raise TypeError(
            f"the client makes connections of its own kind, {pool.connection_class!r}: give the"
            " store a URL"
        )
    return Address(kind, _kept(kind, pool.connection_kwargs))


def _from_cluster(client: Any) -> Target:
    manager = client.nodes_manager
    settings = dict(getattr(client, "connection_kwargs", None) or manager.connection_kwargs)
    secure = settings.get("connection_class") is SSLConnection or any(
        name.startswith("ssl_") and value is not None for name, value in settings.items()
    )
    kind = SSLConnection if secure else Connection
    address = Address(kind, _kept(kind, settings))
    nodes = {(node.host, node.port): None for node in manager.startup_nodes.values()}
    return Target("cluster", tuple(address.at(host, port) for host, port in nodes))


def _kept(kind: type[Any], settings: dict[str, Any]) -> dict[str, Any]:
    known = {
        name
        for base in kind.__mro__
        if "__init__" in vars(base)
        for name in inspect.signature(vars(base)["__init__"]).parameters
    }
    kept = {}
    for name, value in settings.items():
        if value is None or not _KEPT.fullmatch(name):
            continue
        if name in known:
            kept[name] = value
        elif value:  # dropping it could weaken the checks
            raise StoreError(f"the client's option {name} is not one of asyncio connections")
    return kept
