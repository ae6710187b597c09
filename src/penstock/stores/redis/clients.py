"""redis-py clients for a store's server, for other data on the same server.

The store uses its own connections only for its script. Leases, for example, are kept by another
script, but on the same server with the same login, TLS and database.

A client does not retry: its user knows which commands may be sent twice.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel
from redis.backoff import NoBackoff

from penstock.errors import StoreError
from penstock.stores.redis.address import Address, Target

Client = redis.Redis | redis.RedisCluster
AsyncClient = redis.asyncio.Redis | redis.asyncio.RedisCluster


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
    """Closes all its connections: after an error, redis-py's believes that it has none."""

    async def aclose(self) -> None:
        await super().aclose()
        await self.nodes_manager.aclose()
        await self.nodes_manager.aclose("startup_nodes")


# Both halves ------------------------------------------------------------------------


class Half(NamedTuple):
    """redis-py has all classes twice, with the same names: for threads and for coroutines."""

    module: Any
    master_pool: Any
    cluster: Any
    cluster_options: frozenset[str]  # any other option is ignored, or an error


THREADS = Half(redis, _MasterPool, redis.RedisCluster, frozenset(redis.cluster.REDIS_ALLOWED_KEYS))
COROUTINES = Half(
    redis.asyncio,
    _AsyncMasterPool,
    _AsyncCluster,
    frozenset(inspect.signature(redis.asyncio.RedisCluster).parameters),
)


def make_client(half: Half, target: Target, timeout: float, connect_timeout: float) -> Any:
    """A `Client` for `THREADS`, or an `AsyncClient` for `COROUTINES`."""
    common = {
        "socket_timeout": timeout,
        "socket_connect_timeout": connect_timeout,
        "retry": half.module.retry.Retry(NoBackoff(), 0),
        "protocol": 2,
        "decode_responses": False,
    }
    if target.kind == "cluster":
        return _cluster(half, target, common)
    if target.kind == "sentinel":
        return _master(half, target, common)
    return _single(half, target.seeds[0], common)


def _single(half: Half, address: Address, common: dict[str, Any]) -> Any:
    kind = getattr(half.module.connection, address.kind.__name__)
    pool = half.module.ConnectionPool(connection_class=kind, **{**address.settings, **common})
    return half.module.Redis.from_pool(pool)


def _master(half: Half, target: Target, common: dict[str, Any]) -> Any:
    assert target.master is not None
    manager = half.module.sentinel.Sentinel(())
    manager.sentinels = [_single(half, seed, common) for seed in target.seeds]
    settings = {**_login(target.master), **common}
    pool = half.master_pool(target.service, manager, ssl=_is_secure(target.master), **settings)
    return half.module.Redis.from_pool(pool)


def _cluster(half: Half, target: Target, common: dict[str, Any]) -> Any:
    settings = _login(target.seeds[0])
    settings.pop("db", None)  # a cluster has only one
    for name in settings.keys() - half.cluster_options:
        if name.startswith("ssl_"):  # leaving it out could weaken the checks
            raise StoreError(f"redis-py's {half.cluster!r} does not know the option {name}")
        del settings[name]
    nodes = [half.module.cluster.ClusterNode(*seed.place) for seed in target.seeds]
    secure = _is_secure(target.seeds[0])
    return half.cluster(startup_nodes=nodes, ssl=secure, **{**settings, **common})


def _login(address: Address) -> dict[str, Any]:
    """All but host and port, which come from a sentinel or the cluster."""
    return {name: value for name, value in address.settings.items() if name not in ("host", "port")}


def _is_secure(address: Address) -> bool:
    return issubclass(address.kind, redis.asyncio.SSLConnection)
