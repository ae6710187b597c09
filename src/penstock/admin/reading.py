"""What was asked, from a URL or a body, checked by the schema that the document shows."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

from penstock.admin.endpoints import Endpoint, Query
from penstock.admin.errors import Refused
from penstock.admin.schemas import PAIRS, SCHEMAS, Schema
from penstock.errors import PenstockError
from penstock.rules.deciding.verdict import check_pairs
from penstock.wires.http.messages import HttpRequest

MOST_FIELDS = 200
MOST_DESCRIPTORS = 100

_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "a text"),
    "number": ((int, float), "a number"),
    "integer": ((int,), "a whole number"),
    "array": ((list,), "a list"),
    "object": ((dict,), "an object"),
    "null": ((type(None),), "null"),
}


def asked_of(endpoint: Endpoint, request: HttpRequest) -> dict[str, Any]:
    """By name; what is not known here is an error, as is what is missing."""
    given = from_query(endpoint.query, request.query)
    if endpoint.asks is None:
        return given
    try:
        body = json.loads(request.body or b"null", parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}") from None
    check(body, SCHEMAS[endpoint.asks], "the body")
    if "descriptors" in body:
        if len(body["descriptors"]) > MOST_DESCRIPTORS:
            raise Refused(400, f"at most {MOST_DESCRIPTORS} descriptors at once")
        body["descriptors"] = [pairs_of(each) for each in body["descriptors"]]
    found: dict[str, Any] = body
    return found


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")


def from_query(known: tuple[Query, ...], text: str) -> dict[str, Any]:
    try:
        # The wire hands bytes on as Latin-1; a URL may hold UTF-8 as it is.
        plain = text.encode("latin-1").decode("utf-8")
        given = parse_qs(
            plain, keep_blank_values=True, strict_parsing=bool(plain), errors="strict",
            max_num_fields=MOST_FIELDS,
        )  # fmt: skip
    except ValueError as error:
        raise Refused(400, f"the query cannot be read: {error}") from None
    names = {query.name: query for query in known}
    for name in given:
        if name not in names:
            there = f"there is {', '.join(names)}" if names else "there are none here"
            raise Refused(400, f"no parameter {name!r:.100}: {there}")
    asked: dict[str, Any] = {}
    for name, query in names.items():
        values = given.get(name, [])
        if not values:
            if query.required:
                raise Refused(400, f"the parameter {name} is missing")
        elif query.many:
            asked[name] = values
        elif len(values) > 1:
            raise Refused(400, f"the parameter {name} was given {len(values)} times")
        else:
            asked[name] = _whole(name, values[0]) if query.kind == "integer" else values[0]
    return asked


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Refused(400, f"{name} is a whole number, not {text!r:.50}")
    return int(text)


def check(value: Any, schema: Schema, where: str) -> None:
    """The part of JSON Schema that `SCHEMAS` needs for what is asked."""
    if schema is PAIRS:
        return  # `pairs_of` says more
    if "anyOf" in schema:
        kinds = [each["type"] for each in schema["anyOf"]]
        if not any(_is(value, kind) for kind in kinds):
            raise Refused(400, f"{where} is {' or '.join(_KINDS[kind][1] for kind in kinds)}")
        return
    kind = schema["type"]
    if not _is(value, kind):
        raise Refused(400, f"{where} is {_KINDS[kind][1]}, not {value!r:.100}")
    if "enum" in schema and value not in schema["enum"]:
        raise Refused(400, f"{where} is one of {', '.join(schema['enum'])}, not {value!r:.100}")
    if kind == "string" and len(value) < schema.get("minLength", 0):
        raise Refused(400, f"{where} is empty")
    if kind in ("number", "integer"):
        _check_number(value, schema, where)
    if kind == "array":
        if len(value) < schema.get("minItems", 0):
            raise Refused(400, f"{where} is empty")
        for at, each in enumerate(value):
            check(each, schema["items"], f"{where}[{at}]")
    if kind == "object":
        _check_object(value, schema, where)


def _check_number(value: float, schema: Schema, where: str) -> None:
    above, least = schema.get("exclusiveMinimum"), schema.get("minimum")
    most = schema.get("maximum", 2**53)
    if above is not None and not value > above:
        raise Refused(400, f"{where} is above {above}, not {value!r:.50}")
    if least is not None and not value >= least:
        raise Refused(400, f"{where} is at least {least}, not {value!r:.50}")
    if not value <= most:
        raise Refused(400, f"{where} is at most {most:g}, not {value!r:.50}")


def _check_object(value: dict[str, Any], schema: Schema, where: str) -> None:
    known = schema["properties"]
    unknown = sorted(value.keys() - known.keys())
    if unknown:
        raise Refused(400, f"{where} has {unknown[0]!r:.100}: there is {', '.join(known)}")
    for name in schema.get("required", ()):
        if name not in value:
            raise Refused(400, f"{where} lacks {name!r}")
    for name, each in value.items():
        check(each, known[name], name)


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _KINDS[kind][0]) and not isinstance(value, bool)


def pairs_of(asked: Any) -> list[list[str]]:
    """A descriptor from an object of texts or a list of pairs."""
    if isinstance(asked, list):
        asked = [tuple(pair) if isinstance(pair, list) else pair for pair in asked]
    elif not isinstance(asked, dict):
        raise Refused(400, f"a descriptor is an object of texts, not {asked!r:.100}")
    try:
        return [list(pair) for pair in check_pairs(asked)]
    except PenstockError as error:
        raise Refused(400, str(error)) from None


def pairs_in(text: str) -> list[list[str]]:
    """A descriptor from a URL: ``plan=free,user=42``, or JSON."""
    if text.startswith(("{", "[")):
        try:
            return pairs_of(json.loads(text))
        except (ValueError, RecursionError):
            raise Refused(400, f"the descriptor {text!r:.100} is not JSON") from None
    made = []
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise Refused(400, f"a descriptor is key=value,key=value, not {text!r:.100}")
        made.append([key, value])
    return made
