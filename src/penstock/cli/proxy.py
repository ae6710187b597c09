"""``penstock proxy``: a reverse proxy that limits requests to one server."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.cli.arguments import Commands, add_merge_domains
from penstock.durations import SECOND, parse_duration
from penstock.errors import PenstockError
from penstock.integrations.deciding.identity import FORWARDED, X_FORWARDED_FOR
from penstock.limit import FAILURE_POLICIES

if TYPE_CHECKING:
    from penstock.async_gate import AsyncGate
    from penstock.proxy.server import ProxyServer

BAD_ARGUMENTS = 2


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "proxy",
        help="limit requests in front of a server, as a reverse proxy",
        description="A reverse proxy for setups without a gateway: streams requests to one server"
        " and refuses those that are over the limits of the rules.",
        epilog="example: penstock proxy --upstream http://127.0.0.1:9000 --rules rules.yaml",
    )
    parser.add_argument(
        "--upstream", required=True, metavar="URL",
        help="the server: http://HOST:PORT, https://HOST:PORT or unix:PATH",
    )  # fmt: skip
    parser.add_argument(
        "--rules", required=True, action="append", metavar="PATH",
        help="a file or folder of rules; may be repeated",
    )  # fmt: skip
    parser.add_argument("--domain", help="the domain of the rules, if there are several")
    parser.add_argument(
        "--listen", default="127.0.0.1:8080", metavar="ADDRESS",
        help="HOST:PORT or unix:PATH (default: 127.0.0.1:8080)",
    )  # fmt: skip
    parser.add_argument(
        "--store", default="memory", metavar="STORE",
        help="memory, shared:PATH (for several processes of this host) or a redis:// URL"
        " (default: memory)",
    )  # fmt: skip
    parser.add_argument(
        "--max-keys", type=int, metavar="N",
        help="how many keys fit in memory or in a new file; beyond that, keys are evicted"
        " (default: 1000000)",
    )  # fmt: skip
    parser.add_argument(
        "--bytes-per-key", type=int, metavar="N",
        help="bytes per key in a new file (default: what the rules need, at least 128)",
    )  # fmt: skip
    parser.add_argument(
        "--on-failure", default="open", choices=FAILURE_POLICIES,
        help="the decision while Redis is unavailable (default: open)",
    )  # fmt: skip
    parser.add_argument(
        "--trusted", action="append", default=[], metavar="CIDR",
        help="a network of proxies in front of this one, which are trusted to report the client's"
        " address, or unix; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--forwarded", default=X_FORWARDED_FOR, choices=(X_FORWARDED_FOR, FORWARDED),
        help=f"the header that trusted proxies set (default: {X_FORWARDED_FOR})",
    )  # fmt: skip
    parser.add_argument(
        "--exempt", action="append", default=[], metavar="PATH",
        help="a path that is never counted, such as /health or '/static/*'; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--count-preflight", action="store_true",
        help="count CORS preflight requests, too",
    )  # fmt: skip
    parser.add_argument("--shadow", action="store_true", help="decide and report, refuse nothing")
    parser.add_argument(
        "--timeout", default="60s", metavar="TIME",
        help="how long the server may send nothing (default: 60s)",
    )  # fmt: skip
    parser.add_argument(
        "--body-timeout", default="30s", metavar="TIME",
        help="how long a client may send nothing of a body (default: 30s)",
    )  # fmt: skip
    parser.add_argument(
        "--least-rate", default="240", metavar="BYTES",
        help="the least bytes a second at which a client must send a body or read a response;"
        " 0 for no limit (default: 240)",
    )  # fmt: skip
    parser.add_argument(
        "--drain", default="10s", metavar="TIME",
        help="how long to wait for open requests at the end (default: 10s)",
    )  # fmt: skip
    parser.add_argument(
        "--no-watch", action="store_true", help="do not reload rules when their files change"
    )
    add_merge_domains(parser)
    parser.set_defaults(run=run)


def _rate(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"least-rate must be bytes a second, such as 240, not {text!r:.100}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    try:
        import httptools  # noqa: F401  # asked for here, to say what is missing
    except ModuleNotFoundError:
        print("penstock proxy needs httptools: pip install 'penstock[server]'", file=sys.stderr)
        return BAD_ARGUMENTS
    from penstock.running import event_loop as loops
    from penstock.running import logs

    with contextlib.closing(logs.setup()):
        try:
            with _gate(arguments) as gate:
                return loops.run(_serve(arguments, gate))
        except (PenstockError, ValueError, TypeError) as error:
            print(f"penstock proxy: {error}", file=sys.stderr)
            return BAD_ARGUMENTS


@contextlib.contextmanager
def _gate(arguments: argparse.Namespace) -> Iterator[AsyncGate]:
    from penstock.async_gate import AsyncGate
    from penstock.running.fleet import read_rules
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


def _proxy(arguments: argparse.Namespace, gate: AsyncGate) -> ProxyServer:
    from penstock.integrations.deciding.http_checkpoint import HttpCheckpoint
    from penstock.proxy.limits import ProxyLimits
    from penstock.proxy.server import ProxyServer
    from penstock.wires.http.limits import HttpLimits

    checkpoint = HttpCheckpoint(
        asynchronous=True,
        gate=gate,
        domain=arguments.domain,
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
    return ProxyServer(checkpoint, arguments.upstream, limits=limits, forwarded=arguments.forwarded)


async def _serve(arguments: argparse.Namespace, gate: AsyncGate) -> int:
    from penstock.rules.walk import all_rules
    from penstock.running.settings import address_of
    from penstock.running.sockets import listen

    proxy = _proxy(arguments, gate)
    drain = parse_duration(arguments.drain, "drain") / SECOND
    address = address_of(arguments.listen, "listen")
    if address is None:
        raise ValueError("listen must be HOST:PORT or unix:PATH")
    (socket,) = listen(address)
    loop = asyncio.get_running_loop()
    if isinstance(address, str):
        server = await loop.create_unix_server(proxy.factory, sock=socket)
        where = f"unix:{address}"
    else:
        server = await loop.create_server(proxy.factory, sock=socket)
        host, port = socket.getsockname()[:2]
        where = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    stop = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    count = sum(1 for _ in all_rules(gate.rules))
    rules = "1 rule" if count == 1 else f"{count} rules"
    shadow = ", in shadow mode: nothing is refused" if arguments.shadow else ""
    print(f"penstock proxy: {where} -> {proxy.pool.target}, {rules}{shadow}", flush=True)
    await stop.wait()
    server.close()
    print("penstock proxy: finishing open requests", flush=True)
    await proxy.drain(drain)
    return 0
