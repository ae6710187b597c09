"""JSON Schemas of requests and responses, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from penstock.admin.log_level import LEVELS
from penstock.admin.tokens import ROLES
from penstock.rules.deciding.switches import MODES

Schema = dict[str, Any]


def an_object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """An object with these properties and no others."""
    schema: Schema = {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "additionalProperties": False,
    }
    if required:
        schema["required"] = list(required)
    return schema


def a_list(of: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": of, **more}


def a_map(of: Schema) -> Schema:
    return {"type": "object", "additionalProperties": of}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "minLength": 1}
NUMBER: Schema = {"type": "number"}
WHOLE: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
SECONDS: Schema = {"type": "number", "minimum": 0}
MODE: Schema = {"type": "string", "enum": list(MODES)}
LEVEL: Schema = {"type": "string", "enum": list(LEVELS)}
LASTS: Schema = {
    "description": "How long it lasts, such as '1h30m', or seconds; if omitted, until it is"
    " removed.",
    "anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}],
}
WHY: Schema = {"type": "string", "description": "The reason, for the history of changes."}
EXPECT: Schema = {
    "type": "integer",
    "minimum": 0,
    "description": "The number of the last change of this, as in /v1/changes; 0 if there must be"
    " none in force. If it is another one, nothing is changed (409).",
}
LIMIT_TEXT: Schema = {"type": "string", "examples": ["100/minute", "10/second burst 20"]}
PAIRS: Schema = {
    "description": "An object of strings, in order, or a list of pairs.",
    "anyOf": [
        {"type": "object", "additionalProperties": TEXT, "minProperties": 1},
        a_list(a_list(TEXT, minItems=2, maxItems=2), minItems=1),
    ],
}

# Who made it, why, and when; a service has it.
_NOTES = {"who": TEXT, "why": TEXT, "at": NUMBER}
_OVERRIDE = an_object(
    {"key": NAME, "value": TEXT, "factor": or_null(NUMBER), "limit": or_null(LIMIT_TEXT),
     "left": or_null(SECONDS)}, _NOTES
)  # fmt: skip
_ENTRY = an_object({"key": NAME, "entry": TEXT, "left": or_null(SECONDS)}, _NOTES)
_LOGGED = an_object({"key": NAME, "value": TEXT, "left": or_null(SECONDS)}, _NOTES)
_RULE_LIMIT = an_object({"name": TEXT, "limit": LIMIT_TEXT, "switched": or_null(MODE)})
_LIMITS = a_list(_RULE_LIMIT)
_RULE = an_object(
    {"id": TEXT, "place": TEXT, "limits": _LIMITS, "shadow": FLAG, "switched": or_null(MODE),
     "mode": MODE, "overrides": WHOLE, "line": TEXT},
    {
        "unlimited": FLAG, "closed": FLAG, "quota": FLAG, "name": TEXT, "cost": WHOLE,
        "replaces": a_list(TEXT),
        "plans": an_object({"by": TEXT, "tiers": a_map(_LIMITS), "default": or_null(TEXT)}),
        "split": an_object({"percent": NUMBER, "limits": _LIMITS}),
        "concurrency": an_object(
            {"name": TEXT, "slots": WHOLE, "slot_lease": SECONDS, "switched": or_null(MODE)}
        ),
        "meter": an_object(
            {"name": TEXT, "meter": TEXT, "plan_by": or_null(TEXT), "on_failure": TEXT,
             "switched": or_null(MODE)}
        ),
        "lease": {"anyOf": [FLAG, an_object({"horizon": SECONDS})]},
        "schedule": a_list(
            an_object({"days": a_list(TEXT), "from": TEXT, "to": TEXT, "zone": TEXT,
                       "limits": _LIMITS})
        ),
    },
)  # fmt: skip
_HOLDERS = a_list(
    an_object({"instance": TEXT, "units": WHOLE, "demand": WHOLE, "expires": SECONDS})
)
_COUNTED = an_object(
    {
        "descriptor": a_list(a_list(TEXT, minItems=2, maxItems=2)),
        "rule": or_null(TEXT),
        "reason": TEXT,
        "shadow": FLAG,
        "limits": a_list(
            an_object(
                {"name": TEXT, "limit": LIMIT_TEXT, "allowed": FLAG, "remaining": WHOLE,
                 "retry_after": or_null(SECONDS), "reset_after": SECONDS, "overridden": FLAG,
                 "degraded": FLAG, "holders": or_null(_HOLDERS)}
            )
        ),
    }
)  # fmt: skip
_DESCRIPTORS = {"descriptors": a_list(PAIRS, minItems=1)}
_WHICH_COUNTERS = {
    "domain": NAME, "limit": {**NAME, "description": "Only the limit with this name."},
}  # fmt: skip
_COUNTS = a_list(or_null(WHOLE))
_SERIES = an_object(
    {"start": WHOLE, "width": WHOLE, "allowed": _COUNTS, "near_limit": _COUNTS, "refused": _COUNTS,
     "shadowed": _COUNTS, "degraded": _COUNTS}
)  # fmt: skip
_WORKERS = {"workers": {"type": "integer", "minimum": 1}}


def _changed(value: Schema, **more: Schema) -> Schema:
    return an_object({"before": value, "after": value, **_WORKERS}, more)


# Responses and requests, by name.
SCHEMAS: dict[str, Schema] = {
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {"error": TEXT, "problems": a_list(TEXT), "workers": a_list({})},
    },
    "Rules": an_object(
        {
            "files": a_list(TEXT),
            "domains": a_list(
                an_object({"domain": TEXT, "rules": a_list(_RULE), "allow": a_map(a_list(TEXT)),
                           "deny": a_map(a_list(TEXT))})
            ),
        }
    ),
    "Reloaded": an_object({"domains": a_list(TEXT), "rules": WHOLE, **_WORKERS}),
    "Health": an_object(
        {"healthy": FLAG, "components": a_map({"type": "string", "enum": ["up", "down"]})},
        {"rules": an_object(
            {"instance": TEXT, "source": {"type": "string", "enum": ["files", "store"]},
             "number": or_null(WHOLE), "rejected": or_null(TEXT), "control": TEXT,
             "age": or_null(SECONDS), "revision": WHOLE, "reason": or_null(TEXT)}
        )},
    ),
    "Version": {
        "type": "object",
        "required": ["version", "core", "uptime", "rules"],
        "properties": {"version": TEXT, "core": TEXT, "uptime": SECONDS, "rules": WHOLE,
                       "domains": a_list(TEXT)},
    },
    "Store": an_object(
        {
            "store": or_null(TEXT),
            "leases": or_null(
                an_object(
                    {"keys": WHOLE, "units": WHOLE, "decided_here": WHOLE,
                     "decided_directly": WHOLE, "calls": WHOLE, "failures": WHOLE,
                     "granted": WHOLE, "returned": WHOLE, "lapsed": WHOLE, "stretched": WHOLE}
                )
            ),
        }
    ),
    "Leases": an_object(
        {
            "total": WHOLE,
            "keys": a_list(
                an_object({"limit": LIMIT_TEXT, "key": TEXT, "units": WHOLE, "demand": WHOLE,
                           "holders": _HOLDERS})
            ),
        }
    ),
    "Balance": an_object(
        {
            "account": TEXT, "plan": or_null(TEXT), "tz": TEXT,
            "meters": a_map(
                an_object(
                    {
                        "available": WHOLE, "held": WHOLE, "remaining": WHOLE, "overdraft": WHOLE,
                        "period": or_null(
                            an_object(
                                {
                                    "starts": TEXT, "ends": TEXT, "amount": WHOLE, "used": WHOLE,
                                    "uncovered": WHOLE,
                                }
                            )
                        ),
                        "runs_out": or_null(TEXT),
                    }
                )
            ),
        }
    ),
    "Quotas": an_object(
        {
            "degraded": FLAG,
            "total": WHOLE,
            "buckets": a_list(
                an_object(
                    {
                        "domain": TEXT, "bucket": a_map(TEXT), "rule": or_null(TEXT), "node": TEXT,
                        "assignment": {
                            "type": "string", "enum": ["token_bucket", "allow", "deny", "none"]
                        },
                        "expires_in": or_null(SECONDS),
                        "proven": FLAG,
                        "divided": or_null(
                            an_object(
                                {"demand": SECONDS, "share": SECONDS, "rate": SECONDS,
                                 "burst": WHOLE, "nodes": WHOLE, "total_demand": SECONDS,
                                 "limit_rate": SECONDS, "limit_burst": WHOLE,
                                 "assigned_rate": SECONDS, "assigned_burst": WHOLE}
                            )
                        ),
                    }
                )
            ),
        }
    ),
    "Who": an_object(
        {"rules": a_list(
            an_object({"domain": TEXT, "rule": or_null(TEXT), "mode": or_null(MODE),
                       "pairs": _COUNTED["properties"]["descriptor"], "needs": a_list(TEXT),
                       "limits": _COUNTED["properties"]["limits"], "reason": TEXT,
                       "refused": or_null(an_object(
                           {"since": NUMBER, "last": NUMBER, "count": WHOLE, "reason": TEXT,
                            "limit": or_null(LIMIT_TEXT)}))})
        )}
    ),
    "Changes": an_object(
        {"changes": a_list(
            an_object({"number": WHOLE, "at": NUMBER, "who": TEXT, "why": TEXT, "what": TEXT,
                       "before": or_null(TEXT), "after": or_null(TEXT),
                       "lasts": or_null(SECONDS), "can_undo": FLAG})
        )}
    ),
    "Undone": _changed(or_null(TEXT)),
    "Counters": an_object({"counters": a_list(_COUNTED)}),
    "ChangedCounters": an_object({"before": a_list(_COUNTED), "after": a_list(_COUNTED)}),
    "Switches": an_object(
        {"mode": MODE, "mode_left": or_null(SECONDS), "modes": a_map(MODE),
         "modes_left": a_map(or_null(SECONDS)), "overrides": a_list(_OVERRIDE),
         "allow": a_list(_ENTRY), "deny": a_list(_ENTRY), "logged": a_list(_LOGGED)},
        {"notes": a_map(an_object(_NOTES))},
    ),
    "ChangedMode": _changed(or_null(MODE), in_force=MODE),
    "Overrides": an_object({"overrides": a_list(_OVERRIDE)}),
    "ChangedOverride": _changed(or_null(_OVERRIDE)),
    "Entries": an_object({"entries": a_list(_ENTRY)}),
    "ChangedEntry": _changed(or_null(_ENTRY)),
    "Log": an_object(
        {"logged": a_list(_LOGGED), "left_out": WHOLE, "decisions": a_list(
            {"type": "object", "required": ["number", "worker", "at", "decision", "domain", "keys"]}
        )}
    ),
    "ChangedLog": _changed(or_null(_LOGGED)),
    "Instances": an_object({"instances": a_map(
        {"type": "object", "required": ["number", "rejected", "revision", "workers", "since"]}
    )}),
    "LogLevel": an_object({"level": LEVEL}),
    "ChangedLevel": _changed(LEVEL),
    "Top": {"type": "object"},
    "Nothing": an_object({}),
    "Session": an_object(
        {"name": TEXT, "role": {"type": "string", "enum": list(ROLES)}, "left": or_null(SECONDS)}
    ),
    "RuleFiles": an_object(
        {"files": a_map(TEXT), "revision": WHOLE, "kept": FLAG,
         "source": {"type": "string", "enum": ["files", "store"]}}
    ),
    "ChangedRules": an_object(
        {"before": or_null(TEXT), "after": TEXT, "revision": WHOLE, **_WORKERS}
    ),
    "Trial": an_object(
        {"changes": TEXT, "requests": WHOLE, "first": NUMBER, "last": NUMBER, "unknown": WHOLE,
         "refused_before": WHOLE, "refused_after": WHOLE, "newly_refused": WHOLE,
         "newly_allowed": WHOLE, "keys_changed": WHOLE,
         "rules": a_list(
             an_object({"rule": TEXT, "asked_before": WHOLE, "refused_before": WHOLE,
                        "keys_before": WHOLE, "asked_after": WHOLE, "refused_after": WHOLE,
                        "keys_after": WHOLE})
         ),
         "keys": a_list(an_object({"rule": TEXT, "key": TEXT, "before": WHOLE, "after": WHOLE}))}
    ),
    "History": _SERIES,
    "Overview": an_object(
        {
            "second": WHOLE, "complete": FLAG, "totals": _SERIES,
            "rules": a_list(
                an_object(
                    {"rule": TEXT, "domain": TEXT, "limits": a_list(LIMIT_TEXT), "line": TEXT,
                     "mode": MODE, "overrides": WHOLE, "rate": NUMBER, "refused_rate": NUMBER,
                     "asked": WHOLE, "refused": WHOLE, "shadowed": WHOLE, "near_limit": WHOLE,
                     "degraded": WHOLE, "since": or_null(WHOLE), "keys": a_list(a_list({})),
                     "more_keys": WHOLE},
                    {"spark": a_list(a_list(WHOLE))},
                )
            ),
        }
    ),
    # Requests.
    "AskSession": an_object({"token": NAME}),
    "AskTryRules": an_object({"files": {"type": "object"}}),
    "AskPutRules": an_object({"files": {"type": "object"}}, {"why": WHY, "expect": EXPECT}),
    "AskCounters": an_object(_DESCRIPTORS, _WHICH_COUNTERS),
    "AskRefund": an_object(_DESCRIPTORS, {
        **_WHICH_COUNTERS,
        "hits": {"type": "integer", "minimum": 1, "default": 1,
                 "description": "How many requests to refund."},
    }),
    "AskMode": an_object(
        {"mode": MODE},
        {"name": {**NAME, "description": "A rule's id or a limit's name; if omitted, for all."},
         "lasts": LASTS, "why": WHY, "expect": EXPECT},
    ),
    "AskOverride": an_object(
        {"key": NAME, "value": TEXT},
        {"factor": {"type": "number", "exclusiveMinimum": 0, "maximum": 1e9},
         "limit": LIMIT_TEXT, "lasts": LASTS, "why": WHY, "expect": EXPECT},
    ),
    "AskEntry": an_object(
        {"key": NAME, "entry": TEXT}, {"lasts": LASTS, "why": WHY, "expect": EXPECT}
    ),
    "AskLog": an_object(
        {"key": NAME, "value": TEXT}, {"lasts": LASTS, "why": WHY, "expect": EXPECT}
    ),
    "AskUndo": an_object({"number": {"type": "integer", "minimum": 1}}, {"why": WHY}),
    "AskLogLevel": an_object({"level": LEVEL}),
}  # fmt: skip
