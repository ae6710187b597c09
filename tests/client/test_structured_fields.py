"""Lists of RFC 9651: a table, rubbish, and the same answers as another parser gives."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import http_sfv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.structured import LONGEST, Date, Item, Token, read_list


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("", []),
        ("  ", []),
        ('"a"', [Item("a")]),
        ('"a";q=100;w=60', [Item("a", {"q": 100, "w": 60})]),
        ('"a";r=1, "b";r=2', [Item("a", {"r": 1}), Item("b", {"r": 2})]),
        ('"a";r=1\t , \t"b";r=2 ', [Item("a", {"r": 1}), Item("b", {"r": 2})]),
        ('"a"; r=1', [Item("a", {"r": 1})]),
        ('"a";r=1;r=2', [Item("a", {"r": 2})]),
        (r'"say \"hi\" \\"', [Item('say "hi" \\')]),
        ("tok:en/*", [Item("tok:en/*")]),
        ("-15, 1.5, ?1, ?0, @10", [Item(-15), Item(1.5), Item(True), Item(False), Item(10)]),
        (":aGk=:", [Item(b"hi")]),
        ('%"f%c3%bc"', [Item("fü")]),
        ('("a" b;x);y', [Item([Item("a"), Item("b", {"x": True})], {"y": True})]),
        ("()", [Item([])]),
        ("999999999999999", [Item(999999999999999)]),
    ],
)
def test_a_list_is_read(text: str, members: list[Item]) -> None:
    assert read_list(text) == members


@pytest.mark.parametrize(
    "text",
    [
        ",", "a,", ",a", "a b", '"a', 'a"', '"a";', '"a";=1', '"a";R=1', '"a";r=', '"a";r =1',
        '"a" ;r=1', "1.", ".5", "1.2345", "1000000000000000", "1234567890123.1", "--1", "-", "?2",
        ":a:", ":a b:", "@1.5", '%"%C3"', '%"%c3"', '"ü"', '"a\\b"', "(a", "(a,b)", "a)", "\x00",
        "(a\tb)", "a;\tr=1", '"a"\n', "\ta", "é", "x" * (LONGEST + 1),
    ],
)  # fmt: skip
def test_what_breaks_the_grammar_is_no_list(text: str) -> None:
    assert read_list(text) is None


_keys = st.from_regex(r"[a-z*][a-z0-9_.*-]{0,5}", fullmatch=True)
_bare = st.one_of(
    st.integers(-(10**15) + 1, 10**15 - 1).map(str),
    st.decimals(-(10**12) + 1, 10**12 - 1, places=3).map(lambda d: f"{d:.3f}"),
    st.from_regex(r'"([ !#-\[\]-~]|\\["\\]){0,8}"', fullmatch=True),
    st.from_regex(r"[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]{0,8}", fullmatch=True),
    st.binary(max_size=6).map(lambda raw: f":{base64.b64encode(raw).decode()}:"),
    st.sampled_from(["?0", "?1"]),
    st.integers(0, 10**10).map(lambda seconds: f"@{seconds}"),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4).map(
        lambda text: '%"' + "".join(f"%{byte:02x}" for byte in text.encode()) + '"'
    ),
)
_parameters = st.lists(
    st.one_of(
        st.tuples(_keys, _bare).map(lambda pair: f";{pair[0]}={pair[1]}"),
        _keys.map(lambda key: f"; {key}"),
    ),
    max_size=3,
).map("".join)
_items = st.tuples(_bare, _parameters).map("".join)
_inner = st.tuples(
    st.lists(_items, max_size=3).map(lambda items: f"({' '.join(items)})"), _parameters
).map("".join)
_lists = st.lists(st.one_of(_items, _items, _inner), max_size=4).flatmap(
    lambda members: st.sampled_from([", ", ",", "\t,  "]).map(lambda comma: comma.join(members))
)


def theirs(text: str) -> list[Any] | None:
    """What http-sfv reads, in plain values."""
    parsed = http_sfv.List()
    try:
        parsed.parse(text.encode())
    except ValueError:
        # It takes an empty field for a broken one; for the RFC that is an empty list.
        return [] if not text.strip(" ") else None
    return [_plain(member) for member in parsed]


def _plain(member: Any) -> Any:
    parameters = {key: _value(value) for key, value in member.params.items()}
    if isinstance(member, http_sfv.InnerList):
        return [_plain(item) for item in member], parameters
    return _value(member.value), parameters


def _value(value: Any) -> Any:
    if isinstance(value, Decimal):
        return "decimal", float(value)
    if isinstance(value, datetime):
        return "date", int(value.replace(tzinfo=UTC).timestamp())
    if isinstance(value, http_sfv.Token):
        return "token", str(value)
    return type(value).__name__.lower().replace("displaystring", "str"), value


def ours(text: str) -> list[Any] | None:
    members = read_list(text)
    return None if members is None else [_ours(member) for member in members]


def _ours(member: Item) -> Any:
    parameters = {key: _our_value(value) for key, value in member.parameters.items()}
    if isinstance(member.value, list):
        return [_ours(item) for item in member.value], parameters
    return _our_value(member.value), parameters


def _our_value(value: Any) -> Any:
    if isinstance(value, float):
        return "decimal", value
    if isinstance(value, Date):
        return "date", int(value)
    if isinstance(value, Token):
        return "token", str(value)
    return type(value).__name__, value


@given(_lists)
def test_both_parsers_read_the_same(text: str) -> None:
    assert read_list(text) is not None
    assert ours(text) == theirs(text)


@given(_lists, st.data())
def test_both_parsers_agree_on_what_is_broken(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(at, min(len(text), at + 3)))
    put = data.draw(st.text('"(),;=?@%:\\ \ta1.-*~', max_size=3))
    broken = text[:at] + put + text[cut:]
    # Here they may differ: how strict base64 is, dates beyond what datetime can hold, and "1." and
    # "% 3", which http_sfv takes for a decimal and an octet. RFC 9651 wants digits there.
    if not re.search(r'[:@]|[0-9]\.(?![0-9])|%(?!"|[0-9a-f]{2})', broken):
        assert ours(broken) == theirs(broken)


def test_a_decimal_needs_a_digit_after_its_dot() -> None:
    assert read_list("1.") is None


@given(st.text())
def test_no_text_makes_it_fail(text: str) -> None:
    read_list(text)
