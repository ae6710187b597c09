"""The endpoints: one table, from which routes, the OpenAPI document and the audit log follow."""

from __future__ import annotations

from dataclasses import dataclass

TEXT = "text"  # an answer that is no JSON


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter of the URL."""

    name: str
    help: str
    required: bool = False
    many: bool = False
    kind: str = "string"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """``does`` is the method of `AdminApi`; ``action`` what the audit log calls a change."""

    method: str
    path: str
    does: str
    summary: str
    answers: str
    asks: str | None = None
    query: tuple[Query, ...] = ()
    action: str | None = None
    statuses: tuple[int, ...] = ()


_DOMAIN = Query("domain", "Needed where the rules have several.")
_DESCRIPTOR = Query(
    "descriptor",
    "A descriptor: key=value,key=value in order; or as JSON, where a value has a comma in it."
    " May be given again.",
    required=True,
    many=True,
)
_PAIR = (Query("key", "The pair's key.", True), Query("value", "The pair's value.", True))
_ENTRY = (Query("key", "The pair's key.", True), Query("entry", "A value, or a network.", True))
_NAME = Query("name", "A rule's id or a limit's name; without it, the switch for all.")
_N = Query("n", "How many of each; 10 unless told.", kind="integer")
_LIMIT = Query("limit", "Only the limit of this name.")

ENDPOINTS = (
    Endpoint("GET", "/", "index", "What there is.", TEXT),
    Endpoint("GET", "/openapi.json", "openapi", "This document.", "OpenApi"),
    Endpoint("GET", "/rlconfig", "rlconfig", "The rules, a line for each.", TEXT),
    Endpoint("GET", "/stats", "stats", "Counters by the names of Envoy's service.", TEXT,
             statuses=(501,)),
    Endpoint("GET", "/metrics", "metrics", "Metrics for Prometheus.", TEXT, statuses=(501,)),
    Endpoint("GET", "/healthcheck", "healthcheck", "OK, or status 500.", TEXT, statuses=(500,)),
    Endpoint("GET", "/v1/health", "health", "Each component; status 503 if one is down.",
             "Health", statuses=(503,)),
    Endpoint("GET", "/v1/version", "version", "What is running, and for how long.", "Version"),
    Endpoint("GET", "/v1/rules", "rules", "The rules, with where they stand.", "Rules"),
    Endpoint("POST", "/v1/rules/reload", "reload",
             "Read the files again, in all workers. If they are wrong, the old ones stay.",
             "Reloaded", action="rules.reload", statuses=(422,)),
    Endpoint("GET", "/v1/counters", "counters", "What is left. Nothing is counted.", "Counters",
             query=(_DOMAIN, _DESCRIPTOR, _LIMIT)),
    Endpoint("POST", "/v1/counters/reset", "reset",
             "Forget: the next request finds the limits untouched.", "ChangedCounters",
             asks="AskCounters", action="counters.reset", statuses=(503,)),
    Endpoint("POST", "/v1/counters/refund", "refund", "Give back what requests took.",
             "ChangedCounters", asks="AskRefund", action="counters.refund", statuses=(503,)),
    Endpoint("GET", "/v1/switches", "switches",
             "All that is switched, and for how many more seconds.", "Switches"),
    Endpoint("PUT", "/v1/mode", "set_mode",
             "Enforce, shadow (decide and refuse nobody) or off (the kill switch): for all rules,"
             " or for one rule or limit.", "ChangedMode", asks="AskMode", action="mode.set",
             statuses=(404, 409)),
    Endpoint("DELETE", "/v1/mode", "clear_mode",
             "Back to what the rules say; of a rule or limit, to the switch for all.",
             "ChangedMode", query=(_NAME,), action="mode.clear", statuses=(404,)),
    Endpoint("GET", "/v1/overrides", "overrides", "Overrides in force.", "Overrides"),
    Endpoint("PUT", "/v1/overrides", "set_override",
             "Other limits for whoever has a pair: a multiple of the rule's, or one of its own.",
             "ChangedOverride", asks="AskOverride", action="override.set", statuses=(409,)),
    Endpoint("DELETE", "/v1/overrides", "clear_override", "Take one back.", "ChangedOverride",
             query=_PAIR, action="override.clear", statuses=(404,)),
    Endpoint("GET", "/v1/allow", "allow", "Who is never counted.", "Entries"),
    Endpoint("PUT", "/v1/allow", "set_allow", "Never count who has a pair.", "ChangedEntry",
             asks="AskEntry", action="allow.set", statuses=(409,)),
    Endpoint("DELETE", "/v1/allow", "clear_allow", "Take one off.", "ChangedEntry", query=_ENTRY,
             action="allow.clear", statuses=(404,)),
    Endpoint("GET", "/v1/deny", "deny", "Who is always refused.", "Entries"),
    Endpoint("PUT", "/v1/deny", "set_deny", "Refuse who has a pair.", "ChangedEntry",
             asks="AskEntry", action="deny.set", statuses=(409,)),
    Endpoint("DELETE", "/v1/deny", "clear_deny", "Take one off.", "ChangedEntry", query=_ENTRY,
             action="deny.clear", statuses=(404,)),
    Endpoint("GET", "/v1/log-level", "level", "How much is logged.", "LogLevel"),
    Endpoint("PUT", "/v1/log-level", "set_level", "Log more, or less, in all workers.",
             "ChangedLevel", asks="AskLogLevel", action="log_level.set"),
    Endpoint("GET", "/v1/top", "top", "Busiest rules, most refused keys.", "Top", query=(_N,),
             statuses=(501,)),
)  # fmt: skip
