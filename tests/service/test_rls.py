"""Reading requests: as protobuf reads them, for all bytes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from penstock.service.envoy_constants import MOST_DESCRIPTORS, MOST_ENTRIES
from penstock.service.grpc_status import INVALID_ARGUMENT, GrpcError
from penstock.service.rls_request import read_request
from service.rls_messages import RateLimitRequest, encode

try:
    from google.protobuf.message import DecodeError
except ImportError:  # pragma: no cover
    DecodeError = ValueError  # type: ignore[assignment,misc]


def ours(data: bytes) -> object:
    try:
        request = read_request(data)
    except GrpcError as error:
        return None if error.code == INVALID_ARGUMENT else error
    descriptors = [(a.pairs, a.amount, a.unit, a.hits, a.negative) for a in request.descriptors]
    return request.domain, descriptors, request.hits


def theirs(data: bytes, kind: Any = RateLimitRequest) -> object:
    try:
        request = kind.FromString(data)
    except DecodeError:
        return None
    descriptors = []
    for one in request.descriptors:
        limit = one.HasField("limit")
        descriptors.append(
            (
                tuple((entry.key, entry.value) for entry in one.entries),
                one.limit.requests_per_unit if limit else None,
                one.limit.unit & 0xFFFFFFFF if limit else 0,
                one.hits_addend.value if one.HasField("hits_addend") else None,
                getattr(one, "is_negative_hits", False),
            )
        )
    return request.domain, descriptors, request.hits_addend


def same(data: bytes) -> None:
    """That both read the same, or both nothing."""
    actual, expected = ours(data), theirs(data)
    if actual is None and expected is not None:
        # Inside of unknown groups, theirs lets field number 0 pass. It is none.
        with pytest.raises(GrpcError, match="no possible number"):
            read_request(data)
        assert any(byte & 7 == 3 for byte in data)
        return
    assert actual == expected, data


def varint(value: int, pad: int = 0) -> bytes:
    out = bytearray()
    while value > 127 or len(out) < pad:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


# Fields of all kinds, nested: often those of the message, in any order, and others.
NUMBERS = st.sampled_from([1, 1, 2, 2, 3, 4, 5, 15, 16, 2**29 - 1, 0])
VALUES = st.one_of(st.integers(0, 9), st.sampled_from([127, 128, 2**32, 2**63, 2**64 - 1]))
TEXTS = st.one_of(st.text(max_size=4).map(str.encode), st.binary(max_size=4))


@st.composite
def field(draw: Any, inner: SearchStrategy[bytes]) -> bytes:
    number, wire = draw(NUMBERS), draw(st.sampled_from([0, 0, 2, 2, 2, 2, 1, 5, 3, 4, 6, 7]))
    tag = varint(number << 3 | wire, draw(st.sampled_from([0, 0, 0, 0, 2, 4, 5])))
    if wire == 0:
        return tag + varint(draw(VALUES), draw(st.sampled_from([0, 0, 0, 0, 8, 9, 10])))
    if wire == 2:
        body = draw(inner)
        size = varint(
            len(body) + draw(st.sampled_from([0, 0, 0, 0, 0, 1])),
            draw(st.sampled_from([0, 0, 0, 4, 5])),
        )
        return tag + size + body
    if wire == 3:
        end = draw(st.sampled_from([number, number, number, number + 1]))
        return tag + draw(inner) + varint(end << 3 | 4)
    return tag + draw(st.binary(min_size=8, max_size=8)) if wire == 1 else tag + b"1234"


def fields(inner: SearchStrategy[bytes]) -> SearchStrategy[bytes]:
    return st.lists(field(inner), max_size=4).map(b"".join)


MESSAGES = fields(st.one_of(TEXTS, fields(st.one_of(TEXTS, fields(TEXTS)))))


@given(MESSAGES)
def test_reads_as_protobuf_does(data: bytes) -> None:
    same(data)


@given(st.binary(max_size=30))
def test_reads_any_bytes_as_protobuf_does(data: bytes) -> None:
    same(data)


GOOD = encode(
    {
        "domain": "api",
        "hits_addend": 300,
        "descriptors": [
            {"entries": [{"key": "user", "value": "漢字"}, {"key": "plan", "value": "free"}]},
            {
                "entries": [{"key": "ip", "value": "192.0.2.1"}],
                "limit": {"requests_per_unit": 7, "unit": "HOUR"},
                "hits_addend": 2**40,
                "is_negative_hits": True,
            },
        ],
    }
)


def test_reads_every_field() -> None:
    assert ours(GOOD) == (
        "api",
        [
            ((("user", "漢字"), ("plan", "free")), None, 0, None, False),
            ((("ip", "192.0.2.1"),), 7, 3, 2**40, True),
        ],
        300,
    )


def test_every_cut_is_read_as_protobuf_does() -> None:
    for length in range(len(GOOD)):
        same(GOOD[:length])


def test_every_changed_byte_is_read_as_protobuf_does() -> None:
    rng = random.Random(6)
    for at in range(len(GOOD)):
        for byte in {0, 1, 8, 10, 18, 127, 128, 255, GOOD[at] ^ 1 << rng.randrange(8)}:
            same(GOOD[:at] + bytes([byte]) + GOOD[at + 1 :])


def test_mutations_are_read_as_protobuf_does() -> None:
    rng = random.Random(66)
    read = 0
    for _ in range(20_000):
        data = bytearray(GOOD)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data) + 1)
            how = rng.randrange(4)
            if how == 0 and at < len(data):
                data[at] = rng.randrange(256)
            elif how == 1:
                data[at:at] = bytes(rng.choices(range(256), k=rng.randint(1, 3)))
            elif how == 2:
                del data[at : at + rng.randint(1, 3)]
            else:
                other = rng.randrange(len(GOOD))
                data[at:at] = GOOD[other : other + rng.randint(1, 12)]
        same(bytes(data))
        read += ours(bytes(data)) is not None
    assert read > 400


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", ("", [], 0)),
        (b"\x0a\x01a\x0a\x01b", ("b", [], 0)),  # the last one counts
        (b"\x18\x05\x18\x06", ("", [], 6)),
        (b"\x18" + varint(2**32 + 5), ("", [], 5)),  # cut to 32 bits
        (b"\x0d1234\x18\x07", ("", [], 7)),  # domain, of another wire type
        (b"\x1b\x18\x09\x1c\x18\x07", ("", [], 7)),  # in a group
        (b"\x12\x08\x12\x02\x08\x05\x12\x02\x10\x03", ("", [((), 5, 3, None, False)], 0)),
        (b"\x12\x06\x1a\x02\x08\x05\x1a\x00", ("", [((), None, 0, 5, False)], 0)),
        (b"\x12\x02\x1a\x00", ("", [((), None, 0, 0, False)], 0)),  # zero hits are said
        (b"\x12\x04\x20\x80\x80\x01", ("", [((), None, 0, None, True)], 0)),
        (b"\x0a", None),
        (b"\x0a\x02a", None),
        (b"\x0a\x01\xff", None),  # not UTF-8
        (b"\x0a\x01\xff\x0a\x01a", None),  # also where it does not count
        (b"\x0a\x03\xed\xa0\x80", None),  # half of a surrogate pair
        (b"\x0a\xff\xff\xff\xff\x0f", None),  # longer than anything
        (b"\x18" + b"\xff" * 10 + b"\x01", None),  # 11 bytes of number
        (b"\x02\x00", None),  # field 0
        (b"\x1e", None),  # wire type 6
        (b"\x1f", None),
        (b"\x1c", None),  # an end without its group
        (b"\x1b", None),  # a group without its end
        (b"\x1b\x24", None),  # and with another's
        (b"\x12\x02\x0a\x05abcde", None),  # beyond the message that it stands in
    ],
)
def test_reads(data: bytes, expected: object) -> None:
    assert ours(data) == expected
    assert theirs(data) == expected


@pytest.mark.parametrize("depth", [1, 50, 90, 101, 5_000, 100_000])
def test_groups_in_groups(depth: int) -> None:
    data = b"\x23" * depth + b"\x24" * depth
    assert (ours(data) is None) == (depth > 100) == (theirs(data) is None)


def test_a_request_is_bounded() -> None:
    most = b"\x12\x00" * MOST_DESCRIPTORS
    assert len(read_request(most).descriptors) == MOST_DESCRIPTORS
    with pytest.raises(GrpcError, match="at most 1000 descriptors"):
        read_request(most + b"\x12\x00")
    wide = b"\x0a\x00" * MOST_ENTRIES
    assert (
        len(read_request(b"\x12" + varint(len(wide)) + wide).descriptors[0].pairs) == MOST_ENTRIES
    )
    wide += b"\x0a\x00"
    with pytest.raises(GrpcError, match="10000 entries"):
        read_request(b"\x12" + varint(len(wide)) + wide)


def test_takes_bytes() -> None:
    for other in (None, "x"):
        with pytest.raises((TypeError, AttributeError)):
            read_request(other)  # type: ignore[arg-type]


def test_reads_as_the_published_messages_do() -> None:
    rls_pb2 = pytest.importorskip("envoy.service.ratelimit.v3.rls_pb2")
    rng = random.Random(666)
    without_negative = GOOD.replace(b"\x20\x01", b"")
    for _ in range(5_000):
        data = bytearray(without_negative)
        for _ in range(rng.randint(0, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        actual, expected = ours(bytes(data)), theirs(bytes(data), rls_pb2.RateLimitRequest)
        if isinstance(actual, tuple) and any(asked[4] for asked in actual[1]):
            continue  # is_negative_hits is too new for them
        assert actual == expected, bytes(data)
