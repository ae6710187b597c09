"""The schema for editors: the shipped one is current, and it tells good rules from bad ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from penstock.rules.problems import Problems
from penstock.rules.reading import keywords, schema, steps
from penstock.rules.reading.values import to_python
from penstock.rules.reading.yaml_tree import read_yaml
from rules.reading.fuzz_inputs import EVERYTHING

BAD = sorted((Path(__file__).parent / "bad").glob("*.yaml"))
DOCS = Path(__file__).parents[3] / "docs/reference/rules.md"
VALIDATOR = Draft202012Validator(schema.schema())

# Only the parser can know these: names and times that do not exist, what a limit makes of
# its options, and what two places say of each other.
ONLY_THE_PARSER_KNOWS = {
    "default_algorithm_that_does_not_fit", "replaces_itself", "the_same_step_twice",
    "the_same_step_twice_below", "unlimited_beside_limits",
}  # fmt: skip


def read(text: str) -> Any:
    """As an editor reads it: YAML 1.2, in which 18:00 is a text."""
    problems = Problems()
    node = read_yaml(text, "f", problems)
    return None if node is None or problems.errors else to_python(node)


def test_the_shipped_file_is_current() -> None:
    assert schema.PATH.read_text() == schema.text(), "run: python -m penstock.rules.reading.schema"


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(json.loads(schema.PATH.read_text()))


def test_what_the_docs_show_is_valid() -> None:
    blocks = [block.split("```", 1)[0] for block in DOCS.read_text().split("```yaml\n")[1:]]
    assert blocks
    for text in blocks:
        whole = text if text.startswith("domain") else "domain: api\ndescriptors:\n" + text
        VALIDATOR.validate(read(whole))


@pytest.mark.parametrize(
    "text",
    [
        EVERYTHING,
        "domain: api",
        "domain: 7\ndescriptors:\nallow: {ip: }",
        "domain: api\ndescriptors: [{key: 1, value: true, limits: 5/day, cost: ~}]",
        "domain: api\ndescriptors: [{key: a, value: ''}]",
        "domain: api\ndescriptors: [{key: a, rate_limit: {unit: MiNuTe, requests_per_unit: 0}}]",
        "domain: api\ndescriptors: [{key: a, rate_limit: {unlimited: true}}]",
        "domain: api\ndescriptors: [{key: a, group: subnet, limits: 5 Per day}]",
    ],
)
def test_good_rules(text: str) -> None:
    VALIDATOR.validate(read(text))


def test_bad_files() -> None:
    # What is no YAML an editor finds without a schema.
    rules = {path.stem: content for path in BAD if (content := read(path.read_text())) is not None}
    assert len(rules) > 40
    assert {name for name in rules if VALIDATOR.is_valid(rules[name])} == ONLY_THE_PARSER_KNOWS


@pytest.mark.parametrize(
    "keys",
    [
        "limits: 5", "limits: []", "limits: [[5/day]]", "limits: five a day", "cost: 0",
        "cost: 1.5", "group: {ipv4: 33}", "share_threshold: true",
        "value: a, share_threshold: true",
        "split: {percent: 0, limits: 5/day}", "split: {percent: 100.5, limits: 5/day}",
        "schedule: [{from: 9:00, to: 18:00, limits: 5/day}]",
        "schedule: [{from: 09:00, to: 24:01, limits: 5/day}]",
        "schedule: [{from: 09:00, to: 18:00, days: [mo], limits: 5/day}]",
        "schedule: [{from: 09:00, to: 18:00, days: [], limits: 5/day}]",
        "plans: {by: a, tiers: {}}", "plans: {tiers: {a: 5/day}}", "allow: {ip: [x]}",
        "allow: [{fil: x}]", "allow: ['']", "rate_limit: {unlimited: true, unit: day}",
        "rate_limit: {unit: day}", "rate_limit: {unlimited: false}", "shadow_mode: yes",
        "limits: {limit: 5/day, share: 0}", "limits: {limit: 5/day, algorithm: gcra}",
        "priority: 1", "unit: day",
    ],
)  # fmt: skip
def test_bad_steps(keys: str) -> None:
    assert not VALIDATOR.is_valid(read(f"domain: api\ndescriptors: [{{key: a, {keys}}}]"))


def test_every_word_is_described() -> None:
    for section in keywords.SECTIONS.values():
        for keyword in section.keywords.values():
            assert keyword.about.endswith("."), f"{section.name}.{keyword.name}"


def test_every_section_that_is_named_exists() -> None:
    named = {
        keyword.section
        for section in keywords.SECTIONS.values()
        for keyword in section.keywords.values()
        if keyword.section
    }
    assert named <= set(keywords.SECTIONS)


def test_an_unknown_kind_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError, match="odd"):
        schema._keyword(keywords.Keyword("x", "odd", "Odd."))


def test_the_lengths_of_a_subnet_are_described() -> None:
    lengths = keywords.GROUP_LENGTHS.keywords
    assert all(
        f"default {default}." in keyword.about
        for default, keyword in zip(steps.SUBNET, lengths.values(), strict=True)
    )
