"""``penstock bench``: sends a given load to a rate limit service and reports the results."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from penstock.cli.arguments import FAILED, Commands, complain, counted
from penstock.durations import SECOND, parse_duration
from penstock.errors import PenstockError
from penstock.limits import Limit, as_limit
from penstock.loadgen.load import Load, skew_of
from penstock.loadgen.requests import ENTRIES, as_json, as_message, descriptors

if TYPE_CHECKING:
    from penstock.loadgen.scheduler import Connect

KEY = "{key}"
# Connects to what the arguments name; the names are the keys of descriptors.
Target: TypeAlias = "Callable[[argparse.Namespace, list[str]], Connect]"


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure a rate limit service under a given load",
        description="Sends requests to any rate limit service and prints throughput, percentiles,"
        " errors and, with --limit, accuracy. Exit code 0: success; 1: nothing was answered, or a"
        " key got more than --limit allows.",
    )
    wires = parser.add_subparsers(title="wires", metavar="<wire>", required=True)
    http = wires.add_parser(
        "http",
        help="a service that answers 200 or 429 over HTTP/1.1",
        description="Uses HTTP/1.1: 2xx is allowed, 429 is refused, anything else is an error.",
        epilog="example: penstock bench http http://127.0.0.1:8080/v1/check --rate 5000",
    )
    http.add_argument("target", metavar="URL", help="for example http://127.0.0.1:8080/v1/check")
    _add_load(http, connections=16, streams=1)
    http.add_argument(
        "--payload", metavar="TEXT",
        help=f"the body, with {KEY} for the key; @FILE reads it from a file, '' sends none"
        " (default: a request for /v1/check)",
    )  # fmt: skip
    http.add_argument("--method", help="default: POST, or GET without a body")
    http.add_argument(
        "--header", action="append", default=[], metavar="'NAME: VALUE'", help="may be repeated"
    )
    http.set_defaults(run=partial(run, _http_target, "bench http needs httptools"))
    grpc = wires.add_parser(
        "grpc",
        help="a service that speaks Envoy's rate limit protocol",
        description="Calls envoy.service.ratelimit.v3.RateLimitService over gRPC, without TLS.",
        epilog="example: penstock bench grpc 127.0.0.1:8081 --limit 100/second --keys 50",
    )
    grpc.add_argument("target", metavar="HOST:PORT", help="or unix:PATH")
    _add_load(grpc, connections=4, streams=32)
    grpc.set_defaults(run=partial(run, _grpc_target, "bench grpc needs hpack"))


def _add_load(parser: argparse.ArgumentParser, connections: int, streams: int) -> None:
    add = parser.add_argument
    # fmt: off
    add("--rate", type=float, metavar="N",
        help="requests a second, whether or not answers arrive (default: as fast as they arrive)")
    add("--duration", default="10s", metavar="TIME", help="duration of the run (default: 10s)")
    add("--connections", type=int, default=connections, metavar="N",
        help=f"number of connections (default: {connections})")
    add("--streams", type=int, default=streams, metavar="N",
        help=f"requests at once on each connection (default: {streams})")
    add("--keys", type=int, default=1_000, metavar="N", help="number of keys (default: 1000)")
    add("--choose", default="uniform", metavar="HOW",
        help="how keys are chosen: uniform, zipf or zipf:EXPONENT (default: uniform)")
    add("--domain", default="bench", help="domain of the rules (default: bench)")
    add("--descriptors", type=int, default=1, choices=(1, 3), help="per request (default: 1)")
    add("--entries", default=",".join(ENTRIES), metavar="NAMES",
        help=f"the keys of descriptors, in order (default: {','.join(ENTRIES)})")
    add("--limit", metavar="LIMIT",
        help="the limit of each key, such as 100/second, to measure accuracy")
    # fmt: on


def _http_target(arguments: argparse.Namespace, names: list[str]) -> Connect:
    from penstock.loadgen.http import HttpTarget

    bodies = _bodies(arguments, names)
    method = arguments.method or ("POST" if bodies[0] else "GET")
    headers = [_header(text) for text in arguments.header]
    return HttpTarget(arguments.target, method.upper(), bodies, headers).connect


def _grpc_target(arguments: argparse.Namespace, names: list[str]) -> Connect:
    from penstock.loadgen.grpc import GrpcTarget

    requests = [descriptors(key, names) for key in range(arguments.keys)]
    messages = [as_message(arguments.domain, each) for each in requests]
    return GrpcTarget(arguments.target, messages).connect


def _load(arguments: argparse.Namespace) -> tuple[Load, Limit | None, list[str]]:
    load = Load(
        seconds=parse_duration(arguments.duration, "duration") / SECOND,
        rate=arguments.rate,
        connections=arguments.connections,
        streams=arguments.streams,
        keys=arguments.keys,
        skew=skew_of(arguments.choose),
    )
    names = [name.strip() for name in arguments.entries.split(",") if name.strip()]
    if len(names) < arguments.descriptors:
        raise ValueError(f"{arguments.descriptors} descriptors need as many --entries")
    if arguments.limit is None:
        return load, None, names[: arguments.descriptors]
    if arguments.descriptors != 1:
        raise ValueError("--limit needs a single descriptor: any of several could refuse")
    return load, as_limit(arguments.limit), names[:1]


def _bodies(arguments: argparse.Namespace, names: list[str]) -> list[bytes]:
    if arguments.payload is None:
        return [as_json(arguments.domain, descriptors(key, names)) for key in range(arguments.keys)]
    text: str = arguments.payload
    if text.startswith("@"):
        text = Path(text[1:]).read_text("utf-8")
    return [text.replace(KEY, f"key-{key}").encode() for key in range(arguments.keys)]


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or "\n" in text or "\r" in text:
        raise ValueError(f"a header must be 'Name: value', not {text!r:.100}")
    return name.strip(), value.strip()


def run(target: Target, missing: str, arguments: argparse.Namespace) -> int:
    """Run it against a target; ``missing`` says what a target needs that is not installed."""
    from penstock.loadgen.report import accuracy_of, lines
    from penstock.loadgen.scheduler import Scheduler
    from penstock.running import event_loop

    try:
        load, limit, names = _load(arguments)
        connect = target(arguments, names)
    except ModuleNotFoundError:
        return complain("bench", f"{missing}: pip install 'penstock[server]'")
    except (PenstockError, ValueError, OSError) as error:
        return complain("bench", error)
    connections = counted(load.connections, "connection")
    rate = "as fast as answers arrive" if load.rate is None else f"{load.rate:,.0f} a second"
    print(
        f"{arguments.target}: {rate} for {load.seconds:g} s, over {connections}"
        f" with {load.streams} at once, {load.keys:,} keys ({arguments.choose})\n",
        flush=True,
    )

    result = event_loop.run(Scheduler(load, connect).run())
    if result.trouble:
        return complain("bench", f"cannot connect to {arguments.target}: {result.trouble}", FAILED)
    print("\n".join(lines(result, limit)))
    if not result.counts.answers:
        return FAILED
    return FAILED if limit is not None and accuracy_of(result, limit).over else 0
