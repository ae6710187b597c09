"""App: starts the service, runs it until it is stopped, and shuts it down.

One worker runs in this process. Several run in processes of their own, and this one supervises
them: it holds the sockets, runs the admin API and restarts workers that die.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
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
from penstock.durations import SECOND, parse_duration
from penstock.errors import PenstockError
from penstock.events import Event
from penstock.metrics import Hashed, Statsd, Webhook
from penstock.page import page_file
from penstock.rules.model import RuleSet
from penstock.rules.reading.watch import Watcher
from penstock.rules.walk import all_rules
from penstock.running import collector, logs, stores
from penstock.running.admin_server import AdminServer
from penstock.running.certificates import Certificates, certificate_files, open_certificate
from penstock.running.control_plane import ControlPlane, SharedControl
from penstock.running.dead_rules import log_dead_rules
from penstock.running.event_loop import run
from penstock.running.history_keeper import HistoryKeeper
from penstock.running.lease_secret import lease_secret
from penstock.running.listeners import GRPCIO, Listeners, Sockets, choose_wire
from penstock.running.masks import Masks
from penstock.running.quotas import quota_file
from penstock.running.rule_editor import RuleEditor
from penstock.running.rules_in_force import GateRules, read_new, read_rules
from penstock.running.settings import Settings, address_of
from penstock.running.stores import resolve_store
from penstock.running.supervisor import SupervisedWorkers, new_salt
from penstock.running.worker import Worker
from penstock.running.worker_process import WorkerProcess
from penstock.running.workers import Workers

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
    def __init__(self, settings: Settings, salt: bytes | None = None) -> None:
        self.settings = settings
        self._salt = salt
        self._started_at = time.monotonic()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._drain: Callable[[float], Awaitable[None]] | None = None
        self.listening: dict[str, str] = {}  # addresses by wire
        self.workers: Workers | None = None
        self._audit: AuditLog | None = None
        self._plane: ControlPlane | None = None
        self._certificates = Certificates()  # of the admin API
        self.ready = asyncio.Event()

    async def run(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            self._catch_signals()
            with collector.paused():
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
        watcher = self._watcher()  # first: it notes the state of certificates before they are read
        plane = ControlPlane(settings, _instance(settings))
        stack.push_async_callback(plane.close)
        rules = read_rules(settings)
        stored = await plane.stored_rules()
        if stored is not None:
            rules = read_new(settings, lambda: stored)
        store = stack.enter_context(resolve_store(settings, rules))
        store_text = Masks().text(stores.describe(store, settings, rules))
        listeners = Listeners(settings, wire, stack)
        self.listening.update(listeners.addresses)
        about = {"wire": wire, "store": store_text, "rules": _count(rules)}
        workers = await self._start_workers(stack, store, listeners.sockets, about, rules)
        self.workers = workers
        await plane.start(workers)
        self._plane = plane
        keeper = HistoryKeeper(workers.apply, settings.history)
        await self._start_admin(stack, workers, plane, keeper)
        if watcher is not None:
            watcher.start()
            stack.callback(watcher.stop)
        self._start_watching(stack, workers)
        self._tasks.add(asyncio.create_task(keeper.run()))
        self._log_start(wire, store_text, rules)

    async def _start_workers(
        self,
        stack: contextlib.AsyncExitStack,
        store: str,
        sockets: list[Sockets],
        about: dict[str, Any],
        rules: RuleSet,
    ) -> Workers:
        settings, secret = self.settings, lease_secret(self.settings)
        file = stack.enter_context(quota_file(store))
        if settings.workers == 1:
            worker = Worker(
                settings, store, "0", self._salt, rules, lease_secret=secret, quota_file=file
            )
            await worker.start(sockets[0])
            stack.push_async_callback(worker.drain, settings.drain_seconds)
            self._drain = worker.drain
            return Workers(settings, about, [worker], GateRules(settings, worker.gate))
        processes = [
            WorkerProcess(number, settings, store, self._salt, each, secret, file)
            for number, each in enumerate(sockets)
        ]
        supervised = SupervisedWorkers(settings, about, processes, rules)
        await supervised.start()
        stack.push_async_callback(supervised.stop, settings.drain_seconds)
        self._drain = supervised.stop
        return supervised

    async def _start_admin(
        self,
        stack: contextlib.AsyncExitStack,
        workers: Workers,
        plane: ControlPlane,
        keeper: HistoryKeeper,
    ) -> None:
        settings = self.settings
        address = address_of(settings.admin, "admin")
        if address is None:
            return
        tokens = Tokens.from_file(settings.admin_token_file) if settings.admin_token_file else None
        audit = AuditLog(settings.audit_log or None, sync=settings.audit_sync)
        access = Access(tokens, always=settings.admin_token_always, names=settings.admin_names)
        sources = dataclasses.replace(
            workers.sources(),
            rules=plane.describe,
            changes=plane.changes,
            undo=plane.undo,
            notes=plane.notes,
            instances=plane.instances,
            history=lambda: keeper.history,
            editor=RuleEditor(settings, workers, plane.kv, plane.is_in_force, self._salt),
        )
        control = SharedControl(workers, plane)
        tls = open_certificate(settings, "admin")
        api = AdminApi(
            control, access=access, audit=audit, sources=sources, page=page_file,
            tls=tls is not None,
        )  # fmt: skip
        server = AdminServer(api, tls=None if tls is None else tls.context)
        if tls is not None:
            self._certificates.add(tls, server.readmit)
            stack.push_async_callback(self._certificates.close)
        self.listening["admin"] = await server.listen(address)
        self._audit = audit
        stack.push_async_callback(server.close)

    def _watcher(self) -> Watcher | None:
        """For rules and certificates, not started yet."""
        settings = self.settings
        loop = asyncio.get_running_loop()
        certificates = certificate_files(settings)
        if not settings.watch or not (settings.rules or certificates):
            return None

        def reload() -> bool:
            reloading = asyncio.run_coroutine_threadsafe(self._read_again(), loop)
            while not watcher.stopping:  # when the service ends, the loop waits for this thread
                done, _ = wait([reloading], 0.1)
                if done:
                    return reloading.result()
            return False

        def loaded() -> Mapping[str, str]:
            return {} if self.workers is None else self.workers.loaded()

        watcher = Watcher(settings.rules, reload, loaded, certificates)
        return watcher

    def _start_watching(self, stack: contextlib.AsyncExitStack, workers: Workers) -> None:
        workers.other_sources.append(workers.watch)
        workers.watch.subscribe(_log_anomaly)
        if self.settings.webhook:
            webhook = Webhook(self.settings.webhook)
            webhook.start()
            stack.callback(webhook.close)
            workers.watch.subscribe(webhook)
            workers.other_sources.append(webhook)
        self._tasks.add(asyncio.create_task(workers.look_for_anomalies()))
        settings = self.settings
        if settings.statsd:
            statsd = Statsd(settings.statsd, settings.statsd_format)
            seconds = parse_duration(settings.statsd_interval, "statsd_interval") / SECOND
            self._tasks.add(asyncio.create_task(workers.send_to_statsd(statsd, seconds)))
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
        if self.workers is None:  # they have not been read yet
            return
        if self._audit is not None:
            self._audit.reopen()
        await self._read_again()

    async def _read_again(self) -> bool:
        """Rules and certificates; whether all of them could be used."""
        assert self.workers is not None
        if self._plane is not None and self._plane.rules is not None and self.settings.rules:
            logger.warning("files of rules are not read: the rules come from the store")
            reloaded = await self.workers.reload_certificates()
        else:
            reloaded = await self.workers.reload()
        return self._certificates.reload() is None and reloaded

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
        if ":" in self.listening.get("admin", ""):
            scheme = "https" if self.settings.admin_tls_cert else "http"
            lines.append(f"page  {scheme}://{self.listening['admin']}/")
        if wire == GRPCIO and self.settings.wire != GRPCIO:
            lines.append("gRPC is slower than it could be: nghttp2 was missing at build time")
        if not rules.domains:
            lines.append("there are no rules: everything is allowed (--rules PATH)")
        for line in lines:
            logger.info("%s", line)
        log_dead_rules(self.settings, rules)
        logger.info("ready after %.2f s", time.monotonic() - self._started_at)


def _instance(settings: Settings) -> str:
    return settings.instance or f"{platform.node() or 'localhost'}:{os.getpid()}"


def _count(rules: RuleSet) -> int:
    return sum(1 for _ in all_rules(rules))


def _log_anomaly(event: Event) -> None:
    logger.warning("%s", event)
