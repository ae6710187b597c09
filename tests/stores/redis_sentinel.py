"""Real sentinels for tests: three of them, over one master and its replica."""

from __future__ import annotations

import time
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from stores.redis_server import Server, wait_until

SERVICE = "penstock"
QUORUM = 2
DOWN_AFTER = 900  # milliseconds
_CONFIG = """
sentinel monitor {service} 127.0.0.1 {port} {quorum}
sentinel down-after-milliseconds {service} {down_after}
sentinel failover-timeout {service} 2000
"""
# How often they look, in milliseconds; by default it takes them ten seconds to see a change.
# PING-PERIOD needs room on both sides: a new connection is first asked after one, which must be
# well below DOWN_AFTER, or what lives is taken for dead; and they promote no replica whose last
# INFO is older than five, while they ask for one each second once the master is down.
_PACE = ("PING-PERIOD", 300, "INFO-PERIOD", 200, "PUBLISH-PERIOD", 200, "ASK-PERIOD", 100)
_REPLICA = ("--repl-diskless-sync-delay", "0")
_PATIENCE = 60.0
# As the sentinels put it: one of these for them to promote, else a failover has to wait.
_GOOD_MASTER = {"flags": "master", "num-slaves": "1", "num-other-sentinels": "2"}
_GOOD_REPLICA = {"flags": "slave", "role-reported": "slave", "master-link-status": "ok"}


class SentinelSetup:
    service = SERVICE

    def __init__(self, binary: str) -> None:
        self.binary = binary
        self.servers: list[Server] = []
        self.sentinels: list[Server] = []
        self._clients: dict[Server, Any] = {}
        self._before = 0
        self._gone = 0.0

    # Its life ----------------------------------------------------------------------

    def start(self) -> None:
        for _ in range(2):
            self.servers.append(Server(self.binary))
            self.servers[-1].start(*_REPLICA)
        master, replica = self.servers
        self._ask(replica, "REPLICAOF", "127.0.0.1", master.port)
        self._wait("a replica that has caught up", lambda: self._in_step(replica, master))
        config = _CONFIG.format(
            service=SERVICE, port=master.port, quorum=QUORUM, down_after=DOWN_AFTER
        )
        for _ in range(3):
            # Each writes to its file what it learns, so each has one of its own.
            self.sentinels.append(Server(self.binary, config=config))
            self.sentinels[-1].start("--sentinel")
            self._ask(self.sentinels[-1], "SENTINEL", "DEBUG", *_PACE)
        self.wait_ok()

    def stop(self) -> None:
        for client in self._clients.values():
            client.close()
        for server in (*self.sentinels, *self.servers):
            server.stop()

    def kill_master(self) -> None:
        """The one that the sentinels name."""
        self._before, self._gone = self.master_port(), time.monotonic()
        self._server(self._before).kill()

    def heal(self) -> None:
        """Bring back what was killed; the sentinels make a replica of it."""
        for server in (*self.servers, *self.sentinels):
            if not server.running:
                server.restart()
        self.wait_ok()

    # Where it is -------------------------------------------------------------------

    @property
    def sentinel_ports(self) -> list[int]:
        return [server.port for server in self.sentinels]

    @property
    def ports(self) -> list[int]:
        return [server.port for server in self.servers]

    def master_port(self) -> int:
        """As the first sentinel that is alive has it."""
        return self._named(next(server for server in self.sentinels if server.running))

    # Waiting -----------------------------------------------------------------------

    def wait_failover(self, patience: float = _PATIENCE) -> float:
        """Until all sentinels name another master and it is one; the seconds from the kill."""
        self._wait("another master", self._moved, patience)
        return time.monotonic() - self._gone

    def wait_ok(self, patience: float = _PATIENCE) -> float:
        """Until the sentinels know each other, master and replica, and the replica has all."""
        return self._wait("sentinels that agree", self._agree, patience)

    def _moved(self) -> bool:
        named = {self._named(sentinel) for sentinel in self.sentinels if sentinel.running}
        if len(named) != 1 or self._before in named:
            return False
        return bool(self._ask(self._server(named.pop()), "ROLE")[0] == "master")

    def _agree(self) -> bool:
        named = {self._named(sentinel) for sentinel in self.sentinels}
        if len(named) != 1:
            return False
        master = self._server(named.pop())
        replica = next(server for server in self.servers if server is not master)
        return self._in_step(replica, master) and all(
            _has(self._ask(sentinel, "SENTINEL", "MASTER", SERVICE), _GOOD_MASTER)
            and _has(self._ask(sentinel, "SENTINEL", "REPLICAS", SERVICE)[0], _GOOD_REPLICA)
            for sentinel in self.sentinels
        )

    def _in_step(self, replica: Server, master: Server) -> bool:
        role = self._ask(replica, "ROLE")
        return bool(role[0] == "slave" and role[2] == master.port and role[3] == "connected")

    def _named(self, sentinel: Server) -> int:
        return int(self._ask(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])

    def _server(self, port: int) -> Server:
        return next(server for server in self.servers if server.port == port)

    def _wait(self, what: str, met: Any, patience: float = _PATIENCE) -> float:
        def calmly() -> bool:
            try:
                return bool(met())
            except (redis.ConnectionError, redis.TimeoutError):  # starting, or a role changes
                return False

        return wait_until(calmly, what, patience)

    def _ask(self, server: Server, *words: Any) -> Any:
        if server not in self._clients:
            self._clients[server] = redis.Redis(
                port=server.port, decode_responses=True, protocol=2, socket_timeout=2,
                retry=Retry(NoBackoff(), 0),
            )  # fmt: skip
        return self._clients[server].execute_command(*words)


def _has(words: list[str], expected: dict[str, str]) -> bool:
    pairs = iter(words)
    return expected.items() <= dict(zip(pairs, pairs, strict=True)).items()
