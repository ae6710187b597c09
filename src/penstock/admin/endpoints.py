"""The endpoints: one table for the routes, the OpenAPI document and the audit log."""

from __future__ import annotations

from dataclasses import dataclass

TEXT = "text"  # a response that is not JSON


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
    """``does`` is the method of `Handlers`; ``action`` the name of a change in the audit log."""

    method: str
    path: str
    does: str
    summary: str
    answers: str
    asks: str | None = None
    query: tuple[Query, ...] = ()
    action: str | None = None
    statuses: tuple[int, ...] = ()


_DOMAIN = Query("domain", "Required if the rules have several.")
_DESCRIPTOR = Query(
    "descriptor",
    "A descriptor: key=value,key=value in order; or JSON, if a value contains a comma."
    " May be repeated.",
    required=True,
    many=True,
)
_PAIR = (Query("key", "The pair's key.", True), Query("value", "The pair's value.", True))
_OTHERS = Query("others", "Other pairs of the request: key=value,key=value; or JSON.")
_ENTRY = (Query("key", "The pair's key.", True), Query("entry", "A value, or a network.", True))
_NAME = Query("name", "A rule's id or a limit's name; if omitted, the switch for all.")
_EXPECT = Query(
    "expect",
    "The number of the last change of this, as in /v1/changes. If it is another one, nothing is"
    " changed (409).",
    kind="integer",
)
_AFTER_SECOND = Query(
    "after", "Only seconds after this one, as in an earlier response.", kind="integer"
)
_SPAN = Query("span", "15m (by second, the default) or 24h (by minute).")
_WHY = Query("why", "The reason, for the history of changes.")
_N = Query("n", "How many of each; 10 by default.", kind="integer")
_AFTER = Query(
    "after", "Only decisions after these: worker:number,worker:number, with the numbers read last."
)
_LIMIT = Query("limit", "Only the limit with this name.")

