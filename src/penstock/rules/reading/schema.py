"""A JSON Schema of rules files, for editors: made from the table that the parser reads by.

``python -m penstock.rules.reading.schema`` writes it to ``schema.json`` beside this file. It says
less than the parser: what a limit or a time zone must look like, and what fits together,
only that knows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.rules.reading import keywords
from penstock.rules.reading.keywords import DAYS, FILE, LIMIT_TEXT, SECTIONS, Keyword, Section

PATH = Path(__file__).with_name("schema.json")
_DRAFT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

# YAML sees a number or a truth value in some texts. Here they are texts all the same.
_TEXTS = ["string", "number", "boolean"]
_LIMIT_TEXT = {
    "type": "string",
    "pattern": LIMIT_TEXT,
    "examples": ["100/minute", "5 per 30s", "1000/hour burst 2000", "5/minute lockout 15m"],
}


def schema() -> Schema:
    """The whole schema."""
    parts = [section for section in SECTIONS.values() if section is not FILE]
    return {
        "$schema": _DRAFT,
        "title": "Rules of Penstock",
        "description": "Which limits apply to which requests; Envoy's rate limit files are valid.",
        **_mapping(FILE),
        "$defs": {
            **{section.name: _mapping(section) for section in parts},
            "one_limit": {"anyOf": [_LIMIT_TEXT, _ref("limit")]},
            "limits": {"anyOf": [_ref("one_limit"), _list(_ref("one_limit"), least=1)]},
            "tier": {"anyOf": [_ref("one_limit"), _list(_ref("one_limit"))]},
            "values": _list({"anyOf": [{"type": _TEXTS, "minLength": 1}, _ref("list_file")]}),
        },
    }


def _mapping(section: Section) -> Schema:
    found: Schema = {
        "type": "object",
        "properties": {keyword.name: _keyword(keyword) for keyword in section.keywords.values()},
        "additionalProperties": False,
    }
    if section.required:
        found["required"] = list(section.required)
    return found | _TOGETHER.get(section.name, {})


def _keyword(keyword: Keyword) -> Schema:
    """What a key takes. One that need not be there may also be empty."""
    takes = _kind(keyword)
    if keyword.required:
        return {"description": keyword.about, **takes}
    return {"description": keyword.about, "anyOf": [takes, {"type": "null"}]}


def _kind(keyword: Keyword) -> Schema:
    match keyword.kind:
        case keywords.TEXT:
            return _text(keyword)
        case keywords.WHOLE:
            return {"type": "integer", "minimum": keyword.least, "maximum": keyword.most}
        case keywords.NUMBER:
            return {"type": "number", "exclusiveMinimum": keyword.above, "maximum": keyword.most}
        case keywords.FLAG:
            return {"type": "boolean"}
        case keywords.MAPPING:
            return _ref(keyword.section)
        case keywords.LIST:
            return _list(_ref(keyword.section))
        case keywords.LIMITS:
            return _ref("limits")
        case keywords.LIMITS_BY_TIER:
            return _by_name(_ref("tier"), minProperties=1)
        case keywords.VALUES:
            return _ref("values")
        case keywords.VALUES_BY_KEY:
            return _by_name({"anyOf": [_ref("values"), {"type": "null"}]})
        case keywords.DAY_NAMES:
            return _list(_one_of((*DAYS, *(day[:3] for day in DAYS))), least=1)
        case keywords.GROUP:
            return {"anyOf": [{"const": "subnet"}, _ref(keyword.section)]}
        case keywords.ANYTHING:
            return {"type": "object"}
        case unknown:
            raise AssertionError(f"no schema for the kind {unknown!r}")


def _text(keyword: Keyword) -> Schema:
    if keyword.choices:
        return _one_of(keyword.choices) if keyword.any_case else {"enum": list(keyword.choices)}
    if keyword.pattern is not None:
        return {"type": "string", "pattern": keyword.pattern}
    return {"type": _TEXTS} if keyword.may_be_empty else {"type": _TEXTS, "minLength": 1}


def _one_of(choices: tuple[str, ...]) -> Schema:
    """In any case: a schema has no other way to say that."""
    either = ["".join(f"[{c.upper()}{c}]" for c in choice) for choice in choices]
    return {"type": "string", "pattern": f"^({'|'.join(either)})$", "examples": list(choices)}


def _list(items: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": items, **({"minItems": least} if least else {})}


def _by_name(inner: Schema, **more: Any) -> Schema:
    return {"type": "object", "additionalProperties": inner, **more}


def _ref(name: str | None) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _is_true(name: str) -> Schema:
    return {"properties": {name: {"const": True}}, "required": [name]}


# What keys of one mapping say of each other.
_TOGETHER: dict[str, Schema] = {
    "rate_limit": {
        "if": _is_true("unlimited"),
        "then": {"not": {"required": ["unit"]}},
        "else": {"required": ["unit", "requests_per_unit"]},
    },
    "step": {
        "if": _is_true("share_threshold"),
        "then": {"properties": {"value": {"pattern": r"\*"}}, "required": ["value"]},
    },
}


def text() -> str:
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    PATH.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
