"""The parameters of a request, from its URL or body, checked against the OpenAPI schema."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

from penstock.admin.endpoints import Endpoint, Query
from penstock.admin.errors import RequestRejected
from penstock.admin.schemas import PAIRS, SCHEMAS, Schema
from penstock.errors import PenstockError
from penstock.rules.deciding.verdict import check_pairs
from penstock.wires.http.messages import HttpRequest

MOST_FIELDS = 200
MOST_DESCRIPTORS = 100

_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "a string"),
    "number": ((int, float), "a number"),
    "integer": ((int,), "a whole number"),
    "array": ((list,), "a list"),
    "object": ((dict,), "an object"),
    "null": ((type(None),), "null"),
}


def parameters_of(endpoint: Endpoint, request: HttpRequest) -> dict[str, Any]:
    """Parameters by name; unknown and missing ones are errors."""
    from_url = from_query(endpoint.query, request.query)
    if endpoint.asks is None:
        return from_url
    try:
        body = json.loads(request.body or b"null", parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise RequestRejected(400, f"the body is not JSON: {error}") from None
    check(body, SCHEMAS[endpoint.asks], "the body")
    if "descriptors" in body:
        if len(body["descriptors"]) > MOST_DESCRIPTORS:
            raise RequestRejected(400, f"at most {MOST_DESCRIPTORS} descriptors at once")
        body["descriptors"] = [pairs_of(each) for each in body["descriptors"]]
    parameters: dict[str, Any] = body
    return parameters


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def from_query(known: tuple[Query, ...], text: str) -> dict[str, Any]:
    try:
        # The wire decodes bytes as Latin-1; a URL may contain UTF-8.
        plain = text.encode("latin-1").decode("utf-8")
        by_name = parse_qs(
            plain, keep_blank_values=True, strict_parsing=bool(plain), errors="strict",
            max_num_fields=MOST_FIELDS,
        )  # fmt: skip
    except ValueError as error:
        raise RequestRejected(400, f"the query cannot be read: {error}") from None
    names = {query.name: query for query in known}
    for name in by_name:
        if name not in names:
            known_names = f"use {', '.join(names)}" if names else "there are none here"
            raise RequestRejected(400, f"unknown parameter {name!r:.100}: {known_names}")
    parameters: dict[str, Any] = {}
    for name, query in names.items():
        values = by_name.get(name, [])
        if not values:
            if query.required:
                raise RequestRejected(400, f"the parameter {name} is missing")
        elif query.many:
            parameters[name] = values
        elif len(values) > 1:
            raise RequestRejected(400, f"the parameter {name} was given {len(values)} times")
        else:
            parameters[name] = _whole(name, values[0]) if query.kind == "integer" else values[0]
    return parameters


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise RequestRejected(400, f"{name} must be a whole number, not {text!r:.50}")
    return int(text)


def check(value: Any, schema: Schema, where: str) -> None:
    """The part of JSON Schema that `SCHEMAS` needs for requests."""
    if schema is PAIRS:
        return  # `pairs_of` gives better messages
    if "anyOf" in schema:
        kinds = [each["type"] for each in schema["anyOf"]]
        if not any(_is(value, kind) for kind in kinds):
            raise RequestRejected(
                400, f"{where} must be {' or '.join(_KINDS[kind][1] for kind in kinds)}"
            )
        return
    kind = schema["type"]
    if not _is(value, kind):
        raise RequestRejected(400, f"{where} must be {_KINDS[kind][1]}, not {value!r:.100}")
    if "enum" in schema and value not in schema["enum"]:
        raise RequestRejected(
            400, f"{where} must be one of {', '.join(schema['enum'])}, not {value!r:.100}"
        )
    if kind == "string" and len(value) < schema.get("minLength", 0):
        raise RequestRejected(400, f"{where} must not be empty")
    if kind in ("number", "integer"):
        _check_number(value, schema, where)
    if kind == "array":
        if len(value) < schema.get("minItems", 0):
            raise RequestRejected(400, f"{where} must not be empty")
        for at, each in enumerate(value):
            check(each, schema["items"], f"{where}[{at}]")
    if kind == "object":
        _check_object(value, schema, where)


def _check_number(value: float, schema: Schema, where: str) -> None:
    above, least = schema.get("exclusiveMinimum"), schema.get("minimum")
    most = schema.get("maximum", 2**53)
    if above is not None and not value > above:
        raise RequestRejected(400, f"{where} must be above {above}, not {value!r:.50}")
    if least is not None and not value >= least:
        raise RequestRejected(400, f"{where} must be at least {least}, not {value!r:.50}")
    if not value <= most:
        raise RequestRejected(400, f"{where} must be at most {most:g}, not {value!r:.50}")


def _check_object(value: dict[str, Any], schema: Schema, where: str) -> None:
    if "properties" not in schema:
        return
    known = schema["properties"]
    unknown = sorted(value.keys() - known.keys())
    if unknown:
        raise RequestRejected(
            400, f"{where} has unknown {unknown[0]!r:.100}: use {', '.join(known)}"
        )
    for name in schema.get("required", ()):
        if name not in value:
            raise RequestRejected(400, f"{where} needs {name!r}")
    for name, each in value.items():
        check(each, known[name], name)


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _KINDS[kind][0]) and not isinstance(value, bool)


def pairs_of(descriptor: Any) -> list[list[str]]:
    """The pairs of a descriptor, from an object of strings or a list of pairs."""
    if isinstance(descriptor, list):
        descriptor = [tuple(pair) if isinstance(pair, list) else pair for pair in descriptor]
    elif not isinstance(descriptor, dict):
        raise RequestRejected(400, f"a descriptor must be an object, not {descriptor!r:.100}")
    try:
        return [list(pair) for pair in check_pairs(descriptor)]
    except PenstockError as error:
        raise RequestRejected(400, str(error)) from None


def numbers_in(text: str) -> dict[str, int]:
    """The numbers of workers in a URL: ``0:17,1:9``."""
    numbers = {}
    for part in filter(None, text.split(",")):
        name, colon, number = part.rpartition(":")
        if not colon:
            raise RequestRejected(400, f"after is worker:number,worker:number, not {text!r:.100}")
        numbers[name] = _whole("after", number)
    return numbers


def pairs_in(text: str) -> list[list[str]]:
    """The pairs of a descriptor in a URL: ``plan=free,user=42``, or JSON."""
    if text.startswith(("{", "[")):
        try:
            return pairs_of(json.loads(text))
        except (ValueError, RecursionError):
            raise RequestRejected(400, f"the descriptor {text!r:.100} is not JSON") from None
    pairs = []
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise RequestRejected(400, f"a descriptor is key=value,key=value, not {text!r:.100}")
        pairs.append([key, value])
    return pairs
