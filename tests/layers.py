"""The order of the rooms, as data: which part of the source may import which.

    python tests/layers.py      writes the map of the rooms into CONTRIBUTING.md

`test_layers.py` checks the imports and the map.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/penstock"

# From bottom to top: the rooms of a layer, and what they are for. A room may import from its own
# layer and from those before it.
ORDER: list[tuple[set[str], str]] = [
    ({"errors"}, "the exceptions"),
    ({"durations", "limit", "limit_text"}, "Limit, and how it is written"),
    ({"clock", "keys"}, "wall and monotonic time; how keys are joined"),
    ({"decision", "events"}, "the answer to a hit; what observers are told"),
    ({"numbers"}, "limit, remaining and reset, as clients see them"),
    ({"circuit"}, "the state of a circuit breaker"),
    ({"algorithms"}, "pure: state, cost and time in, decision out"),
    ({"stores"}, "where state lives; atomicity and time"),
    ({"flows"}, "drives generators, for threads and for tasks"),
    (
        {"waiters", "steps", "waiting", "decorators", "arguments", "reservation", "undecided"},
        "waiting, decorators and reservations, written once for both limiters",
    ),
    ({"limiter"}, "hit, peek, wait, reserve, ... for threads"),
    ({"async_limiter"}, "the same for tasks"),
    ({"breaker"}, "CircuitBreaker"),
    ({"concurrency"}, "how many calls run at once: slots and queues"),
    ({"adaptive"}, "limits that follow load"),
    (
        {"rules"},
        "which limits apply: reading/ of YAML, matching/, deciding/ on verdicts",
    ),
    ({"gate"}, "rules and a store: a verdict for a request"),
    ({"async_gate"}, "the same for tasks"),
    (
        {"integrations"},
        "middleware; deciding/ has identity, keys, paths, headers, 429s",
    ),
    ({"client"}, "the caller's side: pacing, retries, batches"),
    ({"metrics"}, "counts events, for Prometheus and OpenTelemetry"),
    ({"service"}, "the rate limit service without sockets: Envoy's messages, health"),
    ({"wires"}, "bytes to the service and back: HTTP and gRPC"),
    ({"admin"}, "commands and endpoints for operators, and the audit record"),
    (
        {"running"},
        "penstock serve: settings, workers, reloads (fleet.py), sockets, logs",
    ),
    ({"proxy"}, "the limiting reverse proxy"),
    ({"loadgen"}, "generates load, for penstock bench"),
    ({"testing"}, "FakeClock and the conformance suite: public"),
    ({"cli", "__main__"}, "one file per command"),
]
# Importable from everywhere; they import nothing.
FOR_ANYONE = {"_mode", "_version", "_no_cython"}

# The order inside a room, from bottom to top: modules and folders. Those of one layer are
# independent of each other: they import from the layers before theirs only. What a room's
# `__init__` exports is for other rooms.
INSIDE: dict[str, list[set[str]]] = {
    "algorithms": [
        {"words", "calendar"},
        {"base"},
        {"around", "token_bucket", "fixed_window", "sliding_window", "sliding_log"},
        {"lockout", "soft"},
    ],
    "stores": [
        {"base", "levels", "layout"},
        {"_pure", "_table", "shared_file"},
        {"_dict", "_memory", "_mapped", "_mapped_pure"},
        {"memory", "shared"},
        {"redis"},
    ],
    "concurrency": [
        {"events", "leases", "size"},
        {"queue_policy", "lease_server"},
        {"fair_queue", "renewal"},
        {"waiting_queue"},
        {"local_slots"},
        {"flow", "lease_queue"},
        {"slot", "redis_slots"},
        {"decorate"},
        {"limiter"},
        {"async_limiter"},
    ],
    "adaptive": [
        {"base", "cpu", "reservoir"},
        {"aimd", "cpu_target", "gradient2", "rate", "vegas"},
    ],
    "rules": [
        {"lists", "problems", "wildcards"},
        {"model"},
        {"walk"},
        {"matching", "reading"},
        {"deciding"},
    ],
    "integrations": [
        {"deciding"},
        {"asgi", "grpc", "wsgi"},
        {"django", "fastapi", "flask"},
    ],
    "client": [
        {"batch_results", "retries", "structured"},
        {"batch_tasks", "batch_threads", "fields", "settings"},
        {"batching", "rate_estimator"},
        {"pacer"},
        {"calls"},
        {"drivers"},
        {"httpx", "requests"},
    ],
    "service": [
        {"envoy_constants", "grpc_status"},
        {"failures", "health", "rls_request", "rls_response"},
        {"rls_general"},
        {"rls_quick"},
        {"service"},
        {"rls_json"},
    ],
    "wires": [{"http", "grpc"}],
    "wires.http": [
        {"framing", "limits", "messages", "openapi", "pace", "questions"},
        {"check", "reader", "routes"},
        {"auth", "protocol"},
        {"api"},
    ],
    "wires.grpc": [
        {"descriptors", "methods", "protobuf_fields"},
        {"h2", "health", "reflection"},
        {"grpcio"},
    ],
    "admin": [
        {"audit", "counters", "dumps", "endpoints", "errors", "log_level", "stats", "tokens"},
        {"access", "commands", "schemas"},
        {"control", "openapi", "reading"},
        {"handlers"},
        {"api"},
    ],
    "running": [
        {"access_log", "channel", "event_loop", "masks", "rule_changes", "settings", "store_watch"},
        {"logs", "observers", "rules_transfer", "settings_sources", "sockets", "stores"},
        {"admin_server", "fleet", "listeners"},
        {"worker"},
        {"in_process", "worker_main", "worker_process"},
        {"supervisor"},
        {"app"},
    ],
    "loadgen": [
        {"counts", "envelope", "load", "requests"},
        {"scheduler"},
        {"grpc", "http", "report"},
    ],
    "cli": [
        {"arguments", "paint", "top_source"},
        {"top_view"},
        {"bench", "check", "demo", "explain", "proxy", "serve", "top"},
    ],
}

_MAP = re.compile(r"(<!-- rooms -->\n```text\n).*?(```\n<!-- end -->)", re.S)
_WIDTH = 30


def map_of_rooms() -> str:
    """The text for CONTRIBUTING.md."""
    lines = ["src/penstock/"]
    for rooms, purpose in ORDER:
        names = sorted(room for room in rooms if not room.startswith("_"))
        words = [f"{name}/" if (SOURCE / name).is_dir() else f"{name}.py" for name in names]
        *others, last = wrapped(words)
        lines += [f"  {line}" for line in others]
        lines.append(f"  {last:<{_WIDTH}}  {purpose}")
    return "\n".join(lines) + "\n"


def wrapped(words: list[str]) -> list[str]:
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) <= _WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def with_map(page: str) -> str:
    """A page with the map of the rooms between its two marks."""
    return _MAP.sub(lambda match: f"{match[1]}{map_of_rooms()}{match[2]}", page)


if __name__ == "__main__":
    contributing = ROOT / "CONTRIBUTING.md"
    contributing.write_text(with_map(contributing.read_text()))
