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
    ({"switch"}, "whether middleware limits anything"),
    ({"durations", "limits", "limit_options", "limit_text"}, "Limit, and how it is written"),
    ({"clock", "keys"}, "wall and monotonic time; how keys are joined"),
    ({"decision", "events"}, "the answer to a hit; what observers are told"),
    ({"numbers"}, "limit, remaining and reset, as clients see them"),
    ({"circuit"}, "the state of a circuit breaker"),
    ({"sqlite_wal"}, "opens SQLite files that several processes open at once"),
    ({"algorithms"}, "pure: state, cost and time in, decision out"),
    ({"stores"}, "where state lives; atomicity and time"),
    ({"flows"}, "drives generators, for threads and for tasks"),
    (
        {
            "combined",
            "partial_hits",
            "pending",
            "streams",
            "waiters",
            "flow_steps",
            "waiting",
            "decorators",
            "arguments",
            "misuse",
            "lazy_names",
            "reservation",
            "undecided_hits",
        },
        "waiting, decorators and reservations, written once for both limiters",
    ),
    ({"limiter"}, "hit, peek, wait, reserve, ... for threads"),
    ({"async_limiter"}, "the same for tasks"),
    ({"breaker"}, "CircuitBreaker"),
    ({"concurrency"}, "how many calls run at once: slots and queues"),
    ({"adaptive"}, "limits that follow load"),
    ({"kv"}, "small shared values: put, get, watch"),
    (
        {"rules"},
        "which limits apply: reading/ of YAML, matching/, deciding/ on verdicts",
    ),
    ({"control"}, "rules, overrides and switches in a key-value store"),
    ({"base_gate"}, "rules over a store: what both gates share"),
    ({"gate"}, "a verdict for a request"),
    ({"async_gate"}, "the same for tasks"),
    ({"quota"}, "balances that are money: a ledger, plans, periods, settlement"),
    (
        {"integrations"},
        "middleware; deciding/ has identity, keys, paths, headers, 429s, Retry-After",
    ),
    ({"client"}, "the caller's side: pacing, retries, batches"),
    ({"metrics"}, "counts events, for Prometheus and OpenTelemetry"),
    ({"replay"}, "logs against rules: simulate, recommend, export"),
    ({"service"}, "the rate limit service without sockets: Envoy's messages, health"),
    ({"wires"}, "bytes to the service and back: HTTP and gRPC"),
    ({"admin"}, "commands and endpoints for operators, and the audit record"),
    (
        {"page"},
        "the web page of the admin port: static files",
    ),
    (
        {"running"},
        "penstock serve: settings, workers.py, reload.py, control_plane.py, sockets",
    ),
    ({"proxy"}, "the limiting reverse proxy"),
    ({"loadgen"}, "generates load, for penstock bench"),
    ({"testing"}, "FakeClock, helpers for tests and the conformance suite: public"),
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
        {"around", "token_bucket", "fixed_window", "sliding_window", "sliding_log", "stock"},
        {"lockout", "soft", "initial_bucket"},
    ],
    "stores": [
        {"base", "levels", "layout"},
        {"_pure", "_table", "shared_file"},
        {"_dict", "_memory", "_mapped", "_mapped_pure"},
        {"disabled", "memory", "shared"},
        {"redis"},
        {"leased"},
        {"regions"},
        {"url"},
    ],
    "stores.leased": [
        {"boottime", "ending", "holders", "law", "rows", "stats", "stretch"},
        {"messages"},
        {"bank", "lease", "wire"},
        {"counters", "exchange", "journal"},
        {"renewal"},
        {"store"},
    ],
    "stores.regions": [
        {"law", "stats"},
        {"account", "roster", "row"},
        {"messages"},
        {"agent", "calls", "watch"},
        {"region"},
        {"counters"},
        {"store"},
    ],
    "stores.redis": [
        {"address", "connection", "script", "server_errors"},
        {"clients", "operation"},
        {"forgetting"},
        {"wire"},
        {"pending_call"},
        {"fallback"},
        {"groups", "settings"},
        {"reconnect"},
        {"server"},
        {"node"},
        {"router"},
        {"engine"},
        {"thread_loop"},
        {"engines"},
        {"counters"},
        {"store"},
    ],
    "concurrency": [
        {"events", "leases", "queue_policy"},
        {"fair_queue", "lease_server"},
        {"renewal", "waiting_queue"},
        {"local_slots"},
        {"lease_queue", "slot"},
        {"redis_slots"},
        {"limiter"},
    ],
    "adaptive": [
        {"base", "cpu", "reservoir"},
        {"aimd", "cpu_target", "gradient2", "rate", "vegas"},
    ],
    "kv": [
        {"cancelling", "database", "entry"},
        {"codec", "watching"},
        {"record"},
        {"backend"},
        {"memory", "redis_clients"},
        {"cache", "file", "mirror", "redis_wakeups"},
        {"follower", "redis"},
        {"open"},
        {"operations"},
        {"async_key_value", "key_value"},
    ],
    "rules": [
        {"lists", "problems", "wildcards"},
        {"aliases", "model"},
        {"walk"},
        {"matching", "reading"},
        {"deciding"},
    ],
    "rules.reading": [
        {"tree", "yaml_messages"},
        {"dict_tree", "files", "keywords", "yaml_tree"},
        {"schema", "values", "watch"},
        {"levels", "limits", "lists", "quotas"},
        {"variants"},
        {"steps"},
        {"parse"},
        {"loading"},
    ],
    "rules.matching": [{"tree"}, {"trace"}, {"match"}],
    "rules.deciding": [
        {"store_calls", "switches", "verdict"},
        {"lineage", "overrides"},
        {"compiled", "pool", "results"},
        {"decide", "heritage", "plan"},
        {"slots"},
        {"check"},
    ],
    "quota": [
        {"errors", "journal", "rows", "stock_row"},
        {"values"},
        {"periods"},
        {"plans"},
        {"book"},
        {"plan_change", "views"},
        {"near_empty", "renewal"},
        {"databases"},
        {"operations", "export"},
        {"batch", "hold_operations", "worker"},
        {"core", "reading"},
        {"reconcile", "hold"},
        {"verbs"},
        {"stock_operations"},
        {"stock_numbers"},
        {"stocks"},
        {"quota_counters", "settling"},
        {"quota_store"},
        {"async_ledger", "ledger"},
    ],
    "quota.databases": [
        {"base", "tables"},
        {"migrations"},
        {"postgres", "sqlite"},
        {"url"},
    ],
    "control": [{"steps", "switch_entries"}, {"rule_sets"}, {"following"}],
    "integrations": [
        {"deciding"},
        {"asgi", "grpc", "wsgi"},
        {"django", "fastapi", "flask"},
    ],
    "integrations.deciding": [
        {"notices", "paths", "responses", "waiting"},
        {"identity", "key_functions"},
        {"descriptors", "outcome", "proxy_notice", "request"},
        {"dead_rules", "deciders", "exempt", "keys", "marked_views", "misuse"},
        {"key_limits"},
        {"checkpoint", "dimension_sources", "dimensions"},
        {"http_checkpoint"},
        {"applied_limits", "environment", "refusals"},
        {"error_responses", "options"},
        {"breaker_call", "slots", "views"},
    ],
    "integrations.asgi": [
        {"types"},
        {"disconnects", "route"},
        {"request"},
        {"headers"},
        {"breaker", "concurrency", "limit"},
    ],
    "integrations.wsgi": [
        {"types"},
        {"disconnects", "request"},
        {"headers"},
        {"breaker", "concurrency", "limit"},
    ],
    "integrations.fastapi": [
        {"decorating", "exceptions", "misuse"},
        {"route_limit"},
        {"openapi"},
    ],
    "integrations.flask": [
        {"exceptions", "misuse", "request"},
        {"view_limit"},
        {"extension"},
    ],
    "integrations.django": [
        {"counts", "request", "settings"},
        {"view_limit"},
        {"decorator", "middleware", "rest_framework"},
        {"apps"},
    ],
    "integrations.grpc": [
        {"call", "trailers"},
        {"context", "options"},
        {"interceptor"},
        {"sync"},
        {"aio"},
    ],
    "client": [
        {"batch_base", "retries", "structured"},
        {"batch_tasks", "batch_threads", "fields", "settings"},
        {"batching", "rate_estimator"},
        {"pacer"},
        {"calls"},
        {"aiohttp", "httpx", "requests"},
    ],
    "metrics": [
        {"families", "flight", "labels", "top"},
        {"refusals"},
        {"counters", "history", "outcomes", "snapshot"},
        {
            "anomaly",
            "gather",
            "otel",
            "prometheus",
            "rule_labels",
            "slots",
            "statsd",
            "webhook",
        },
        {"collect", "event_counters"},
        {"recorder"},
    ],
    "replay": [
        {"reading"},
        {"deciding"},
        {"behaviour", "traffic"},
        {"report"},
        {"cautions"},
        {"simulate"},
        {"exporting", "recommending"},
        {"rendering"},
        {"trying"},
    ],
    "replay.reading": [
        {"formats", "kinds"},
        {"_columns_pure", "_times_pure"},
        {"_scanner", "_scanner_pure", "files", "named_fields", "server_formats"},
        {"blocks"},
        {"program", "ordering", "threads"},
        {"guessing", "requests"},
        {"logs"},
    ],
    "replay.deciding": [
        {"_decider", "log_request"},
        {"settings", "tallies", "value_columns"},
        {"slow"},
        {"entries"},
        {"fast"},
        {"replay"},
    ],
    "replay.recommending": [
        {"arrivals", "choosing", "yaml"},
        {"recommendation", "sampling"},
        {"needs"},
        {"plotting"},
        {"recommend"},
    ],
    "replay.exporting": [
        {"escaping", "nginx_address", "sources"},
        {"items"},
        {"numbers"},
        {"envoy", "haproxy", "nftables", "nginx"},
        {"export"},
    ],
    "replay.rendering": [
        {"sections", "svg"},
        {"advice", "page", "plots", "tables", "terminal"},
        {"html"},
    ],
    "service": [
        {"envoy_constants", "grpc_status", "leases", "unknown_domains"},
        {"failures", "health", "rls_request", "rls_response"},
        {"dynamic_metadata"},
        {"rls_general"},
        {"rls_quick"},
        {"service"},
        {"rls_json"},
        {"rlqs"},
    ],
    "service.rlqs": [
        {"interface", "messages", "shares", "stats"},
        {"account", "buckets"},
        {"bank", "streams"},
        {"assigner", "packing"},
        {"file_bank", "redis_bank"},
        {"service"},
        {"views"},
    ],
    "wires": [{"tls"}, {"http", "grpc"}],
    "wires.http": [
        {"check_request", "connections", "framing", "limits", "messages", "pace"},
        {"check_response", "reader", "routes"},
        {"auth", "check", "protocol", "release"},
        {"openapi"},
        {"api"},
    ],
    "wires.grpc": [
        {"methods", "protobuf_fields"},
        {"descriptors", "h2", "health"},
        {"grpcio_bidi"},
        {"grpcio", "reflection"},
    ],
    "wires.grpc.h2": [
        {"_nghttp2", "limits"},
        {"bidi"},
        {"calls"},
        {"protocol"},
        {"server"},
    ],
    "admin": [
        {
            *("audit", "author", "counters", "dumps", "endpoints", "errors", "leases"),
            *("log_level", "switch_dumps", "tokens"),
        },
        {"schemas", "sessions", "who"},
        {"access", "commands", "overview"},
        {"control", "openapi", "reading"},
        {"queries"},
        {"handlers"},
        {"api"},
    ],
    "running": [
        {
            "channel",
            "collector",
            "event_loop",
            "masks",
            "reports",
            "rule_changes",
            "rule_watch",
            "settings",
            "store_watch",
        },
        {
            "access_log",
            "certificates",
            "dead_rules",
            "lease_secret",
            "logs",
            "rules_in_force",
            "settings_sources",
            "sockets",
            "stores",
        },
        {"admin_server", "changes", "ledger", "listeners", "live_log", "quotas", "reload"},
        {"worker", "workers"},
        {
            *("control_plane", "history_keeper", "rule_editor", "store_control"),
            *("worker_main", "worker_process"),
        },
        {"supervisor"},
        {"app"},
    ],
    "proxy": [
        {"limits", "request", "target"},
        {"fields"},
        {"upstream"},
        {"pool", "response"},
        {"base"},
        {"exchange"},
        {"reader"},
        {"client"},
        {"server"},
    ],
    "loadgen": [
        {"counts", "envelope", "load", "requests"},
        {"scheduler"},
        {"grpc", "http", "report"},
    ],
    "testing": [
        {"clock", "in_process", "responses"},
        {"conformance", "load_simulation"},
    ],
    "cli": [
        {"arguments", "logs", "paint", "top_source"},
        {"quota_view", "top_view"},
        {
            *(
                "admin",
                "bench",
                "check",
                "demo",
                "explain",
                "export",
                "proxy",
                "quota",
                "recommend",
            ),
            *("rules", "serve", "simulate", "top"),
        },
    ],
    "cli.admin": [{"asking", "fleet"}, {"decisions", "questions"}, {"changing"}, {"verbs"}],
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
