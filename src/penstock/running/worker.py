"""Worker: one process's part of the service: a store, rules, and the wires that use them."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

from penstock.admin.commands import apply_command
from penstock.async_gate import AsyncGate
from penstock.errors import PenstockError, RulesError
from penstock.events import Event, StoreDown, StoreUp
from penstock.gate import Prepared
from penstock.integrations.deciding.identity import Trust
from penstock.metrics import Recorder
from penstock.rules.deciding.lineage import Lineage
from penstock.rules.model import RuleSet
from penstock.running.listeners import GRPCIO, NGHTTP2, Sockets, choose_wire
from penstock.running.observers import observer_for
from penstock.running.settings import Settings, SettingsError, address_of
from penstock.running.stores import open_store
from penstock.service.health import RATELIMIT, STORE, WHOLE, Health
from penstock.service.service import Service
from penstock.wires.grpc.health import health_methods
from penstock.wires.grpc.methods import Methods
from penstock.wires.grpc.reflection import reflection_methods
from penstock.wires.http.api import http_api
from penstock.wires.http.protocol import HttpServer

logger = logging.getLogger("penstock.server")

SHOULD_RATE_LIMIT = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
# Seconds in which requests are still answered while health already says "not serving".
NOTICE = 0.2


class Worker:
    """Created and used within one event loop."""

    def __init__(
        self,
        settings: Settings,
        store: str,
        name: str,
        salt: bytes | None,
        rules: RuleSet,
        lineage: Lineage | None = None,
    ) -> None:
        self.settings = settings
        self.health = Health((RATELIMIT, STORE), vital=(RATELIMIT,))
        self.store = open_store(store, settings, rules)
        self.gate = _gate(settings, self.store, rules, lineage)
        self.recorder = Recorder(worker=name, salt=salt)
        self.recorder.follow(self.gate)
        observer = observer_for(settings, self.recorder, salt)
        self.service = Service(self.gate, observer=observer, headers=settings.headers)
        self.wire = choose_wire(settings)
        self._trust = Trust(settings.trusted, header=settings.forwarded)
        self._http: HttpServer | None = None
        self._grpc: Any = None
        self._tls: Any = None
        self._listeners: list[asyncio.AbstractServer] = []
        self._draining = False
        self._prepared: Prepared | None = None
        self._readmitting: set[asyncio.Task[None]] = set()
        subscribe = getattr(self.store, "subscribe", None)
        if subscribe is not None:
            subscribe(self._on_store_event)

    async def start(self, sockets: Sockets) -> None:
        """Listen. `SettingsError` if the settings make that impossible."""
        loop = asyncio.get_running_loop()
        if self.store.waits:
            await self._try_store()
        if sockets.http is not None:
            refunds = self.settings.http_refunds
            api = http_api(self.service, self.health, self._trust, refunds=refunds)
            self._http = HttpServer(api)
            self._listeners.append(
                await loop.create_server(self._http.factory, sock=sockets.http)
                if sockets.http.family != socket.AF_UNIX
                else await loop.create_unix_server(self._http.factory, sock=sockets.http)
            )
        if self.wire == NGHTTP2 and sockets.grpc is not None:
            await self._start_nghttp2(sockets.grpc)
        elif self.wire == GRPCIO:
            await self._start_grpcio(sockets.grpc)

    async def _try_store(self) -> None:
        """Start also if it is down: that is what failure policies are for."""
        connect = getattr(self.store, "connect_async", None)
        if connect is None:
            return
        try:
            await connect(timeout=1.0)
        except PenstockError as error:
            self.health.set(STORE, False, str(error))
            logger.warning("started without the store: %s", error)

    def _methods(self) -> Methods:
        health = health_methods(self.health)
        unary = {SHOULD_RATE_LIMIT: self.service.rate_limit, **health.unary}
        services = sorted({path.split("/")[1] for path in (*unary, *health.watch)})
        reflection = reflection_methods(services)
        return Methods({**unary, **reflection.unary}, reflection.each, health.watch)

    async def _start_nghttp2(self, listener: socket.socket) -> None:
        from penstock.wires.grpc.h2.server import H2Server

        loop = asyncio.get_running_loop()
        self._grpc = H2Server(self._methods())
        options = {}
        if self.settings.tls_cert:
            self._tls = _server_tls(self.settings)
            options = self._tls.listening(self._grpc.limits)
        make = loop.create_unix_server if listener.family == socket.AF_UNIX else loop.create_server
        self._listeners.append(await make(self._grpc.factory, sock=listener, **options))

    async def _start_grpcio(self, reserved: socket.socket | None) -> None:
        from penstock.wires.grpc.grpcio import GrpcioServer, credentials

        address = address_of(self.settings.grpc, "grpc")
        if isinstance(address, tuple) and reserved is not None:
            address = (address[0], reserved.getsockname()[1])
        self._grpc = GrpcioServer(self._methods())
        where = f"unix:{address}" if isinstance(address, str) else "{}:{}".format(*address or ())
        tls = None
        if self.settings.tls_cert:
            self._tls = _server_tls(self.settings)
            tls = credentials(self._tls)
        try:
            await self._grpc.start(
                where,
                credentials=tls,
                mutual=bool(self.settings.tls_client_ca),
                reuse_port=self.settings.workers > 1,
            )
        except RuntimeError as error:  # the only error that grpcio has for an address
            raise SettingsError(f"cannot listen on {where}: {error}") from None

    # While it runs ------------------------------------------------------------------------

    def _on_store_event(self, event: Event) -> None:
        if isinstance(event, StoreDown):
            self.health.set(STORE, False, event.reason)
        elif isinstance(event, StoreUp):
            self.health.set(STORE, True)

    async def apply(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do what the admin API or the supervisor asks."""
        verb = command.get("do")
        if verb == "snapshot":
            return {"ok": True, "result": self.recorder.snapshot().to_bytes().decode("latin-1")}
        if verb == "health":
            parts = self.health.parts().items()
            return {"ok": True, "result": {name: [part.ok, part.reason] for name, part in parts}}
        if verb == "swap_rules":
            return await self._swap_rules()
        if verb == "reject_rules":
            self._reject_rules(command["reason"])
            return {"ok": True, "result": None}
        if verb == "reload_tls":
            return self._reload_tls()
        return await apply_command(self.gate, command)

    async def prepare_rules(self, rules: RuleSet) -> dict[str, Any]:
        """Compile them, in a thread, as large ones take a while; `swap_rules` comes next."""
        try:
            self._prepared = await asyncio.to_thread(self.gate.prepare, rules)
        except RulesError as error:
            return {"ok": False, "status": 422, "error": str(error)}
        except Exception as error:
            logger.exception("new rules could not be prepared")
            return {"ok": False, "status": 500, "error": f"{type(error).__name__}: {error}"}
        return {"ok": True, "result": None}

    async def _swap_rules(self) -> dict[str, Any]:
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            return {"ok": False, "status": 409, "error": "no rules were prepared"}
        await asyncio.to_thread(self.gate.swap, prepared)
        return {"ok": True, "result": None}

    def _reject_rules(self, reason: str) -> None:
        prepared, self._prepared = self._prepared, None
        self.gate.reject(reason, prepared)

    def _reload_tls(self) -> dict[str, Any]:
        if self._tls is not None:
            try:
                changed_ca = self._tls.reload()
            except (OSError, ValueError) as error:
                logger.error("the new certificate cannot be used, the old one stays: %s", error)
                return {"ok": False, "status": 422, "error": str(error)}
            if changed_ca and self.wire == NGHTTP2:
                task = asyncio.create_task(self._grpc.readmit(self._tls.admits))
                self._readmitting.add(task)
                task.add_done_callback(self._readmitting.discard)
        return {"ok": True, "result": None}

    async def drain(self, seconds: float) -> None:
        """Report that it is not serving, accept no more, answer open requests, and close."""
        if self._draining:
            return
        self._draining = True
        for task in self._readmitting:
            task.cancel()
        self.health.set(WHOLE, False, "draining")
        notice = min(NOTICE, seconds)
        await asyncio.sleep(notice)
        for listener in self._listeners:
            listener.close()
        ending = [
            server.drain(seconds - notice)
            for server in (self._http, self._grpc)
            if server is not None
        ]
        await asyncio.gather(*ending)
        self.recorder.close()
        self.gate.close()
        close = getattr(self.store, "close_async", None)
        if close is not None:
            await close()
        self.store.close()


def _gate(settings: Settings, store: Any, rules: RuleSet, lineage: Lineage | None) -> AsyncGate:
    gate = AsyncGate(rules, store, lineage=lineage)
    if settings.shadow:
        gate.switches.mode("shadow")
    return gate


def _server_tls(settings: Settings) -> Any:
    from penstock.wires.grpc.h2.tls import ServerTLS

    try:
        return ServerTLS(settings.tls_cert, settings.tls_key, settings.tls_client_ca or None)
    except (OSError, ValueError) as error:
        raise SettingsError(f"the certificate cannot be used: {error}") from None
