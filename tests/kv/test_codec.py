"""How values are stored: one byte, compressed where that pays, and never trusted."""

from __future__ import annotations

import importlib.util
import os
import random
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import StoreError
from penstock.kv.codec import LARGEST_PAYLOAD, LARGEST_VALUE, check_compression, decode, encode
from penstock.kv.record import parse_record

RULES = "".join(f"- key: user_{n}\n  rate_limit: {{unit: minute}}\n" for n in range(180))


@given(st.one_of(st.text(max_size=2000), st.binary(max_size=2000)))
def test_every_value_comes_back(value: str | bytes) -> None:
    for compression in ("zlib", "off"):
        stored = encode("k", value, compression)
        assert decode("k", stored) == value
        assert len(stored) <= LARGEST_PAYLOAD


def test_it_is_compressed_only_where_that_pays() -> None:
    assert len(encode("k", RULES)) < len(RULES) / 5
    assert encode("k", "a" * 511) == b"\x11" + b"a" * 511
    noise = random.Random(1).randbytes(5000)
    assert encode("k", noise) == b"\x01" + noise
    assert encode("k", RULES, "off") == b"\x11" + RULES.encode()


@pytest.mark.parametrize(
    "stored",
    [
        b"", b"\x07abc", b"\x12not zlib", b"\x12" + zlib.compress(b"a" * 600)[:-3],
        b"\x02" + zlib.compress(b"a" * (LARGEST_VALUE + 1)), b"\x02" + zlib.compress(bytes(10**7)),
        b"\x11\xff\xff",
    ],
    ids=range(7),
)  # fmt: skip
def test_a_forged_value_is_an_error_and_fills_no_memory(stored: bytes) -> None:
    with pytest.raises(StoreError, match="'k' in the store is damaged"):
        decode("k", stored)


@given(st.binary(max_size=300))
def test_a_forged_record_is_an_error(data: bytes) -> None:
    for text in (data, b"1 1 1 1 1 aa 1 1 p\n" + data, b"1 " + data):
        try:
            record = parse_record(b"k", text)
        except StoreError:
            continue
        assert record.key == "k"


def test_an_unknown_compression() -> None:
    with pytest.raises(ValueError, match="compression is one of zlib, zstd, off, not 'gzip'"):
        check_compression("gzip")


@pytest.mark.skipif(
    sys.version_info < (3, 14) and importlib.util.find_spec("zstandard") is None,
    reason="there is no zstd",
)
def test_zstd() -> None:
    stored = encode("k", RULES, check_compression("zstd"))
    assert decode("k", stored) == RULES
    with pytest.raises(StoreError):
        decode("k", stored[:-5])
    with pytest.raises(StoreError):
        decode("k", b"\x03" + os.urandom(50))


@pytest.mark.skipif(
    sys.version_info >= (3, 14) or importlib.util.find_spec("zstandard") is not None,
    reason="there is zstd",
)
def test_without_zstd() -> None:
    with pytest.raises(StoreError, match="pip install zstandard"):
        check_compression("zstd")
    with pytest.raises(StoreError, match="pip install zstandard"):
        decode("k", b"\x13abc")
