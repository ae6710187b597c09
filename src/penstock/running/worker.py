"""Worker: the part of the service that decides: a store, rules, and servers for HTTP and gRPC."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import socket
from pathlib import Path
from typing import Any

from penstock.admin import leases
from penstock.admin.commands import Answer, Command, apply_command, done, failed
from penstock.async_gate import AsyncGate
from penstock.errors import PenstockError, RulesError
from penstock.events import Event, StoreDown, StoreUp
from penstock.integrations.deciding.dimension_sources import parse_dimensions
from penstock.integrations.deciding.identity import Trust
from penstock.metrics import Hashed, Recorder
from penstock.metrics.flight import FlightRecorder
from penstock.metrics.labels import plain
from penstock.rules.deciding.compiled import Prepared
from penstock.rules.deciding.lineage import Lineage
from penstock.rules.model import RuleSet
from penstock.running import collector
from penstock.running.access_log import observer_for
from penstock.running.certificates import Certificates, open_certificate
from penstock.running.dead_rules import collect_dead_rules, is_for_proxies
from penstock.running.event_loop import start_server
from penstock.running.ledger import NO_LEDGER, WorkerQuotas
from penstock.running.listeners import GRPCIO, NGHTTP2, Sockets, choose_wire
from penstock.running.live_log import LiveLog
from penstock.running.quotas import quota_service
from penstock.running.rules_in_force import NewRules
from penstock.running.settings import Settings, SettingsError, address_of
from penstock.running.stores import names_of_home, open_store
from penstock.service.health import HOME, LEDGER, RATELIMIT, STORE, WHOLE, Health
from penstock.service.rlqs.views import collect
from penstock.service.rlqs.views import rows as quota_rows
from penstock.service.service import Service
from penstock.wires.grpc.h2.limits import Limits
from penstock.wires.grpc.health import health_methods
from penstock.wires.grpc.methods import Methods
from penstock.wires.grpc.reflection import reflection_methods
from penstock.wires.http.api import http_api
from penstock.wires.http.auth import AuthApi
from penstock.wires.http.connections import HANDSHAKE
from penstock.wires.http.protocol import HttpServer

logger = logging.getLogger("penstock.server")

SHOULD_RATE_LIMIT = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
STREAM_QUOTAS = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas"
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
        lease_secret: bytes | None = None,
        quota_file: str = "",
    ) -> None:
        self.settings = settings
        self.name = name
        parts = (RATELIMIT, STORE, HOME) if settings.region else (RATELIMIT, STORE)
        self.health = Health(parts, vital=(RATELIMIT,))
        self.store = open_store(store, settings, rules)
        self.quotas: WorkerQuotas | None = None
        if settings.ledger:
            self.health.set(LEDGER, True)
            self.quotas = WorkerQuotas(settings, self.store, self.health)
        counted = self.store if self.quotas is None else self.quotas.store
        self.gate = AsyncGate(rules, counted, lineage=lineage)
        if settings.shadow:
            self.gate.switches.mode("shadow")
        self._hashed = None if salt is None else Hashed(salt)
        self.flight = FlightRecorder() if settings.flight_recorder else None
        self.recorder = Recorder(worker=name, salt=salt, flight=self.flight)
        self.recorder.follow(self.gate)
        observer = observer_for(settings, self.recorder, salt)
        self.service = Service(
            self.gate, observer=observer, headers=settings.headers,
            dynamic_metadata=settings.response_dynamic_metadata, lease_secret=lease_secret,
        )  # fmt: skip
        # The only place that decides whether quota streams are served.
        self.quota_service = quota_service(settings, self.gate, quota_file)
        self.wire = choose_wire(settings)
        self._trust = Trust(settings.trusted, header=settings.forwarded)
        self._http: HttpServer | None = None
        self._auth: AuthApi | None = None
        self._grpc: Any = None
        self._certificates = Certificates()
        self._listeners: list[asyncio.AbstractServer] = []
        self._live_log = LiveLog(
            name, self.gate.switches, observer, self.service.observe,
            format_key=plain if self._hashed is None else self._hashed,
        )  # fmt: skip
        self._draining = False
        self._prepared: Prepared | None = None
        subscribe = getattr(self.store, "subscribe", None)
        if subscribe is not None:
            subscribe(self._on_store_event)

    async def start(self, sockets: Sockets) -> None:
        """Listen. `SettingsError` if the settings make that impossible."""
        if self.store.waits:
            await self._try_store()
        if self.quotas is not None:
            await self.quotas.start()
        if self.quota_service is not None:
            self.quota_service.start()
        if sockets.http is not None:
            dimensions = parse_dimensions(self.settings.dimension)
            self._auth = AuthApi(self.service, self.gate, self._trust, dimensions)
            api = http_api(
                self.service, self.health, self._trust, refunds=self.settings.http_refunds,
                auth=self._auth,
            )  # fmt: skip
            self._http = HttpServer(api)
            options = {}
            tls = open_certificate(self.settings, "http")
            if tls is not None:
                self._certificates.add(tls, self._http.readmit)
                options = tls.listening(HANDSHAKE)
            server = await start_server(self._http.factory, sockets.http, **options)
            self._listeners.append(server)
        if self.wire == NGHTTP2 and sockets.grpc is not None:
            await self._start_nghttp2(sockets.grpc)
        elif self.wire == GRPCIO:
            await self._start_grpcio(sockets.grpc)

    async def _try_store(self) -> None:
        """If it is down, start anyway: failure policies decide until it is up."""
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
        unary = {SHOULD_RATE_LIMIT: self.service.message_handler, **health.unary}
        quota = self.quota_service
        bidi = {} if quota is None else {STREAM_QUOTAS: quota.open}
        services = sorted({path.split("/")[1] for path in (*unary, *health.watch, *bidi)})
        reflection = reflection_methods(services)
        return Methods({**unary, **reflection.unary}, reflection.each, health.watch, bidi)

    def _limits(self) -> Limits:
        size, usual = self.settings.rlqs_message_bytes, Limits()
        # An answer has about twice the size of a report, and both may be waiting.
        return dataclasses.replace(
            usual, bidi_message_bytes=size, bidi_queue_bytes=max(2 * size, usual.bidi_queue_bytes),
            held_bytes=max(4 * size, usual.held_bytes),
        )  # fmt: skip

    async def _start_nghttp2(self, listener: socket.socket) -> None:
        from penstock.wires.grpc.h2.server import H2Server

        self._grpc = H2Server(self._methods(), self._limits())
        options = {}
        tls = open_certificate(self.settings, "grpc")
        if tls is not None:
            self._certificates.add(tls, self._grpc.readmit)
            limits = self._grpc.limits
            options = tls.listening(limits.handshake_seconds, limits.linger_seconds)
        self._listeners.append(await start_server(self._grpc.factory, listener, **options))

    async def _start_grpcio(self, reserved: socket.socket | None) -> None:
        from penstock.wires.grpc.grpcio import GrpcioServer, credentials

        address = address_of(self.settings.grpc, "grpc")
        if isinstance(address, tuple) and reserved is not None:
            address = (address[0], reserved.getsockname()[1])
        self._grpc = GrpcioServer(self._methods(), self._limits())
        where = f"unix:{address}" if isinstance(address, str) else "{}:{}".format(*address or ())
        tls = open_certificate(self.settings, "grpc")
        if tls is not None:
            self._certificates.add(tls)
        try:
            await self._grpc.start(
                where,
                credentials=None if tls is None else credentials(tls),
                mutual=bool(self.settings.tls_client_ca),
                reuse_port=self.settings.workers > 1,
            )
        except RuntimeError as error:  # the only error that grpcio has for an address
            raise SettingsError(f"cannot listen on {where}: {error}") from None

    # While it runs ------------------------------------------------------------------------

    def _on_store_event(self, event: Event) -> None:
        part = HOME if event.store in names_of_home(self.store) else STORE
        if isinstance(event, StoreDown):
            self.health.set(part, False, event.reason)
        elif isinstance(event, StoreUp):
            self.health.set(part, True)

    async def apply(self, command: Command) -> Answer:
        """Execute a command of the admin API or the supervisor."""
        verb = command.get("do")
        if verb == "snapshot":
            snapshot = self.recorder.snapshot()
            if self._auth is not None:
                collect_dead_rules(snapshot, self._auth.dead_rules(is_for_proxies(self.settings)))
            if self.quota_service is not None:
                collect(snapshot, self.quota_service)
            if self.quotas is not None:
                self.quotas.collect(snapshot)
            return done(snapshot.to_bytes().decode("latin-1"))
        if verb == "recorded":
            return await self._recorded(command)
        if verb == "counts":
            return done([f"{self.name}:{os.getpid()}", self.recorder.counts()])
        if verb == "quotas" and self.quota_service is not None:
            return done(quota_rows(self.quota_service))
        if verb == "leases":
            return done(await leases.look(self.store, self._hashed))
        if verb == "balance":
            if self.quotas is None:
                return failed(501, NO_LEDGER)
            return await self.quotas.balance(command["account"])
        if verb == "health":
            parts = self.health.parts().items()
            return done({name: [part.ok, part.reason] for name, part in parts})
        if verb == "swap_rules":
            return await self.swap()
        if verb == "reject_rules":
            prepared, self._prepared = self._prepared, None
            self.gate.reject(command["reason"], prepared)
            return done()
        if verb == "reload_tls":
            error = self._certificates.reload()
            return done() if error is None else failed(422, error)
        if verb == "refusals":
            return done(self.recorder.refusals.of(command["key"], command["value"]))
        if verb == "decisions":
            rows = self._live_log.rows(command["after"])
            return done({"rows": rows, "left_out": self._live_log.left_out})
        answer = await apply_command(self.gate, command)
        if verb == "who" and answer["ok"] and self._hashed is not None:
            _hide_others(answer["result"], (command["key"], command["value"]), self._hashed)
        if verb in ("batch", "log", "clear_log"):
            self._live_log.look()
        return answer

    async def _recorded(self, command: Command) -> Answer:
        """Write what the flight recorder has to a file, and say which."""
        if self.flight is None:
            return done(None)
        file = Path(command["folder"]) / f"{self.name}.flight"
        await asyncio.to_thread(file.write_bytes, self.flight.dump(command["since"]))
        return done(str(file))

    async def prepare(self, new: NewRules) -> Answer:
        return await self.prepare_rules(new.rules)

    async def prepare_rules(self, rules: RuleSet) -> Answer:
        """Compile them, in a thread because large ones take a while; `swap` comes next."""
        try:
            with collector.paused():
                self._prepared = await asyncio.to_thread(self.gate.prepare, rules)
        except RulesError as error:
            return failed(422, str(error))
        except Exception as error:
            logger.exception("new rules could not be prepared")
            return failed(500, f"{type(error).__name__}: {error}")
        return done()

    async def swap(self) -> Answer:
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            return failed(409, "no rules were prepared")
        with collector.paused():
            await asyncio.to_thread(self.gate.swap, prepared)
        return done()

    async def drain(self, seconds: float) -> None:
        """Report "not serving", stop accepting, answer open requests, and close."""
        if self._draining:
            return
        self._draining = True
        await self._certificates.close()
        self.health.set(WHOLE, False, "draining")
        notice = min(NOTICE, seconds)
        await asyncio.sleep(notice)
        for listener in self._listeners:
            listener.close()
        servers = [server for server in (self._http, self._grpc) if server is not None]
        await asyncio.gather(*[server.drain(seconds - notice) for server in servers])
        if self.quota_service is not None:
            await self.quota_service.close()
        self.recorder.close()
        self.gate.close()
        if self.quotas is not None:
            await self.quotas.close()
        close = getattr(self.store, "close_async", None)
        if close is not None:
            await close()
        self.store.close()


def _hide_others(rows: list[dict[str, Any]], asked: tuple[str, str], hashed: Hashed) -> None:
    """With --hash-keys, only the value that was asked for is shown as it is."""
    for row in rows:
        row["pairs"] = [
            pair if tuple(pair) == asked else [pair[0], hashed.value(pair[1])]
            for pair in row["pairs"]
        ]
