"""The calls of an agent to its site and to its home, over redis-py."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from redis import RedisCluster
from redis.crc import key_slot
from redis.exceptions import NoScriptError

from penstock import keys
from penstock.durations import MICROSECOND, Duration
from penstock.stores.redis import RedisStore
from penstock.stores.redis.script import script
from penstock.stores.regions.law import Terms, Times
from penstock.stores.regions.messages import (
    Account,
    Answer,
    Apply,
    Ask,
    Looks,
    Note,
    SiteState,
    Take,
    Tick,
    pack_hello,
    pack_request,
    pack_share,
    rule_of,
    unpack_answer,
    unpack_applied,
)
from penstock.stores.regions.row import Applied, Share

_HOME_TIME = """\
local time = redis.call('TIME')
local now, LINGER = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000), 0
"""
# In tests, the last arguments are the time, and how much longer keys live.
_TEST_TIME = "local now, LINGER = tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV])\n"


def _text(name: str) -> str:
    return resources.files("penstock.stores.regions").joinpath(name).read_text("utf-8")


def home_script(test_clock: bool = False) -> str:
    return (_TEST_TIME if test_clock else _HOME_TIME) + _text("home.lua")


def site_script(test_clock: bool = False) -> str:
    return script(test_clock, driver=_text("site.lua"))


class _Scripts:
    """A client of one server, made when it is needed, and scripts that it runs."""

    def __init__(self, store: RedisStore, timeout: Duration) -> None:
        self.store = store
        self._timeout = timeout
        self._client: Any = None
        self._inherited: list[Any] = []
        self._names: dict[str, str] = {}

    @property
    def client(self) -> Any:
        if self._client is None:  # in a cluster, this connects
            self._client = self.store.client(timeout=self._timeout)
        return self._client

    def run(self, text: str, *arguments: Any) -> Any:
        name = self._names.get(text)
        if name is None:
            name = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
            self._names[text] = name
        try:
            return self.client.evalsha(name, *arguments)
        except NoScriptError:
            return self.client.eval(text, *arguments)

    def start_over(self) -> None:
        """In a forked child: the parent's connection is not ours, and must not be closed."""
        self._inherited.append(self._client)
        self._client = None

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


class SiteCalls(_Scripts):
    """To the Redis of this site."""

    def __init__(self, store: RedisStore, region: str, lease_ms: int) -> None:
        super().__init__(store, "500ms")
        self.rows = keys.region_prefix(store.prefix)
        self._lease = lease_ms
        self._agent, self._state, self._demand = keys.region_keys(store.prefix, region)
        self._tick, self._agents, self._site = _text("tick.lua"), _text("agent.lua"), site_script()

    def tick(self, tick: Tick) -> SiteState:
        demand = [part for pair in tick.demand.items() for part in pair]
        now, is_agent, fence, fields = self.run(
            self._tick, 3, self._agent, self._state, self._demand, tick.name, self._lease, *demand
        )
        state = {fields[at]: fields[at + 1] for at in range(0, len(fields), 2)}
        granted = state.get(b"granted")
        return SiteState(
            now * MICROSECOND, is_agent == 1, fence, state.get(b"site", b"").decode(),
            None if granted is None else int(granted), int(state.get(b"told", 0)),
            int(state.get(b"heard", 0)), state.get(b"problem", b"").decode(),
        )  # fmt: skip

    def take(self, take: Take) -> Mapping[bytes, int] | None:
        taken = self.run(self._agents, 2, self._state, self._demand, take.fence)
        if not isinstance(taken, list):
            return None
        return {taken[at]: int(taken[at + 1]) for at in range(0, len(taken), 2)}

    def note(self, note: Note) -> None:
        fields = [part for pair in note.fields.items() for part in pair]
        self.run(self._agents, 2, self._state, self._demand, note.fence, *fields)

    def apply(self, apply: Apply) -> Looks:
        if not isinstance(self.client, RedisCluster):
            return self._apply(apply.floor, apply.shares)
        rows: dict[int, Applied | None] = {}
        now = 0
        slots: dict[int, list[int]] = {}
        for at, (account, _) in enumerate(apply.shares):
            slots.setdefault(key_slot(self.rows + account.place), []).append(at)
        for places in slots.values():
            looks = self._apply(apply.floor, [apply.shares[at] for at in places])
            now = min(now or looks.now, looks.now)
            rows.update(zip(places, looks.rows, strict=True))
        return Looks(now, [rows[at] for at in range(len(rows))])

    def _apply(self, floor: int, shares: Sequence[tuple[Account, Share | None]]) -> Looks:
        if not shares:
            return Looks(0, [])
        places: dict[Terms, int] = {}
        names: list[bytes] = []
        messages: list[bytes] = []
        for account, share in shares:
            row = self.rows + account.place
            names += (row, keys.lease_key(self.store.prefix, row))
            place = places.setdefault(account.terms, 2 + len(places))
            messages.append(pack_share(place, share))
        policies = [rule_of(terms, floor).packed() for terms in places]
        now, *answers = self.run(
            self._site, len(names), *names, 2 + len(policies), *policies, *messages
        )
        return Looks(now * MICROSECOND, [unpack_applied(each) for each in answers])


class HomeCalls(_Scripts):
    """To the Redis of the home."""

    def __init__(self, store: RedisStore, times: Times) -> None:
        # Over the distance; a call that is lost must not take a lease with it.
        super().__init__(store, f"{min(max(500, times.lease // 4), 5_000)}ms")
        self._times = times
        self._roster = keys.home_key(store.prefix)
        self._home = home_script()

    def ask(self, ask: Ask) -> Answer:
        accounts = [keys.home_key(self.store.prefix, account.place) for account, _ in ask.requests]
        messages = [pack_request(*request) for request in ask.requests]
        head, *replies = self.run(
            self._home, 1 + len(accounts), self._roster, *accounts, pack_hello(ask, self._times),
            *messages,
        )  # fmt: skip
        return unpack_answer(head, replies)

    def forget(self, region: str) -> None:
        """Take a region off the roster."""
        opens = self.client.hget(self._roster, "")
        if opens is not None:  # what was told of it is over, too
            self.client.hset(self._roster, "", opens[:8] + bytes(8))
        self.client.hdel(self._roster, region)
