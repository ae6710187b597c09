"""A JSON Schema of rules files, for editors, made from the table that the parser uses.

``python -m penstock.rules.reading.schema`` writes it to ``schema.json`` beside this file. It is
less strict than the parser, which alone knows what a limit or a time zone looks like, and which
keys fit together.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.rules.reading import keywords
from penstock.rules.reading.keywords import (
    ALLOWANCE_TEXT,
    DAYS,
    FILE,
    LIMIT_TEXT,
    SECTIONS,
    Keyword,
    Section,
)

PATH = Path(__file__).with_name("schema.json")
_DRAFT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

# YAML reads some texts as numbers or booleans. Here they are texts.
_TEXTS = ["string", "number", "boolean"]
_LIMIT_TEXT = {
    "type": "string",
    "pattern": LIMIT_TEXT,
    "examples": ["100/minute", "5 per 30s", "1000/hour burst 2000", "5/minute lockout 15m"],
}


_ALLOWANCE_TEXT = {
    "type": "string",
    "pattern": ALLOWANCE_TEXT,
    "examples": ["10000/month", "1M/month", "500/day"],
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
            "plan": _by_name(
                {"anyOf": [{"type": "integer", "minimum": 0}, _ALLOWANCE_TEXT, _ref("allowance")]},
                minProperties=1,
            ),
            "values": _list({"anyOf": [{"type": _TEXTS, "minLength": 1}, _ref("list_file")]}),
        },
    }


def _mapping(section: Section) -> Schema:
    mapping: Schema = {
        "type": "object",
        "properties": {keyword.name: _keyword(keyword) for keyword in section.keywords.values()},
        "additionalProperties": False,
    }
    if section.required:
        mapping["required"] = list(section.required)
    return mapping | _TOGETHER.get(section.name, {})


def _keyword(keyword: Keyword) -> Schema:
    """The value of a key. Optional keys may also be empty."""
    value = _KINDS[keyword.kind](keyword)
    if keyword.required:
        return {"description": keyword.about, **value}
    return {"description": keyword.about, "anyOf": [value, {"type": "null"}]}


def _text(keyword: Keyword) -> Schema:
    if keyword.choices:
        return _one_of(keyword.choices) if keyword.any_case else {"enum": list(keyword.choices)}
    if keyword.pattern is not None:
        return {"type": "string", "pattern": keyword.pattern}
    return {"type": _TEXTS} if keyword.may_be_empty else {"type": _TEXTS, "minLength": 1}


def _one_of(choices: tuple[str, ...]) -> Schema:
    """In upper or lower case, for which a schema needs a pattern."""
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


_KINDS: dict[str, Callable[[Keyword], Schema]] = {
    keywords.TEXT: _text,
    keywords.WHOLE: lambda k: {"type": "integer", "minimum": k.least, "maximum": k.most},
    keywords.NUMBER: lambda k: {"type": "number", "exclusiveMinimum": k.above, "maximum": k.most},
    keywords.FLAG: lambda _: {"type": "boolean"},
    keywords.MAPPING: lambda k: _ref(k.section),
    keywords.LIST: lambda k: _list(_ref(k.section)),
    keywords.LIMITS: lambda _: _ref("limits"),
    keywords.LIMITS_BY_TIER: lambda _: _by_name(_ref("tier"), minProperties=1),
    keywords.PLANS_BY_NAME: lambda _: _by_name(_ref("plan")),
    keywords.VALUES: lambda _: _ref("values"),
    keywords.VALUES_BY_KEY: lambda _: _by_name({"anyOf": [_ref("values"), {"type": "null"}]}),
    keywords.DAY_NAMES: lambda _: _list(_one_of((*DAYS, *(day[:3] for day in DAYS))), least=1),
    keywords.GROUP: lambda k: {"anyOf": [{"const": "subnet"}, _ref(k.section)]},
    keywords.LEASE: lambda k: {"anyOf": [{"type": "boolean"}, _ref(k.section)]},
    keywords.ANYTHING: lambda _: {"type": "object"},
}
# How keys of one mapping depend on each other.
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


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
