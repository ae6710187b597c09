"""A real cluster for tests: three masters with a replica each, all on 127.0.0.1.

It is formed with CLUSTER commands, since the wheels bring no redis-cli.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

from stores.redis_server import Server, wait_until

SLOTS = 16_384
# In milliseconds. As short as it can be where two busy cores run six nodes and the tests.
NODE_TIMEOUT = 1000
_OPTIONS = (
    "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
    "--cluster-node-timeout", str(NODE_TIMEOUT), "--cluster-require-full-coverage", "no",
    # A replica may follow its master however little it has heard, and moves to no other.
    "--cluster-replica-validity-factor", "0", "--cluster-migration-barrier", "10",
    "--repl-diskless-sync-delay", "0",
)  # fmt: skip
_PATIENCE = 60.0


@dataclass(eq=False)
class Node:
    server: Server
    client: Any
    id: str = ""
    served: list[int] = field(default_factory=list)  # when it was killed or paused
    gone: float = 0.0

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def live(self) -> bool:
        return self.server.running and not self.server.paused

    def __call__(self, *words: Any) -> Any:
        return self.client.execute_command(*words)


@dataclass(frozen=True)
class Member:
    """A node as another one sees it."""

    id: str
    master: str  # "-": it is one
    good: bool
    slots: frozenset[int] = field(repr=False)


class Step(NamedTuple):
    """One step of a slot on its way: importing, migrating, moved (once a batch), done."""

    what: str
    slot: int


class Cluster:
    def __init__(self, binary: str, masters: int = 3) -> None:
        self.masters = masters
        self.binary = binary
        self.nodes: list[Node] = []

    # Its life ----------------------------------------------------------------------

    def start(self) -> None:
        for _ in range(2 * self.masters):
            server = Server(self.binary, bus=True)
            self.nodes.append(Node(server, None))
            server.start(*_OPTIONS)
            self.nodes[-1].client = redis.Redis(
                port=server.port, decode_responses=True, protocol=2, socket_timeout=2,
                retry=Retry(NoBackoff(), 0),
            )  # fmt: skip
            self.nodes[-1].id = self.nodes[-1]("CLUSTER", "MYID")
        firsts = self.nodes[: self.masters]
        for number, node in enumerate(firsts):
            bounds = [SLOTS * end // self.masters for end in (number, number + 1)]
            node("CLUSTER", "ADDSLOTSRANGE", bounds[0], bounds[1] - 1)
        for number, node in enumerate(self.nodes):
            node("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            for other in self.nodes[:number]:  # all with all: gossip would take a while
                node("CLUSTER", "MEET", "127.0.0.1", other.port)
        for master, replica in zip(firsts, self.nodes[self.masters :], strict=True):
            follows = functools.partial(self._follows, replica, master)
            wait_until(follows, "a replica that knows its master", _PATIENCE)
        self.wait_ok(complete=True)

    def stop(self) -> None:
        for node in self.nodes:
            if node.client:
                node.client.close()
            node.server.stop()

    def kill(self, node: Node) -> None:
        node.served, node.gone = self.slots_of(node), time.monotonic()
        node.server.kill()

    def pause(self, node: Node) -> None:
        """It is there and does not answer; `heal` wakes it up."""
        node.served, node.gone = self.slots_of(node), time.monotonic()
        node.server.pause()

    def heal(self) -> None:
        """Bring back what was killed or paused, so that the next test finds it complete."""
        for node in self.nodes:
            if node.server.paused:
                node.server.resume()
            elif not node.server.running:
                node.server.restart()
        self.wait_ok(complete=True)

    # Where it is -------------------------------------------------------------------

    @property
    def ports(self) -> list[int]:
        return [node.port for node in self.nodes]

    @property
    def urls(self) -> list[str]:
        return [node.server.url for node in self.nodes]

    def master_of(self, slot: int | str | bytes) -> Node:
        """Of a slot, or of the slot of a key, by the word of the nodes that are alive."""
        number = slot if isinstance(slot, int) else slot_of(slot)
        for member in self._members(self._live()[0]):
            if number in member.slots:
                return self._node(member.id)
        raise LookupError(f"slot {number} has no master")

    def replica_of(self, master: Node) -> Node:
        for member in self._members(self._live()[0]):
            if member.master == master.id and self._node(member.id).live:
                return self._node(member.id)
        raise LookupError(f"{master.port} has no replica")

    def slots_of(self, node: Node) -> list[int]:
        """Those that it says it serves."""
        return sorted(next(m.slots for m in self._members(node) if m.id == node.id))

    def _node(self, id: str) -> Node:
        return next(node for node in self.nodes if node.id == id)

    def _live(self) -> list[Node]:
        return [node for node in self.nodes if node.live]

    # Waiting -----------------------------------------------------------------------

    def wait_ok(self, *, complete: bool = False, patience: float = _PATIENCE) -> float:
        """Until the nodes that are alive agree on who serves which slot, and serve them all.

        ``complete``: and all nodes are alive, and each master has its replica.
        """
        return wait_until(lambda: self._agree(complete), "a cluster that agrees", patience)

    def failed_over(self, dead: Node, patience: float = _PATIENCE) -> tuple[Node, float]:
        """Wait for a replica to take the place of a master that was killed or paused.

        That replica, and the seconds from the kill until all agree.
        """
        assert dead.served, "it was no master when it was killed"
        wait_until(lambda: self._heir(dead) is not None, f"failover of {dead.port}", patience)
        self.wait_ok(patience=patience)
        heir = self._heir(dead)
        assert heir is not None
        return heir, time.monotonic() - dead.gone

    def _heir(self, dead: Node) -> Node | None:
        found = self.master_of(dead.served[0])
        return None if found is dead else found

    def _follows(self, replica: Node, master: Node) -> bool:
        try:
            replica("CLUSTER", "REPLICATE", master.id)
        except redis.ResponseError:  # it has not heard of it
            return False
        return True

    def _agree(self, complete: bool) -> bool:
        live = self._live()
        if complete and len(live) < len(self.nodes):
            return False
        try:
            states = {"cluster_state:ok" in _text(node, "CLUSTER", "INFO") for node in live}
            views = {self._members(node) for node in live}
            links = {
                "master_link_status:down" in _text(node, "INFO", "replication") for node in live
            }
        except (redis.ConnectionError, redis.TimeoutError):  # still starting
            return False
        if states != {True} or links != {False} or len(views) != 1:
            return False
        members = {member.id: member for member in views.pop()}
        if len(members) < len(self.nodes) or not all(members[node.id].good for node in live):
            return False
        served = [members[node.id].slots for node in live if members[node.id].slots]
        masters = {member.master for member in members.values()} - {"-"}
        return (
            sum(map(len, served)) == SLOTS
            and len(served) == self.masters
            and (not complete or len(masters) == self.masters)
        )

    def _members(self, node: Node) -> frozenset[Member]:
        found = []
        for line in _text(node, "CLUSTER", "NODES").splitlines():
            id, _, flags, master, _, _, _, link, *ranges = line.split()
            good = link == "connected" and not {"fail", "fail?", "handshake"} & set(
                flags.split(",")
            )
            slots: set[int] = set()
            for part in ranges:
                if not part.startswith("["):  # [7->-...]: on its way
                    first, _, last = part.partition("-")
                    slots.update(range(int(first), int(last or first) + 1))
            found.append(Member(id, master, good, frozenset(slots)))
        return frozenset(found)

    # Moving slots ------------------------------------------------------------------

    def migrate(
        self, slots: Iterable[int], source: Node, target: Node, batch: int = 10
    ) -> Iterator[Step]:
        """Move slots with what is in them, and pause after each step for the test to look.

        Between "migrating" and "done" the source answers ASK for a key that has gone, and
        TRYAGAIN for several of which some have. A slot that is not taken to "done" stays open.
        """
        for slot in slots:
            target("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
            yield Step("importing", slot)
            source("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
            yield Step("migrating", slot)
            while names := source("CLUSTER", "GETKEYSINSLOT", slot, batch):
                source("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *names)
                yield Step("moved", slot)
            # The target first, so that at no time nobody has it; then whoever else lives.
            others = [node for node in self._live() if node not in (source, target)]
            for node in (
                target,
                source,
                *(other for other in others if other("ROLE")[0] == "master"),
            ):
                node("CLUSTER", "SETSLOT", slot, "NODE", target.id)
            yield Step("done", slot)


def slot_of(key: str | bytes) -> int:
    return int(key_slot(key.encode() if isinstance(key, str) else key))


def _text(node: Node, *words: str) -> str:
    """The answer as the server wrote it: redis-py would make a dictionary of it."""
    link = node.client.connection_pool.get_connection()
    try:
        link.send_command(*words)
        return str(link.read_response())
    finally:
        node.client.connection_pool.release(link)