ENDPOINTS = (
    Endpoint("GET", "/", "index", "The list of endpoints.", TEXT),
    Endpoint("GET", "/openapi.json", "openapi", "This document.", "OpenApi"),
    Endpoint("GET", "/rlconfig", "rlconfig", "The rules, one line for each.", TEXT),
    Endpoint("GET", "/stats", "stats", "Counters under the names of Envoy's service.", TEXT,
             statuses=(501,)),
    Endpoint("GET", "/metrics", "metrics", "Metrics for Prometheus.", TEXT, statuses=(501,)),
    Endpoint("GET", "/healthcheck", "healthcheck", "OK, or status 500.", TEXT, statuses=(500,)),
    Endpoint("GET", "/v1/health", "health", "Each component; status 503 if one is down.",
             "Health", statuses=(503,)),
    Endpoint("GET", "/v1/version", "version", "Version, configuration and uptime.", "Version"),
    Endpoint("GET", "/v1/session", "session", "Who is asking, and what it may do.", "Session"),
    Endpoint("POST", "/v1/session", "log_in",
             "Log in a browser: its session is in a cookie for eight hours.", "Nothing",
             asks="AskSession", statuses=(401, 429)),
    Endpoint("DELETE", "/v1/session", "log_out", "End the session of a browser.", "Nothing"),
    Endpoint("GET", "/v1/overview", "overview",
             "Every rule now and over the last 15 minutes, and all together by second.",
             "Overview", query=(_AFTER_SECOND,), statuses=(501,)),
    Endpoint("GET", "/v1/history", "history",
             "What a rule, or all together, decided: by second or by minute.", "History",
             query=(Query("rule", "Its id; if omitted, all together."), _SPAN), statuses=(501,)),
    Endpoint("GET", "/v1/store", "store", "The store, and what its leases have done.", "Store",
             statuses=(501,)),
    Endpoint("GET", "/v1/leases", "leases", "The busiest keys that are leased, and who holds how"
             " much of each.", "Leases"),
    Endpoint("GET", "/v1/quotas", "quotas",
             "Buckets of Envoys that get quotas (RLQS): demand, share, assignment and expiry.",
             "Quotas"),
    Endpoint("GET", "/v1/balance", "balance",
             "What an account of the ledger has: what is left and held, the period, and when it"
             " runs out at this pace.", "Balance",
             query=(Query("account", "The name of the account.", True),),
             statuses=(404, 501, 503)),
    Endpoint("GET", "/v1/rules", "rules", "The rules, with their file and line.", "Rules"),
    Endpoint("GET", "/v1/rules/files", "rule_files",
             "The rules as text, and the revision to name when they are changed.", "RuleFiles",
             statuses=(422, 501, 503)),
    Endpoint("PUT", "/v1/rules/files", "put_rule_files",
             "Put changed rules in force, in every instance of the fleet.", "ChangedRules",
             asks="AskPutRules", action="rules.put", statuses=(409, 422, 501, 503)),
    Endpoint("POST", "/v1/rules/try", "try_rules",
             "What changed rules would have done to the requests of the last hour.", "Trial",
             asks="AskTryRules", statuses=(422, 501)),
    Endpoint("POST", "/v1/rules/reload", "reload",
             "Reload the rules in all workers. If they are invalid, the old ones stay in force.",
             "Reloaded", action="rules.reload", statuses=(422,)),
    Endpoint("GET", "/v1/who", "who",
             "Every rule that a value touches: where it stands, since when it is refused, and why.",
             "Who", query=(*_PAIR, _OTHERS)),
    Endpoint("GET", "/v1/instances", "instances",
             "The instances that share the control store, and the rules that each has in force.",
             "Instances", statuses=(501, 503)),
    Endpoint("GET", "/v1/changes", "changes",
             "What was changed, the newest first: by whom, why, and what it was before.",
             "Changes", query=(Query("limit", "How many; 20 by default.", kind="integer"),),
             statuses=(501, 503)),
    Endpoint("POST", "/v1/undo", "undo", "Take a change back.", "Undone", asks="AskUndo",
             action="change.undo", statuses=(404, 409, 501, 503)),
    Endpoint("GET", "/v1/counters", "counters", "What is left. Nothing is consumed.", "Counters",
             query=(_DOMAIN, _DESCRIPTOR, _LIMIT)),
    Endpoint("POST", "/v1/counters/reset", "reset",
             "Reset: the next request has the full limits.", "ChangedCounters",
             asks="AskCounters", action="counters.reset", statuses=(503,)),
    Endpoint("POST", "/v1/counters/refund", "refund", "Refund what requests consumed.",
             "ChangedCounters", asks="AskRefund", action="counters.refund", statuses=(503,)),
    Endpoint("GET", "/v1/switches", "switches",
             "All switches, with the seconds left.", "Switches"),
    Endpoint("PUT", "/v1/mode", "set_mode",
             "Enforce, shadow (decide, but refuse nothing) or off (the kill switch): for all rules,"
             " or for one rule or limit.", "ChangedMode", asks="AskMode", action="mode.set",
             statuses=(404, 409, 501)),
    Endpoint("DELETE", "/v1/mode", "clear_mode",
             "Return to the mode of the rules; for a rule or limit, to the switch for all.",
             "ChangedMode", query=(_NAME, _EXPECT, _WHY), action="mode.clear",
             statuses=(404, 409, 501)),
    Endpoint("GET", "/v1/overrides", "overrides", "Overrides in force.", "Overrides"),
    Endpoint("PUT", "/v1/overrides", "set_override",
             "Other limits for requests with a pair: a multiple of the rule's, or a new one.",
             "ChangedOverride", asks="AskOverride", action="override.set", statuses=(409, 501)),
    Endpoint("DELETE", "/v1/overrides", "clear_override", "Remove an override.", "ChangedOverride",
             query=(*_PAIR, _EXPECT, _WHY), action="override.clear", statuses=(404, 409, 501)),
    Endpoint("GET", "/v1/allow", "allow", "Requests that are never counted.", "Entries"),
    Endpoint("PUT", "/v1/allow", "set_allow", "Never count requests with a pair.", "ChangedEntry",
             asks="AskEntry", action="allow.set", statuses=(409, 501)),
    Endpoint("DELETE", "/v1/allow", "clear_allow", "Remove an entry.", "ChangedEntry",
             query=(*_ENTRY, _EXPECT, _WHY), action="allow.clear", statuses=(404, 409, 501)),
    Endpoint("GET", "/v1/deny", "deny", "Requests that are always refused.", "Entries"),
    Endpoint("PUT", "/v1/deny", "set_deny", "Refuse requests with a pair.", "ChangedEntry",
             asks="AskEntry", action="deny.set", statuses=(409, 501)),
    Endpoint("DELETE", "/v1/deny", "clear_deny", "Remove an entry.", "ChangedEntry",
             query=(*_ENTRY, _EXPECT, _WHY), action="deny.clear", statuses=(404, 409, 501)),
    Endpoint("GET", "/v1/log", "log",
             "Requests whose decisions are logged, and the last of these decisions.", "Log",
             query=(_AFTER,)),
    Endpoint("PUT", "/v1/log", "set_log", "Log the decisions on requests with a pair, for a while.",
             "ChangedLog", asks="AskLog", action="log.set", statuses=(409, 501)),
    Endpoint("DELETE", "/v1/log", "clear_log", "Stop logging them.", "ChangedLog",
             query=(*_PAIR, _EXPECT, _WHY), action="log.clear", statuses=(404, 409, 501)),
    Endpoint("GET", "/v1/log-level", "level", "The log level.", "LogLevel"),
    Endpoint("PUT", "/v1/log-level", "set_level", "Set the log level in all workers.",
             "ChangedLevel", asks="AskLogLevel", action="log_level.set"),
    Endpoint("GET", "/v1/top", "top", "Busiest rules and most refused keys.", "Top", query=(_N,),
             statuses=(501,)),
)  # fmt: skip
