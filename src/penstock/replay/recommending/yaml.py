"""Rules to paste, from a recommendation: in shadow first."""

from __future__ import annotations

import json
from collections.abc import Sequence


def rules_yaml(by: Sequence[str], limit: str, why: str) -> str:
    """A file of rules. ``shadow_mode`` counts and refuses nothing."""
    lines = [
        f"# {limit} for each {' and '.join(by)}: {why}.",
        "# In shadow it refuses nothing: watch it for a week, then delete that line.",
        "domain: web",
        "descriptors:",
    ]
    indent = "  "
    for number, part in enumerate(by):
        key, equals, value = part.partition("=")
        lines.append(f"{indent}- key: {_scalar(key)}")
        indent += "  "
        if equals:
            lines.append(f"{indent}value: {_scalar(value)}")
        if number + 1 < len(by):
            lines.append(f"{indent}descriptors:")
            indent += "  "
    lines += [f"{indent}limits: {limit}", f"{indent}shadow_mode: true"]
    return "\n".join(lines) + "\n"


def _scalar(text: str) -> str:
    plain = text.replace("_", "").replace("/", "").replace("-", "")
    return text if plain.isalnum() and plain.isascii() else json.dumps(text)
