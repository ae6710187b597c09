"""The small parts: statuses, methods, and doing without the extension."""

from __future__ import annotations

import pickle
import subprocess
import sys
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.service.grpc_status import INVALID_ARGUMENT, LONGEST_TEXT, GrpcError, percent_encoded
from penstock.wires.grpc.methods import Methods


@given(st.text())
def test_a_text_comes_back(text: str) -> None:
    encoded = percent_encoded(text)
    assert all(0x20 <= byte < 0x7F for byte in encoded)
    if len(encoded) < LONGEST_TEXT - 3 and not any(0xD800 <= ord(c) < 0xE000 for c in text):
        assert unquote(encoded.decode()) == text


@pytest.mark.parametrize("text", ["x" * 5000, "%" * 5000, "\u2603" * 5000, "x%" * 5000, "\ud800"])
def test_a_long_text_is_cut_but_not_within_an_escape(text: str) -> None:
    encoded = percent_encoded(text).decode()
    assert len(encoded) <= LONGEST_TEXT
    assert len(encoded) > LONGEST_TEXT - 3 or len(text) == 1
    assert all(len(part) >= 2 for part in encoded.split("%")[1:])


def test_an_error_says_what_it_is() -> None:
    error = GrpcError(INVALID_ARGUMENT, "no domain")
    assert isinstance(error, PenstockError)
    assert str(error) == "no domain"
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.message) == (3, "no domain")


@pytest.mark.parametrize("code", [0, 17, -1])
def test_a_code_that_is_none(code: int) -> None:
    with pytest.raises(ValueError, match="GrpcError"):
        GrpcError(code)


@pytest.mark.parametrize("path", ["", "Now", "/Now", "a.B/Now", "/a.B/C/D", "/\u00e4.B/C"])
def test_a_path_that_is_none(path: str) -> None:
    with pytest.raises(ValueError, match=r"/package\.Service/Method"):
        Methods(unary={path: lambda message: message})


def test_a_method_is_of_one_kind() -> None:
    with pytest.raises(ValueError, match="twice"):
        Methods(unary={"/a.B/C": bytes}, each={"/a.B/C": bytes})


def test_without_the_extension_the_rest_can_be_imported() -> None:
    code = """
import sys
sys.modules["penstock.wires.grpc.h2._nghttp2"] = None
from penstock.wires.grpc import h2, grpcio
from penstock.wires.grpc.h2 import limits
assert not h2.available()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
