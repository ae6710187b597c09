"""App: puts the service together, runs it until it is stopped, and takes it down.

One worker runs in this process. Several run in processes of their own, and this one supervises
them: it holds the sockets, runs the admin API and starts workers again that die.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import platform
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import wait
from typing import Any

from penstock import _mode
from penstock._version import __version__
from penstock.admin.access import Access
from penstock.admin.api import AdminApi
from penstock.admin.audit import AuditLog
from penstock.admin.tokens import Tokens
from penstock.errors import PenstockError
from penstock.events import Event
from penstock.metrics import Hashed, Webhook
from penstock.rules.model import RuleSet
from penstock.rules.reading.watch import Watcher
from penstock.rules.walk import all_rules
from penstock.running import logs, stores
from penstock.running.admin_server import AdminServer
from penstock.running.event_loop import run
from penstock.running.fleet import Fleet, read_rules
from penstock.running.in_process import InProcessFleet
from penstock.running.listeners import GRPCIO, Listeners, Sockets, choose_wire
from penstock.running.masks import Masks
from penstock.running.settings import Settings, address_of
from penstock.running.stores import resolve_store
from penstock.running.supervisor import SupervisedFleet, new_salt
from penstock.running.worker import Worker
from penstock.running.worker_process import WorkerProcess

logger = logging.getLogger("penstock.server")


def serve(settings: Settings) -> int:
    """Run until SIGTERM or Ctrl-C; the exit code."""
    salt = new_salt() if settings.hash_keys else None
    hashed = None if salt is None else Hashed(salt)
    with contextlib.closing(logs.setup(settings.log_level, settings.log_format, hashed=hashed)):
        try:
            run(App(settings, salt).run())
        except PenstockError as error:
            logger.error("cannot start: %s", error)
            return 1
    return 0


class App:
    """The service, from its settings to its end."""

    def __init__(self, settings: Settings, salt: bytes | None = None) -> None:
        self.settings = settings
        self._salt = salt
        self._started_at = time.monotonic()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._drain: Callable[[float], Awaitable[None]] | None = None
        self.listening: dict[str, str] = {}  # addresses by wire
        self.fleet: Fleet | None = None
        self._audit: AuditLog | None = None
        self.ready = asyncio.Event()

    async def run(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            self._catch_signals()
            await self._start(stack)
            self.ready.set()
            await self._stop.wait()
            logger.info("draining for at most %s", self.settings.drain)
            if self._drain is not None:
                await self._drain(self.settings.drain_seconds)  # the admin API still answers
            logger.info("ended")

    def stop(self) -> None:
        self._stop.set()

    # Starting ------------------------------------------------------------------------------

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        settings = self.settings
        wire = choose_wire(settings)
        watcher = self._watcher()  # it notes what certificates hold before they are read
        rules = read_rules(settings)
        store = stack.enter_context(resolve_store(settings, rules))
        store_text = Masks().text(stores.describe(store, settings, rules))
        listeners = Listeners(settings, wire, stack)
        self.listening.update(listeners.addresses)
        about = {"wire": wire, "store": store_text, "rules": _count(rules)}
        fleet = await self._start_fleet(stack, store, listeners.sockets, about, rules)
        self.fleet = fleet
        await self._start_admin(stack, fleet)
        if watcher is not None:
            watcher.start()
            stack.callback(watcher.stop)
        self._start_anomaly_watch(stack, fleet)
        self._log_start(wire, store_text, rules)

    async def _start_fleet(
        self,
        stack: contextlib.AsyncExitStack,
        store: str,
        sockets: list[Sockets],
        about: dict[str, Any],
        rules: RuleSet,
    ) -> Fleet:
        settings = self.settings
        if settings.workers == 1:
            worker = Worker(settings, store, "0", self._salt, rules)
            await worker.start(sockets[0])
            stack.push_async_callback(worker.drain, settings.drain_seconds)
            self._drain = worker.drain
            return InProcessFleet(settings, about, worker)
        processes = [
            WorkerProcess(number, settings, store, self._salt, own)
            for number, own in enumerate(sockets)
        ]
        supervised = SupervisedFleet(settings, about, processes, rules)
        await supervised.start()
        stack.push_async_callback(supervised.stop, settings.drain_seconds)
        self._drain = supervised.stop
        return supervised

    async def _start_admin(self, stack: contextlib.AsyncExitStack, fleet: Fleet) -> None:
        settings = self.settings
        address = address_of(settings.admin, "admin")
        if address is None:
            return
        tokens = Tokens.from_file(settings.admin_token_file) if settings.admin_token_file else None
        audit = AuditLog(settings.audit_log or None, sync=settings.audit_sync)
        names, always = settings.admin_names, settings.admin_token_always
        access = Access(tokens, always=always, names=names)
        api = AdminApi(fleet, access=access, audit=audit, sources=fleet.sources())
        server = AdminServer(api)
        self.listening["admin"] = await server.listen(address)
        self._audit = audit
        stack.push_async_callback(server.close)

    def _watcher(self) -> Watcher | None:
        """For rules and certificates. It does not look before it is started."""
        settings = self.settings
        loop = asyncio.get_running_loop()
        paths = (settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        certificates = [path for path in paths if path]
        if not settings.watch or not (settings.rules or certificates):
            return None

        def reload() -> bool:
            assert self.fleet is not None
            reloading = asyncio.run_coroutine_threadsafe(self.fleet.reload(), loop)
            while not watcher.stopping:  # when the service ends, the loop waits for this thread
                done, _ = wait([reloading], 0.1)
                if done:
                    return reloading.result()
            return False

        def loaded() -> Mapping[str, str]:
            return {} if self.fleet is None else self.fleet.loaded()

        watcher = Watcher(settings.rules, reload, loaded, certificates)
        return watcher

    def _start_anomaly_watch(self, stack: contextlib.AsyncExitStack, fleet: Fleet) -> None:
        fleet.other_sources.append(fleet.watch)
        fleet.watch.subscribe(_log_anomaly)
        if self.settings.webhook:
            webhook = Webhook(self.settings.webhook)
            webhook.start()
            stack.callback(webhook.close)
            fleet.watch.subscribe(webhook)
            fleet.other_sources.append(webhook)
        self._tasks.add(asyncio.create_task(fleet.look_for_anomalies()))
        stack.push_async_callback(self._end_tasks)

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # While it runs ---------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._start_task(self._reload()))

    def _start_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload(self) -> None:
        """On SIGHUP: rules, certificates and the audit log's file."""
        if self.fleet is None:  # they have not been read yet
            return
        if self._audit is not None:
            self._audit.reopen()
        await self.fleet.reload()

    def _log_start(self, wire: str, store: str, rules: RuleSet) -> None:
        domains = ", ".join(sorted(rules.domains)) or "none"
        lines = [
            f"penstock {__version__} ({_mode.describe()}, Python {platform.python_version()})",
            f"rules  {_count(rules)} in {domains:.200}",
            f"store  {store}",
        ]
        if self.settings.workers > 1:
            lines.append(f"workers  {self.settings.workers}")
        names = {"http": "HTTP", "grpc": f"gRPC ({wire})", "admin": "admin API"}
        lines += [f"{names[wire]} on {address}" for wire, address in self.listening.items()]
        if wire == GRPCIO and self.settings.wire != GRPCIO:
            lines.append("gRPC is slower than it could be: nghttp2 was missing at build time")
        if not self.settings.rules:
            lines.append("there are no rules: everything is allowed (--rules PATH)")
        for line in lines:
            logger.info("%s", line)
        logger.info("ready after %.2f s", time.monotonic() - self._started_at)


def _count(rules: RuleSet) -> int:
    return sum(1 for _ in all_rules(rules))


def _log_anomaly(event: Event) -> None:
    logger.warning("%s", event)
