"""The OpenAPI document of the HTTP wire, served at /openapi.json."""

from __future__ import annotations

from typing import Any

from penstock._version import __version__

PAIRS: dict[str, Any] = {
    "oneOf": [
        {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string"}},
        {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "array",
                "minItems": 2,
                "maxItems": 2,
                "items": {"type": "string"},
            },
        },
    ]
}
SCHEMAS: dict[str, Any] = {
    "Pairs": {
        "description": "Keys and values, in order. Use a list of pairs if a key occurs twice.",
        **PAIRS,
    },
    "Descriptor": {
        "anyOf": [
            {"$ref": "#/components/schemas/Pairs"},
            {
                "type": "object",
                "required": ["pairs"],
                "additionalProperties": False,
                "properties": {
                    "pairs": {"$ref": "#/components/schemas/Pairs"},
                    "limit": {
                        "type": "string",
                        "description": "Instead of the rule's, such as 5/minute",
                    },
                    "hits": {
                        "type": "integer",
                        "description": "0 only checks, below 0 gives back (--http-refunds)",
                    },
                },
            },
        ]
    },
    "Check": {
        "type": "object",
        "required": ["descriptors"],
        "additionalProperties": False,
        "properties": {
            "domain": {
                "type": "string",
                "description": "May be omitted if the rules have one",
            },
            "descriptors": {
                "type": "array",
                "minItems": 1,
                "maxItems": 100,
                "items": {"$ref": "#/components/schemas/Descriptor"},
            },
            "hits": {"type": "integer", "default": 1},
        },
    },
    "Checks": {
        "type": "object",
        "required": ["checks"],
        "properties": {
            "checks": {
                "type": "array",
                "minItems": 1,
                "maxItems": 1000,
                "items": {"$ref": "#/components/schemas/Check"},
            }
        },
    },
    "Status": {
        "type": "object",
        "required": ["descriptor", "allowed", "reason"],
        "additionalProperties": False,
        "properties": {
            "descriptor": {"type": "array"},
            "allowed": {"type": "boolean"},
            "reason": {
                "type": "string",
                "description": "limit, unmatched, unlimited, allow list, deny list, ...",
            },
            "rule": {"type": "string"},
            "shadow": {"type": "boolean"},
            "degraded": {"type": "boolean"},
            "limit": {
                "type": "object",
                "required": ["text", "amount", "period", "burst"],
                "properties": {
                    "name": {"type": ["string", "null"]},
                    "text": {"type": "string"},
                    "amount": {"type": "integer"},
                    "period": {"type": "number", "description": "Seconds"},
                    "burst": {"type": "integer"},
                },
            },
            "remaining": {"type": "integer"},
            "retry_after": {"type": ["number", "null"]},
            "reset": {"type": "integer", "description": "Seconds"},
        },
    },
    "Verdict": {
        "type": "object",
        "required": ["allowed", "retry_after", "statuses"],
        "additionalProperties": False,
        "properties": {
            "allowed": {"type": "boolean"},
            "retry_after": {
                "type": ["number", "null"],
                "description": "Seconds until the same request would be allowed; null if never",
            },
            "statuses": {"type": "array", "items": {"$ref": "#/components/schemas/Status"}},
        },
    },
    "Verdicts": {
        "type": "object",
        "required": ["results"],
        "properties": {
            "results": {"type": "array", "items": {"$ref": "#/components/schemas/Verdict"}}
        },
    },
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"type": "string"}},
    },
}


def _json(*names: str) -> dict[str, Any]:
    schemas = [{"$ref": f"#/components/schemas/{name}"} for name in names]
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {"application/json": {"schema": schema}}


ERROR = {"description": "What is wrong, and where", "content": _json("Error")}
ANY = {"application/json": {"schema": {"type": "object"}}}

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
                    "200": {
                        "description": "Allowed; the verdicts, for many",
                        "content": _json("Verdict", "Verdicts"),
                    },
                    "429": {"description": "Refused", "content": _json("Verdict")},
                    "400": ERROR,
                    "403": {
                        "description": "Hits below 0, without --http-refunds",
                        "content": _json("Error"),
                    },
                    "413": {
                        "description": "More than 1000 checks, or descriptors in all of them",
                        "content": _json("Error"),
                    },
                },
            }
        },
        "/v1/auth": {
            "get": {
                "summary": "Forward auth for nginx, Traefik and Caddy",
                "description": "Any method. X-Original-* or X-Forwarded-* headers of a trusted"
                " proxy describe the original request.",
                "parameters": [
                    {"name": "domain", "in": "query", "schema": {"type": "string"}},
                    {
                        "name": "refuse",
                        "in": "query",
                        "description": "The status of a refusal; nginx needs 403",
                        "schema": {"type": "integer", "enum": [401, 403, 429], "default": 429},
                    },
                ],
                "responses": {
                    "200": {"description": "Go ahead"},
                    "429": {"description": "Refused", "content": _json("Error")},
                    "401": {"description": "Refused, if configured", "content": _json("Error")},
                    "403": {"description": "Denied, or not a trusted proxy", "content": ANY},
                    "400": ERROR,
                },
            }
        },
        "/json": {
            "post": {
                "summary": "Envoy's RateLimitRequest and RateLimitResponse as proto-JSON",
                "requestBody": {"required": True, "content": ANY},
                "responses": {
                    "200": {"description": "OK", "content": ANY},
                    "429": {"description": "OVER_LIMIT", "content": ANY},
                    "400": {"description": "An error, as text"},
                    "403": {"description": "isNegativeHits, without --http-refunds"},
                    "500": {"description": "An error, as text"},
                },
            }
        },
        "/healthcheck": {
            "get": {
                "summary": "Whether the service is healthy",
                "responses": {
                    "200": {"description": "OK, as text"},
                    "500": {"description": "Unhealthy, as text"},
                },
            }
        },
        "/openapi.json": {
            "get": {
                "summary": "This document",
                "responses": {"200": {"description": "OpenAPI 3.1", "content": ANY}},
            }
        },
    },
    "components": {"schemas": SCHEMAS},
}
