"""The OpenAPI document of the admin API, made from the table of endpoints."""

from __future__ import annotations

from typing import Any

from penstock._version import __version__
from penstock.admin.endpoints import ENDPOINTS, TEXT, Endpoint, Query
from penstock.admin.schemas import SCHEMAS, ref

# Every endpoint: an invalid request, denied, locked out, or a worker failed.
_ALWAYS = (400, 401, 403, 429, 500, 504)
_DESCRIPTIONS = {
    400: "The request is invalid; the error says why.",
    401: "A token is required, or it is invalid.",
    403: "Host is not a name of this host, or the request is from a page of another site.",
    404: "There is nothing with that name.",
    409: "There are too many already.",
    422: "The rules are invalid; all problems are listed, and the old rules stay in force.",
    429: "Too many failures: locked out for a while.",
    500: "Some workers failed, or the change could not be recorded.",
    501: "This service was started without this feature.",
    503: "The store, or a component, does not answer.",
    504: "A worker did not answer in time.",
}


def document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock admin API",
            "version": __version__,
            "description": "For operators. No token is needed from this host, one is from"
            " elsewhere.",
        },
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**SCHEMAS, "OpenApi": {"type": "object"}},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.does,
        "summary": endpoint.summary,
        "responses": {"200": _answer(endpoint.answers, "Done.")},
    }
    for status in sorted({*_ALWAYS, *endpoint.statuses}):
        shape = "Error"
        if status in (500, 503) and endpoint.does in ("healthcheck", "health"):
            shape = endpoint.answers
        operation["responses"][str(status)] = _answer(shape, _DESCRIPTIONS[status])
    if endpoint.query:
        operation["parameters"] = [_parameter(each) for each in endpoint.query]
    if endpoint.asks is not None:
        content = {"application/json": {"schema": ref(endpoint.asks)}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _answer(shape: str, description: str) -> dict[str, Any]:
    if shape == TEXT:
        content: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
    else:
        content = {"application/json": {"schema": ref(shape)}}
    return {"description": description, "content": content}


def _parameter(query: Query) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": query.kind}
    if query.many:
        schema = {"type": "array", "items": schema}
    return {
        "name": query.name,
        "in": "query",
        "required": query.required,
        "description": query.help,
        "schema": schema,
    }
