"""Loads rules for a gate. PyYAML, an optional dependency, is imported only when it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.errors import RulesError
from penstock.rules.model import RuleSet
from penstock.rules.reading.files import ENDINGS

RulesPath = str | Path


def read_rules(rules: str | Mapping[str, Any]) -> RuleSet:
    """From the text of a file, or the same as a dict."""
    if isinstance(rules, Path) or (isinstance(rules, str) and _is_name(rules)):
        raise RulesError(f"{str(rules)!r:.100} is the name of a file: use from_file")
    parse = _parser()
    domain = parse.parse_text(rules) if isinstance(rules, str) else parse.load_mapping(rules)
    return RuleSet({domain.name: domain})


def load_rules(files: Sequence[RulesPath], *, merge_domains: bool = False) -> RuleSet:
    """From files or folders."""
    for file in files:
        if not isinstance(file, str | Path):
            raise TypeError(f"from_file takes names of files one by one, not {file!r:.100}")
        if "\n" in str(file):
            raise RulesError("this is a text of rules, not the name of a file: use from_rules")
    rules: RuleSet = _parser().load_files(files, merge_domains=merge_domains)
    return rules


def _is_name(text: str) -> bool:
    return text.endswith(ENDINGS) and "\n" not in text and ": " not in text


def _parser() -> Any:
    try:
        from penstock.rules.reading import parse
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"reading rules needs {error.name}: pip install 'penstock[rules]'", name=error.name
        ) from None
    return parse
