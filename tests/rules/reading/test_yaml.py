"""From YAML to a tree: what is read, with which places, and what is refused in bounded time."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest
import yaml

from penstock.rules.problems import Problems
from penstock.rules.reading import yaml_tree
from penstock.rules.reading.tree import Bounds, ListNode, MappingNode, ScalarNode, SyntaxNode
from penstock.rules.reading.yaml_tree import decode, read_yaml

LOADERS = [yaml.SafeLoader] + ([yaml.CSafeLoader] if hasattr(yaml, "CSafeLoader") else [])


@pytest.fixture(params=LOADERS, ids=lambda loader: loader.__name__)
def loader(request: pytest.FixtureRequest) -> Any:
    """libyaml and the parser in Python must read and refuse alike."""
    return request.param


def plain(node: SyntaxNode | None) -> object:
    """A tree as Python would write it; keys and scalars as they were written."""
    if isinstance(node, MappingNode):
        return {key.text: plain(inner) for key, inner in node.pairs}
    if isinstance(node, ListNode):
        return [plain(inner) for inner in node.items]
    return node.text if isinstance(node, ScalarNode) else None


def read(text: str, loader: Any, **bounds: int) -> tuple[SyntaxNode | None, list[str]]:
    problems = Problems()
    node = read_yaml(text, "f", problems, Bounds(**bounds), loader)
    return node, [str(problem) for problem in problems.errors]


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a: 1", {"a": "1"}),
        ("a: 09:00", {"a": "09:00"}),
        ("a: 1_000", {"a": "1_000"}),
        ("a: no", {"a": "no"}),
        ("a: 2020-01-01", {"a": "2020-01-01"}),
        ("a:", {"a": ""}),
        ("a: ~", {"a": "~"}),
        ("a: 'it''s'", {"a": "it's"}),
        ('a: "x\\ty"', {"a": "x\ty"}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("- a\n- - b\n  - c\n- {d: [e]}", ["a", ["b", "c"], {"d": ["e"]}]),
        ("{1: a, true: b}", {"1": "a", "true": "b"}),
        ("[]", []),
        ("{}", {}),
        ("text", "text"),
        ("\ufeffa: 1", {"a": "1"}),
        ("a: 😀", {"a": "😀"}),
        ("---\na: 1\n...\n", {"a": "1"}),
        ("%YAML 1.1\n---\na: 1\n", {"a": "1"}),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": "1"}, "c": {"b": "1"}}),
        ("a: &x 1\nb: &x 2\nc: *x", {"a": "1", "b": "2", "c": "2"}),
        ("&k a: 1\nb: *k", {"a": "1", "b": "a"}),
        ("a: !!str 1\nb: !!map {c: 1}", {"a": "1", "b": {"c": "1"}}),
        ("a: !!seq [b]\nc: ! d", {"a": ["b"], "c": "d"}),
        ("", None),
        ("# only a remark\n", None),
    ],
)  # fmt: skip
def test_what_is_read(text: str, tree: object, loader: Any) -> None:
    node, problems = read(text, loader)
    assert problems == []
    assert plain(node) == tree


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}", {"c": "3", "b": "1"}),
        ("a: &x {b: 1, c: 2}\nd: {c: 3, <<: *x}", {"c": "3", "b": "1"}),
        ("a: &x {b: 1}\ne: &y {b: 2, c: 2}\nd: {<<: [*x, *y]}", {"b": "1", "c": "2"}),
        ("a: &x {b: 1}\nd: {<<: [*x, *x]}", {"b": "1"}),
        ("a: &x {b: 1}\ne: &y {<<: *x, c: 2}\nd: {<<: *y}", {"b": "1", "c": "2"}),
        ("d: {<<: {b: 1}}", {"b": "1"}),
        ("d: {'<<': {b: 1}}", {"<<": {"b": "1"}}),
    ],
)
def test_merge_keys(text: str, tree: object, loader: Any) -> None:
    node, problems = read(text, loader)
    assert problems == []
    assert isinstance(node, MappingNode)
    assert plain({key.text: inner for key, inner in node.pairs}["d"]) == tree


def test_every_node_knows_its_place(loader: Any) -> None:
    node, _ = read("# remark\na: 1\nb:\n  - c: 'ä'\n    d: [x, yy]\n", loader)
    places = {}

    def walk(node: SyntaxNode) -> None:
        if isinstance(node, MappingNode):
            for key, inner in node.pairs:
                places[key.text] = (key.place.line, key.place.column)
                walk(inner)
        elif isinstance(node, ListNode):
            for inner in node.items:
                walk(inner)
        elif isinstance(node, ScalarNode):
            places[node.text] = (node.place.line, node.place.column)

    assert node is not None
    walk(node)
    assert places == {
        "a": (2, 1), "1": (2, 4), "b": (3, 1), "c": (4, 5), "ä": (4, 8), "d": (5, 5),
        "x": (5, 9), "yy": (5, 12),
    }  # fmt: skip
    assert str(node.place) == "f:2:1"


@pytest.mark.parametrize(
    ("text", "is_plain", "is_null"),
    [
        ("1", True, False), ("'1'", False, False), ('"1"', False, False), ("|\n 1", False, False),
        ("!!str 1", False, False), ("null", True, True), ("~", True, True), ("NULL", True, True),
        ("''", False, False), ("'null'", False, False), ("nULL", True, False),
    ],
)  # fmt: skip
def test_quotes_are_remembered(text: str, is_plain: bool, is_null: bool, loader: Any) -> None:
    node, _ = read(text, loader)
    assert isinstance(node, ScalarNode)
    assert (node.plain, node.is_null) == (is_plain, is_null)


NO_ANCHOR = "the alias '*b' has no anchor (a text that begins with '*' needs quotes)"
ESCAPE = "escape: in double quotes, a backslash is '\\\\'"
NOT_UTF_8 = "the file is not UTF-8 text: byte 0x{:x} cannot stand here"
NEEDS_QUOTES = "not YAML: a text that begins with {!r} needs quotes"


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        # What YAML allows and rules do not.
        ("a: 1\nb: 2\na: 3", ["f:3:1: the key 'a' a second time: first at line 1"]),
        ("&k a: 1\n*k : 2", ["f:1:1: the key 'a' a second time: first at line 1"]),
        ("{<<: {a: 1}, <<: {b: 1}}", ["f:1:14: the key '<<' a second time: first at line 1"]),
        ("{<<: 5, b: {<<: [6]}}", ["f:1:18: '<<' takes mappings, not '6'",
                                   "f:1:6: '<<' takes mappings, not '5'"]),
        ("[a]: 1", ["f:1:1: a key must be a text, not a list"]),
        ("? {a: 1}\n: 1", ["f:1:3: a key must be a text, not a mapping"]),
        ("a: !!python/object:os.system x",
         ["f:1:4: the tag '!!python/object:os.system': rules have no tags"]),
        ("a: !mine x\nb: !!int 5", ["f:1:4: the tag '!mine': rules have no tags",
                                    "f:2:4: the tag '!!int': rules have no tags"]),
        ("a: !!set {b}", ["f:1:4: the tag '!!set': rules have no tags"]),
        ("%TAG ! tag:x,1:\n---\na: 1", ["f:1:1: %TAG: rules have no tags"]),
        ("a: 1\n---\nb: 2", ["f:2:1: a second document: a file of rules has only one"]),
        ("a: *b", [f"f:1:4: {NO_ANCHOR}"]),
        ("*b", [f"f:1:1: {NO_ANCHOR}"]),
        ("a: &x {b: *x}", ["f:1:11: the alias '*x' is inside itself"]),
        ("a: &x [[*x]]", ["f:1:9: the alias '*x' is inside itself"]),
        ("a: b\x00c", ["f:1:5: the character U+0000 cannot stand in a file:"
                       ' write it in double quotes, as "\\x00"']),
        ("a: 1\r\nb: \x1b", ["f:2:4: the character U+001B cannot stand in a file:"
                             ' write it in double quotes, as "\\x1B"']),
        ("a: \ud800", ["f:1:4: the character U+D800 cannot stand in a file"]),
        # What YAML does not allow.
        ("a:\n\tb: 1", ["f:2:1: not YAML: a tab cannot indent: use spaces"]),
        ("a:\n  - b: 1\n\t  c: 2", ["f:3:1: not YAML: a tab cannot indent: use spaces"]),
        ("a: *", ["f:1:4: " + NEEDS_QUOTES.format("*")]),
        ("a: *b*", ["f:1:4: " + NEEDS_QUOTES.format("*")]),
        ("a: & b", ["f:1:4: " + NEEDS_QUOTES.format("&")]),
        ("a: @b", ["f:1:4: " + NEEDS_QUOTES.format("@")]),
        ("ä: `b`", ["f:1:4: " + NEEDS_QUOTES.format("`")]),
        ("a: %b", ["f:1:4: " + NEEDS_QUOTES.format("%")]),
        ("a: !x!y z", ["f:1:4: " + NEEDS_QUOTES.format("!")]),
        ("a: !<\n", ["f:1:4: " + NEEDS_QUOTES.format("!")]),
        ("a: b: c", ["f:1:5: not YAML: a ':' that cannot stand here: check the indentation,"
                     " or put the text in quotes"]),
        ("a: - b", ["f:1:4: not YAML: a list cannot begin here: use a new line"]),
        ("a:\n  b: 1\n c: 2",
         ["f:3:2: not YAML: expected a key of the mapping that began at line 1"]),
        ("a:\n  - b\n  c: 1", ["f:3:3: not YAML: expected a '-' of the list that began at line 2"]),
        ("a: [1, 2\nb: 3", ["f:2:2: not YAML: expected ',' or ']': the list began at line 1"]),
        ("a: {x: 1\nb: 3", ["f:2:2: not YAML: expected ',' or '}': the mapping began at line 1"]),
        ("a: 1\nb: 'x\nc: 1\n", ["f:2:4: not YAML: these quotes are not closed"]),
        ("a: 1\nb\nc: 2", ["f:2:1: not YAML: expected ': ' behind this key"]),
        ('a: "\\q"', [f"f:1:4: not YAML: an unknown {ESCAPE}"]),
        ('a: "\\u12"', [f"f:1:4: not YAML: a wrong {ESCAPE}"]),
        ("a: |x", ["f:1:5: not YAML: expected a new line behind '|' or '>'"]),
        ("a: ]", ["f:1:4: not YAML: expected a text, a list or a mapping"]),
        ("'a' 'b'", ["f:1:5: not YAML: expected the end of the file"]),
        ("%YAML 2.0\n---\na", ["f:1:1: not YAML: a version of YAML that cannot be read:"
                                " leave %YAML out"]),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, problems: list[str], loader: Any) -> None:
    assert sorted(read(text, loader)[1]) == sorted(problems)


def test_an_unknown_problem_is_told_as_yaml_tells_it() -> None:
    class Strange(yaml.SafeLoader):
        def check_event(self, *choices: Any) -> bool:
            raise yaml.MarkedYAMLError("while dreaming", None, "found a sheep", None)

    class Unmarked(yaml.SafeLoader):
        def check_event(self, *choices: Any) -> bool:
            raise yaml.YAMLError("found a wolf")

    assert read("a: 1", Strange)[1] == ["f:1:1: not YAML: found a sheep"]
    assert read("a: 1", Unmarked)[1] == ["f:1:1: not YAML: found a wolf"]


def test_without_libyaml_the_parser_in_python_is_used() -> None:
    assert yaml_tree._Loader is getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"a: \xff", "f:1:4: " + NOT_UTF_8.format(0xff)),
        ("a: ä\nb: ö".encode("latin-1"), "f:1:4: " + NOT_UTF_8.format(0xe4)),
        ("ä: 1\nö: ".encode() + b"\xc3", "f:2:4: " + NOT_UTF_8.format(0xc3)),
        ("a: 1".encode("utf-16"), "f:1:1: " + NOT_UTF_8.format(0xff)),
    ],
)  # fmt: skip
def test_bytes_that_are_not_utf_8(data: bytes, problem: str) -> None:
    problems = Problems()
    assert decode(data, "f", problems) is None
    assert [str(told) for told in problems.errors] == [problem]


def test_bytes_that_are() -> None:
    assert decode("\ufeffä: 1".encode(), "f", Problems()) == "ä: 1"


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        (nested(50), True),
        (nested(51), False),
        (f"- &x {nested(24)}\n- [{'[' * 23}*x{']' * 23}]", True),  # 1 + 1 + 23 + 24 = 49
        (f"- &x {nested(24)}\n- [{'[' * 24}*x{']' * 24}]", True),
        (f"- &x {nested(24)}\n- [{'[' * 25}*x{']' * 25}]", False),
        (f"- &x [{nested(3)}]\n- &y [{'[' * 40}*x{']' * 40}]\n- [[[[*y]]]]", True),
        (f"- &x [{nested(3)}]\n- &y [{'[' * 40}*x{']' * 40}]\n- [[[[[*y]]]]]", False),
    ],
)
def test_depth_counts_what_aliases_stand_for(text: str, fits: bool, loader: Any) -> None:
    _, problems = read(text, loader)
    assert [told.partition(": ")[2] for told in problems] == (
        [] if fits else ["nested deeper than 50 levels"]
    )


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("a", 1),
        ("[a, b]", 3),
        ("{a: b}", 3),
        ("[&x a, *x, *x]", 4),
        ("[&x [a, b], *x]", 7),
        ("[&x [a, b], &y [*x, *x], *y]", 18),
    ],
)
def test_nodes_are_counted_with_aliases(text: str, nodes: int, loader: Any) -> None:
    assert read(text, loader, nodes=nodes)[1] == []
    (problem,) = read(text, loader, nodes=nodes - 1)[1]
    assert "nodes, with every alias as what it stands for" in problem


LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 40)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 1_000_000, "nested deeper"),
        ("{" * 1_000_000, "nested deeper"),
        ("- " * 500_000, "nested deeper"),
        ("? " * 500_000, "nested deeper"),
        ("[? " * 300_000, "nested deeper"),
        ('{"a":\n' * 150_000, "nested deeper"),
        (LAUGHS, "more than 2000000 nodes"),
        ("%TAG !e! tag:x,1:\n" * 50_000 + "---\n", "%TAG"),
        ("--- a\n" * 200_000, "second document"),
        ("x" * 64_000_001, "larger than 64 MB"),
    ],
    ids=["lists", "mappings", "dashes", "questions", "both", "keys", "laughs", "tags", "documents",
         "size"],
)  # fmt: skip
def test_an_attack_is_refused_before_it_costs_anything(text: str, words: str, loader: Any) -> None:
    problems = Problems()
    before = time.process_time()
    tracemalloc.start()
    try:
        assert read_yaml(text, "f", problems, loader=loader) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert words in str(problems.errors[0])
    assert len(problems.errors) == 1
    assert time.process_time() - before < 10  # without the bounds, minutes
    assert peak < 20_000_000
