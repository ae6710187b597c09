"""RedisBank: accounts that all servers of a domain share, settled by `bank.lua`.

The time is the server's. The keys of a domain have one hash tag, so that one call carries many
buckets in a cluster, too.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from redis.exceptions import NoScriptError, RedisError

from penstock.errors import StoreUnavailable
from penstock.keys import quota_key
from penstock.service.rlqs.account import Reply
from penstock.service.rlqs.bank import Entry
from penstock.service.rlqs.packing import bank_script, pack_entry, unpack_reply
from penstock.stores.redis import RedisStore

logger = logging.getLogger("penstock.rlqs")

# A call of so many requests blocks the server for about 2 ms.
MOST_REQUESTS = 64
_TIMEOUT = "500ms"


class RedisBank:
    """On the server of a `RedisStore`. Created and used within one event loop."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._text = bank_script()
        self._sha = hashlib.sha1(self._text.encode(), usedforsecurity=False).hexdigest()
        self._client: Any = None

    async def exchange(self, entries: Sequence[Entry]) -> list[Reply | None]:
        domains: dict[str, list[int]] = defaultdict(list)
        for at, entry in enumerate(entries):
            domains[entry.key.partition("|")[0]].append(at)
        groups = [
            places[start : start + MOST_REQUESTS]
            for places in domains.values()
            for start in range(0, len(places), MOST_REQUESTS)
        ]
        replies: list[Reply | None] = [None] * len(entries)
        for places in groups:
            for at, reply in zip(
                places, await self._call([entries[at] for at in places]), strict=True
            ):
                replies[at] = reply
        return replies

    async def _call(self, entries: Sequence[Entry]) -> list[Reply | None]:
        keys = [quota_key(self._store.prefix, entry.key) for entry in entries]
        arguments = [*keys, *map(pack_entry, entries)]
        try:
            if self._client is None:  # in a cluster, this connects
                self._client = self._store.client_async(timeout=_TIMEOUT)
            try:
                answers = await self._client.evalsha(self._sha, len(keys), *arguments)
            except NoScriptError:
                answers = await self._client.eval(self._text, len(keys), *arguments)
        except (RedisError, OSError) as error:
            raise StoreUnavailable(self._store.hide(f"{type(error).__name__}: {error}")) from None
        return [self._reply(answer, key) for answer, key in zip(answers, keys, strict=True)]

    def _reply(self, answer: Any, key: bytes) -> Reply | None:
        if isinstance(answer, bytes):
            return unpack_reply(answer)
        logger.error("the value of %r in Redis is not an account of Penstock: %s", key, answer)
        return None

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
