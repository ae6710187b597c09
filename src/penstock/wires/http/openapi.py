"""The OpenAPI document of the HTTP wire, served at /openapi.json."""

from __future__ import annotations

from typing import Any

from penstock._version import __version__
from penstock.wires.http.check import MOST_IN_ALL
from penstock.wires.http.check_request import MOST_DESCRIPTORS

Schema = dict[str, Any]


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def _object(properties: Schema, *required: str, **more: Any) -> Schema:
    return {"type": "object", "required": list(required), "properties": properties, **more}


def _closed(properties: Schema, *required: str) -> Schema:
    """An object without other properties."""
    return _object(properties, *required, additionalProperties=False)


def _about(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


TEXT, FLAG, WHOLE, NUMBER = ({"type": t} for t in ("string", "boolean", "integer", "number"))
SECONDS_OR_NULL = {"type": ["number", "null"]}

SCHEMAS: dict[str, Schema] = {
    "Pairs": {
        "description": "Keys and values, in order. Use a list of pairs if a key occurs twice.",
        "oneOf": [
            {"type": "object", "minProperties": 1, "additionalProperties": TEXT},
            _list(_list(TEXT, minItems=2, maxItems=2), minItems=1),
        ],
    },
    "Entries": _list(_closed({"key": TEXT, "value": TEXT}, "key"), minItems=1),
    "Descriptor": {
        "anyOf": [
            _ref("Pairs"),
            _ref("Entries"),
            _closed(
                {
                    "pairs": _ref("Pairs"),
                    "limit": _about(TEXT, "Instead of the rule's, such as 5/minute"),
                    "hits": _about(WHOLE, "0 only checks, below 0 gives back (--http-refunds)"),
                },
                "pairs",
            ),
            _closed({"entries": _ref("Entries"), "limit": TEXT, "hits": WHOLE}, "entries"),
        ]
    },
    "Check": _closed(
        {
            "domain": _about(TEXT, "May be omitted if the rules have one"),
            "descriptors": _list(_ref("Descriptor"), minItems=1, maxItems=MOST_DESCRIPTORS),
            "hits": {**WHOLE, "default": 1},
        },
        "descriptors",
    ),
    "Checks": _object({"checks": _list(_ref("Check"), minItems=1, maxItems=MOST_IN_ALL)}, "checks"),
    "Status": _closed(
        {
            "descriptor": {"type": "array"},
            "allowed": FLAG,
            "reason": _about(TEXT, "limit, unmatched, unlimited, allow list, deny list, ..."),
            "rule": TEXT,
            "shadow": FLAG,
            "degraded": FLAG,
            "limit": _object(
                {
                    "name": {"type": ["string", "null"]},
                    "text": TEXT,
                    "amount": WHOLE,
                    "period": _about(NUMBER, "Seconds"),
                    "burst": WHOLE,
                },
                *("text", "amount", "period", "burst"),
            ),
            "remaining": WHOLE,
            "retry_after": SECONDS_OR_NULL,
            "reset": _about(WHOLE, "Seconds"),
        },
        *("descriptor", "allowed", "reason"),
    ),
    "Verdict": _closed(
        {
            "allowed": FLAG,
            "retry_after": _about(
                SECONDS_OR_NULL, "Seconds until the same request would be allowed; null if never"
            ),
            "statuses": _list(_ref("Status")),
            "lease": _about(
                TEXT, "For /v1/release, if a rule with concurrency allowed the request"
            ),
            "warning": _about(TEXT, "No rule has the domain of this check"),
        },
        *("allowed", "retry_after", "statuses"),
    ),
    "Release": _closed({"lease": TEXT}, "lease"),
    "Released": _object(
        {"released": _about(FLAG, "False if it was released before, or has expired")}, "released"
    ),
    "Verdicts": _object({"results": _list(_ref("Verdict"))}, "results"),
    "Error": _object({"error": TEXT}, "error"),
}


def _json(*names: str) -> Schema:
    schemas = [_ref(name) for name in names]
    return {"application/json": {"schema": schemas[0] if len(names) == 1 else {"anyOf": schemas}}}


ANY = {"application/json": {"schema": {"type": "object"}}}


def _answer(description: str, content: Schema | None = None) -> Schema:
    return (
        {"description": description}
        if content is None
        else _about({"content": content}, description)
    )


ERROR = _answer("What is wrong, and where", _json("Error"))

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {
        "title": "Penstock",
        "version": __version__,
        "description": "Rate limits as a service: may this go ahead?",
    },
    "paths": {
        "/v1/check": {
            "post": {
                "summary": "Decide and count: one check, or many independent ones",
                "requestBody": {"required": True, "content": _json("Check", "Checks")},
                "responses": {
                    "200": _answer("Allowed; the verdicts, for many", _json("Verdict", "Verdicts")),
                    "429": _answer("Refused", _json("Verdict")),
                    "400": ERROR,
                    "403": _answer("Hits below 0, without --http-refunds", _json("Error")),
                    "413": _answer(
                        f"More than {MOST_IN_ALL} checks, or descriptors in all of them",
                        _json("Error"),
                    ),
                },
            }
        },
        "/v1/release": {
            "post": {
                "summary": "Free the slots of a request that has ended",
                "requestBody": {"required": True, "content": _json("Release")},
                "responses": {
                    "200": _answer(
                        "They are free. Repeating it changes nothing", _json("Released")
                    ),
                    "400": ERROR,
                    "404": _answer("No lease of this service", _json("Error")),
                    "503": _answer("The store failed", _json("Error")),
                },
            }
        },
        "/v1/auth": {
            "get": {
                "summary": "Forward auth for nginx, Traefik and Caddy",
                "description": "Any method. X-Original-* or X-Forwarded-* headers of a trusted"
                " proxy describe the original request.",
                "parameters": [
                    {"name": "domain", "in": "query", "schema": TEXT},
                    {
                        "name": "refuse",
                        "in": "query",
                        "description": "The status of a refusal; nginx needs 403",
                        "schema": {**WHOLE, "enum": [401, 403, 429], "default": 429},
                    },
                ],
                "responses": {
                    "200": _answer("Go ahead"),
                    "429": _answer("Refused", _json("Error")),
                    "401": _answer("Refused, if configured", _json("Error")),
                    "403": _answer("Denied, or not a trusted proxy", ANY),
                    "400": ERROR,
                },
            }
        },
        "/json": {
            "post": {
                "summary": "Envoy's RateLimitRequest and RateLimitResponse as proto-JSON",
                "requestBody": {"required": True, "content": ANY},
                "responses": {
                    "200": _answer("OK", ANY),
                    "429": _answer("OVER_LIMIT", ANY),
                    "400": _answer("An error, as text"),
                    "403": _answer("isNegativeHits, without --http-refunds"),
                    "500": _answer("An error, as text"),
                },
            }
        },
        "/healthcheck": {
            "get": {
                "summary": "Whether the service is healthy",
                "responses": {
                    "200": _answer("OK, as text"),
                    "500": _answer("Unhealthy, as text"),
                },
            }
        },
        "/openapi.json": {
            "get": {
                "summary": "This document",
                "responses": {"200": _answer("OpenAPI 3.1", ANY)},
            }
        },
    },
    "components": {"schemas": SCHEMAS},
}
