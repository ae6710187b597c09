"""Clients of redis-py for a store's server: what else is kept there speaks through these.

The store has connections of its own, over which it speaks only to its script. Leases, say,
are kept by another script, but on the same server, by the same log-in, TLS and database.

A client tries once. Whoever uses it knows whether its command may be sent again; redis-py
would send it again unasked, and some of it would count twice.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.connection
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.cluster
import redis.retry
import redis.sentinel
from redis.backoff import NoBackoff

from penstock.errors import StoreError
from penstock.stores.redis.address import Address, Target

Client = redis.Redis | redis.RedisCluster
AsyncClient = redis.asyncio.Redis | redis.asyncio.RedisCluster


def make_client(target: Target, timeout: float, connect_timeout: float) -> Client:
    """A client for threads."""
    made: Client = _made(_THREADS, target, timeout, connect_timeout)
    return made


def make_async_client(target: Target, timeout: float, connect_timeout: float) -> AsyncClient:
    """The same for coroutines."""
    made: AsyncClient = _made(_COROUTINES, target, timeout, connect_timeout)
    return made


# Closing ----------------------------------------------------------------------------


class _MasterPool(redis.sentinel.SentinelConnectionPool):
    """Connections to the master. Closing them closes those to the sentinels, too."""

    def disconnect(self, inuse_connections: bool = True) -> None:
        super().disconnect(inuse_connections)
        if inuse_connections:  # else it only lets go of a former master
            for sentinel in self.sentinel_manager.sentinels:
                sentinel.close()


class _AsyncMasterPool(redis.asyncio.sentinel.SentinelConnectionPool):
    """The same for coroutines."""

    async def disconnect(self, inuse_connections: bool = True) -> None:
        await super().disconnect(inuse_connections)
        if inuse_connections:
            for sentinel in self.sentinel_manager.sentinels:
                await sentinel.aclose()


class _AsyncCluster(redis.asyncio.RedisCluster):
    """Closes all its connections.

    Since an error, redis-py's takes itself for one that has none.
    """

    async def aclose(self) -> None:
        await super().aclose()
        await self.nodes_manager.aclose()
        await self.nodes_manager.aclose("startup_nodes")


# Both halves ------------------------------------------------------------------------


class _Half(NamedTuple):
    """Redis-py is there twice, with the same names: for threads, and for coroutines."""

    client: Any
    pool: Any
    connections: Any  # the module with the kinds of them, named as those of an `Address`
    retry: Any
    sentinel: Any
    master_pool: Any
    cluster: Any
    cluster_node: Any
    cluster_options: frozenset[str]  # it drops any other, or breaks


_THREADS = _Half(
    redis.Redis,
    redis.ConnectionPool,
    redis.connection,
    redis.retry.Retry,
    redis.sentinel.Sentinel,
    _MasterPool,
    redis.RedisCluster,
    redis.cluster.ClusterNode,
    frozenset(redis.cluster.REDIS_ALLOWED_KEYS),
)
_COROUTINES = _Half(
    redis.asyncio.Redis,
    redis.asyncio.ConnectionPool,
    redis.asyncio.connection,
    redis.asyncio.retry.Retry,
    redis.asyncio.sentinel.Sentinel,
    _AsyncMasterPool,
    _AsyncCluster,
    redis.asyncio.cluster.ClusterNode,
    frozenset(inspect.signature(redis.asyncio.RedisCluster).parameters),
)


def _made(half: _Half, target: Target, timeout: float, connect_timeout: float) -> Any:
    common = {
        "socket_timeout": timeout,
        "socket_connect_timeout": connect_timeout,
        "retry": half.retry(NoBackoff(), 0),
        "protocol": 2,
        "decode_responses": False,
    }
    if target.kind == "cluster":
        return _cluster(half, target, common)
    if target.kind == "sentinel":
        return _master(half, target, common)
    return _single(half, target.seeds[0], common)


def _single(half: _Half, address: Address, common: dict[str, Any]) -> Any:
    kind = getattr(half.connections, address.kind.__name__)
    pool = half.pool(connection_class=kind, **{**address.settings, **common})
    return half.client.from_pool(pool)


def _master(half: _Half, target: Target, common: dict[str, Any]) -> Any:
    assert target.master is not None
    manager = half.sentinel(())
    manager.sentinels = [_single(half, seed, common) for seed in target.seeds]
    settings = {**_login(target.master), **common}
    pool = half.master_pool(target.service, manager, ssl=_is_secure(target.master), **settings)
    return half.client.from_pool(pool)


def _cluster(half: _Half, target: Target, common: dict[str, Any]) -> Any:
    settings = _login(target.seeds[0])
    settings.pop("db", None)  # of a cluster there is only one
    for name in settings.keys() - half.cluster_options:
        if name.startswith("ssl_"):  # to leave it out could mean to check less
            raise StoreError(f"redis-py's {half.cluster!r} does not know the option {name}")
        del settings[name]
    nodes = [half.cluster_node(*seed.place) for seed in target.seeds]
    secure = _is_secure(target.seeds[0])
    return half.cluster(startup_nodes=nodes, ssl=secure, **{**settings, **common})


def _login(address: Address) -> dict[str, Any]:
    """All but the place, which a sentinel or a cluster tells."""
    return {name: value for name, value in address.settings.items() if name not in ("host", "port")}


def _is_secure(address: Address) -> bool:
    return issubclass(address.kind, redis.asyncio.SSLConnection)
