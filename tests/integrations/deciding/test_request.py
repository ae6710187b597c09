"""A request says where it has what the requests of frameworks have."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock.integrations.asgi.request import AsgiRequest


@pytest.mark.parametrize(
    ("name", "instead"),
    [("headers", "first('x-api-key')"), ("META", "first('x-api-key'), or native.META"),
     ("remote_addr", "client"), ("url", "path")],
)  # fmt: skip
def test_what_to_write_in_place_of_the_attributes_of_frameworks(name: str, instead: str) -> None:
    request: Any = AsgiRequest({"type": "http", "path": "/", "headers": []})
    message = f"a Request has no '{name}': write request.{instead}"
    with pytest.raises(AttributeError, match=f"^{re.escape(message)}$"):
        getattr(request, name)
    assert not hasattr(request, name)


class Row:
    def __init__(self, **columns: object) -> None:
        self._columns = columns

    def keys(self) -> list[str]:
        return list(self._columns)

    def __getitem__(self, name: str) -> object:
        return self._columns[name]


class Account:
    is_authenticated = True
    id = 7


@pytest.mark.parametrize(
    ("scope", "user"),
    [
        ({}, None),
        ({"state": {}}, None),
        ({"state": object()}, None),
        ({"state": {"user": "ada"}}, "ada"),
        ({"state": {"user": 42}}, "42"),
        ({"state": {"user": {"id": 42, "name": "ada"}}}, "42"),
        ({"state": {"user": Row(id=42)}}, "42"),
        ({"state": {"user": {"name": "ada"}}}, None),
        ({"state": {"user": Account()}}, "7"),
        ({"state": {"user": "ada"}, "user": "bob"}, "bob"),
        ({"state": {"user": "ada"}, "user": None}, "ada"),
    ],
)
def test_the_user_of_an_asgi_request(scope: dict[str, Any], user: str | None) -> None:
    assert AsgiRequest({"type": "http", "path": "/", "headers": [], **scope}).user == user
