"""A real admin server on a real port, over a gate whose clock the tests move."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.admin.access import Access
from penstock.admin.api import AdminApi
from penstock.admin.audit import AuditLog
from penstock.admin.control import Control, LocalControl
from penstock.admin.handlers import Sources
from penstock.admin.tokens import Tokens
from penstock.async_gate import AsyncGate
from penstock.metrics.snapshot import Snapshot
from penstock.running.admin_server import AdminServer
from penstock.stores.memory import MemoryStore
from penstock.testing import FakeClock

TOKEN = "a-token-that-is-long-enough"
RULES = """\
domain: api
descriptors:
  - key: user
    limits:
      - { name: by_second, limit: 5/second }
      - { name: by_hour, limit: 100/hour }
  - key: plan
    value: free
    descriptors:
      - key: user
        rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: batch
    cost: 3
    limits: 30/hour
  - key: open
    rate_limit: { unlimited: true }
"""


class Site:
    """The server, and ways to ask it."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.rules = folder / "rules.yaml"
        self.rules.write_text(RULES)
        self.audit_file = folder / "audit.log"
        self.gate = AsyncGate.from_file(
            self.rules, store=MemoryStore(clock=self.clock), clock=self.clock
        )
        self.up: dict[str, bool] = {"": True, "store": True}
        self.snapshot = Snapshot(0)
        self.server: AdminServer
        self.api: AdminApi
        self.port = 0
        self.client: httpx.AsyncClient

    def sources(self) -> Sources:
        return Sources(
            health=lambda: self.up,
            about=lambda: {"wire": "nghttp2", "store": "memory"},
            metrics=lambda: b"penstock_rules 4\n",
            snapshot=lambda: self.snapshot,
            top=lambda n: {"rules": [["api/user", 7]][:n], "refused": []},
        )

    async def start(
        self,
        host: str = "127.0.0.1",
        tokens: dict[str, str] | None = None,
        control: Control | None = None,
        sync: bool = False,
        **access: Any,
    ) -> Site:
        self.api = AdminApi(
            control or LocalControl(self.gate),
            access=Access(Tokens(tokens), clock=self.clock, **access),
            audit=AuditLog(self.audit_file, sync=sync, clock=self.clock),
            sources=self.sources(),
            clock=self.clock,
        )
        self.server = AdminServer(self.api)
        place = await self.server.listen((host, 0))
        self.port = int(place.rpartition(":")[2])
        return self

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        host: str = "127.0.0.1",
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        all_headers = dict(headers or {})
        if token is not None:
            all_headers["Authorization"] = f"Bearer {token}"
        content = body if isinstance(body, bytes) else None
        return await self.client.request(
            method, f"http://{host}:{self.port}{path}", headers=all_headers, content=content,
            json=None if content is not None else body,
        )  # fmt: skip

    def audited(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.audit_file.read_text().splitlines()]


@pytest.fixture
def our_loggers() -> Iterator[None]:
    """Levels as they were."""
    before = {name: logging.getLogger(name).level for name in ("penstock", "penstock.audit")}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


Start = Callable[..., Awaitable[Site]]


@pytest.fixture
async def start(tmp_path: Path, our_loggers: None) -> AsyncIterator[Start]:
    """Starts a site the way a test wants it."""
    sites: list[Site] = []

    async def begin(**options: Any) -> Site:
        site = Site(tmp_path)
        site.client = httpx.AsyncClient(trust_env=False, verify=False, timeout=60)
        sites.append(site)
        return await site.start(**options)

    yield begin
    for site in sites:
        await site.client.aclose()
        if hasattr(site, "server"):
            await site.server.close()
        if hasattr(site, "api"):
            site.api.audit.close()


@pytest.fixture
async def site(start: Start) -> Site:
    """On loopback, without a token."""
    return await start()
