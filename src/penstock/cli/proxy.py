"""``penstock proxy``: a reverse proxy that limits requests to one server."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.cli.arguments import Commands, add_merge_domains, complain, counted
from penstock.durations import SECOND, parse_duration
from penstock.errors import PenstockError
from penstock.integrations.deciding.identity import FORWARDED, X_FORWARDED_FOR
from penstock.limit_options import FAILURE_POLICIES

if TYPE_CHECKING:
    from penstock.async_gate import AsyncGate
    from penstock.metrics import Recorder
    from penstock.proxy.server import ProxyServer
    from penstock.wires.http.routes import Routes
    from penstock.wires.tls import ServerTLS

OFF = "off"

logger = logging.getLogger("penstock.proxy")


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "proxy",
        help="limit requests in front of a server, as a reverse proxy",
        description="A reverse proxy for setups without a gateway: streams requests to one server"
        " and refuses those that are over the limits of the rules. It is one process without an"
        " admin API: for several workers, overrides and switches, put nginx or Envoy in front of"
        " the server, with penstock serve.",
        epilog="example: penstock proxy --upstream http://127.0.0.1:9000 --rules rules.yaml",
    )
    add = parser.add_argument
    # fmt: off
    add("--upstream", required=True, metavar="URL",
        help="the server: http://HOST:PORT, https://HOST:PORT or unix:PATH")
    add("--rules", required=True, action="append", metavar="PATH",
        help="a file or folder of rules; may be repeated")
    add("--domain", help="the domain of the rules, if there are several")
    add("--listen", default="127.0.0.1:8080", metavar="ADDRESS",
        help="HOST:PORT or unix:PATH (default: 127.0.0.1:8080)")
    add("--store", default="memory", metavar="STORE",
        help="memory, shared:PATH (for several processes of this host) or a redis:// URL"
        " (default: memory)")
    add("--max-keys", type=int, metavar="N",
        help="how many keys fit in memory or in a new file; beyond that, keys are evicted"
        " (default: 1000000)")
    add("--bytes-per-key", type=int, metavar="N",
        help="bytes per key in a new file (default: what the rules need, at least 128)")
    add("--on-failure", default="open", choices=FAILURE_POLICIES,
        help="the decision while Redis is unavailable (default: open)")
    add("--trusted", action="append", default=[], metavar="CIDR",
        help="a network of proxies in front of this one, which are trusted to report the client's"
        " address, or unix; may be repeated")
    add("--forwarded", default=X_FORWARDED_FOR, choices=(X_FORWARDED_FOR, FORWARDED),
        help=f"the header that trusted proxies set (default: {X_FORWARDED_FOR})")
    add("--dimension", action="append", default=[], metavar="NAME=SOURCE",
        help="what a key of the rules is of a request, such as user=header:x-user-id (a header"
        " that a trusted proxy sets); also client-header:, secret-header:, cookie: and text:;"
        " may be repeated")
    add("--exempt", action="append", default=[], metavar="PATH",
        help="a path that is never counted, such as /health or '/static/*'; may be repeated")
    add("--count-preflight", action="store_true", help="count CORS preflight requests, too")
    add("--shadow", action="store_true", help="decide and report, refuse nothing")
    add("--timeout", default="60s", metavar="TIME",
        help="how long the server may send nothing (default: 60s)")
    add("--body-timeout", default="30s", metavar="TIME",
        help="how long a client may send nothing of a body (default: 30s)")
    add("--least-rate", default="240", metavar="BYTES",
        help="the least bytes a second at which a client must send a body or read a response;"
        " 0 for no limit (default: 240)")
    add("--drain", default="10s", metavar="TIME",
        help="how long to wait for open requests at the end (default: 10s)")
    add("--metrics", default=OFF, metavar="ADDRESS",
        help="where to serve /metrics and /healthcheck: HOST:PORT, unix:PATH or off; there is no"
        " token, so let only your monitoring reach it (default: off)")
    add("--tls-cert", metavar="FILE",
        help="a certificate for clients (PEM); read again on SIGHUP, like the rules")
    add("--tls-key", metavar="FILE", help="the key of that certificate (PEM)")
    add("--tls-client-ca", metavar="FILE",
        help="require client certificates signed by this authority (PEM)")
    add("--no-watch", action="store_true", help="do not reload rules when their files change")
    # fmt: on
    add_merge_domains(parser)
    parser.set_defaults(run=run)


def _rate(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"least-rate must be bytes a second, such as 240, not {text!r:.100}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    try:
        import httptools  # noqa: F401  # only to report that it is missing
    except ModuleNotFoundError:
        return complain("proxy", "this needs httptools: pip install 'penstock[server]'")
    from penstock.running import event_loop, logs

    with contextlib.closing(logs.setup()):
        try:
            with _gate(arguments) as gate:
                return event_loop.run(_serve(arguments, gate))
        except (PenstockError, ValueError, TypeError) as error:
            return complain("proxy", error)


@contextlib.contextmanager
def _gate(arguments: argparse.Namespace) -> Iterator[AsyncGate]:
    from penstock.async_gate import AsyncGate
    from penstock.running.rules_in_force import read_rules
    from penstock.running.settings import Settings
    from penstock.running.stores import open_store, resolve_store

    settings = Settings(
        rules=tuple(arguments.rules), merge_domains=arguments.merge_domains,
        store=arguments.store, on_failure=arguments.on_failure,
        max_keys=arguments.max_keys, bytes_per_key=arguments.bytes_per_key,
    )  # fmt: skip
    rules = read_rules(settings)
    with (
        resolve_store(settings, rules) as where,
        contextlib.closing(open_store(where, settings, rules)) as store,
    ):
        gate = AsyncGate(rules, store, files=settings.rules, merge_domains=settings.merge_domains)
        with contextlib.closing(gate):
            if not arguments.no_watch:
                gate.watch()
            yield gate


def _proxy(arguments: argparse.Namespace, gate: AsyncGate, recorder: Recorder) -> ProxyServer:
    from penstock.integrations.deciding.dimension_sources import parse_dimensions
    from penstock.integrations.deciding.dimensions import PROXY_DIMENSIONS
    from penstock.integrations.deciding.http_checkpoint import HttpCheckpoint
    from penstock.proxy.limits import ProxyLimits
    from penstock.proxy.server import ProxyServer
    from penstock.wires.http.limits import HttpLimits

    checkpoint = HttpCheckpoint(
        asynchronous=True,
        gate=gate,
        domain=arguments.domain,
        dimensions=parse_dimensions(arguments.dimension),
        known=PROXY_DIMENSIONS,
        trusted=arguments.trusted,
        forwarded=arguments.forwarded,
        exempt=arguments.exempt,
        count_preflight=arguments.count_preflight,
        shadow=arguments.shadow,
    )
    limits = ProxyLimits(
        client=HttpLimits(least_rate=_rate(arguments.least_rate)),
        body_time=parse_duration(arguments.body_timeout, "body-timeout") / SECOND,
        response_time=parse_duration(arguments.timeout, "timeout") / SECOND,
    )
    return ProxyServer(
        checkpoint,
        arguments.upstream,
        limits=limits,
        forwarded=arguments.forwarded,
        observer=None if arguments.metrics == OFF else recorder,
        domain=arguments.domain or next(iter(gate.rules.domains)),
    )


def _tls(arguments: argparse.Namespace) -> ServerTLS | None:
    from penstock.wires.tls import HTTP_1_1, ServerTLS

    certificate, key, clients = arguments.tls_cert, arguments.tls_key, arguments.tls_client_ca
    if bool(certificate) != bool(key):
        raise ValueError("tls-cert and tls-key must be given together")
    if not certificate:
        if clients:
            raise ValueError("tls-client-ca needs tls-cert and tls-key")
        return None
    try:
        return ServerTLS(certificate, key, clients, HTTP_1_1)
    except OSError as error:  # also of the ssl module
        raise ValueError(f"the certificate cannot be used: {error}") from None


def _reload_rules(gate: AsyncGate) -> None:
    try:
        gate.reload()
    except PenstockError as error:
        logger.error("rules were not reloaded, the old ones stay in force:\n%s", error)


def _metrics_api(recorder: Recorder, proxy: ProxyServer) -> Routes:
    """What monitoring asks for."""
    from penstock.metrics.prometheus import exposition
    from penstock.wires.http.messages import HttpRequest, HttpResponse, as_text
    from penstock.wires.http.routes import Routes

    def metrics(request: HttpRequest) -> HttpResponse:
        accept = request.header("accept") or ""
        body, content_type = exposition(recorder.snapshot(), accept)
        return HttpResponse(200, body, content_type=content_type)

    def healthcheck(request: HttpRequest) -> HttpResponse:
        return as_text("draining", 500) if proxy.draining else as_text("OK")

    return Routes({"/metrics": {"GET": metrics}, "/healthcheck": {"GET": healthcheck}})


async def _serve(arguments: argparse.Namespace, gate: AsyncGate) -> int:
    from penstock.metrics import Recorder
    from penstock.rules.walk import all_rules
    from penstock.running.certificates import Certificates
    from penstock.running.event_loop import start_server
    from penstock.running.settings import address_of
    from penstock.running.sockets import describe, listen
    from penstock.wires.http.connections import HANDSHAKE
    from penstock.wires.http.protocol import HttpServer

    recorder = Recorder()
    recorder.follow(gate)
    proxy = _proxy(arguments, gate, recorder)
    drain = parse_duration(arguments.drain, "drain") / SECOND
    address = address_of(arguments.listen, "listen")
    if address is None:
        raise ValueError("listen must be HOST:PORT or unix:PATH")
    metrics_address = address_of(arguments.metrics, "metrics")
    tls, certificates = _tls(arguments), Certificates()
    options = {}
    if tls is not None:
        certificates.add(tls, proxy.readmit)
        options = tls.listening(HANDSHAKE)
    (listener,) = listen(address)
    server = await start_server(proxy.factory, listener, **options)
    monitored = HttpServer(_metrics_api(recorder, proxy))
    servers = [server]
    metrics = ""
    if metrics_address is not None:
        (metrics_listener,) = listen(metrics_address)
        servers.append(await start_server(monitored.factory, metrics_listener))
        metrics = f", metrics on {describe(metrics_listener)}"
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def reload() -> None:
        certificates.reload()
        loop.run_in_executor(None, _reload_rules, gate)

    loop.add_signal_handler(signal.SIGHUP, reload)
    scheme = "http" if tls is None else "https"
    where = describe(listener) if isinstance(address, str) else f"{scheme}://{describe(listener)}"
    rules = counted(sum(1 for _ in all_rules(gate.rules)), "rule")
    shadow = ", in shadow mode: nothing is refused" if arguments.shadow else ""
    print(f"penstock proxy: {where} -> {proxy.pool.target}, {rules}{shadow}{metrics}", flush=True)
    await stop.wait()
    server.close()
    print("penstock proxy: finishing open requests", flush=True)
    await proxy.drain(drain)
    for each in servers[1:]:
        each.close()
    await monitored.drain(1.0)
    await certificates.close()
    recorder.close()
    return 0
