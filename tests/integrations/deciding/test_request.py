"""A request says where it has what the requests of frameworks have."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import RequestFactory
from flask import Flask

from penstock.integrations.asgi.request import AsgiRequest
from penstock.integrations.django.request import DjangoRequest
from penstock.integrations.flask import Penstock
from penstock.integrations.flask.request import FlaskRequest
from penstock.integrations.wsgi.request import WsgiRequest


@pytest.mark.parametrize(
    ("name", "instead"),
    [("headers", "first('x-api-key')"), ("META", "first('x-api-key'), or native.META"),
     ("remote_addr", "client"), ("ip", "client"), ("url", "path"), ("query_params", "query"),
     ("args", "query"), ("GET", "query")],
)  # fmt: skip
def test_what_to_write_in_place_of_the_attributes_of_frameworks(name: str, instead: str) -> None:
    request: Any = AsgiRequest({"type": "http", "path": "/", "headers": []})
    message = f"a Request has no '{name}': write request.{instead}"
    with pytest.raises(AttributeError, match=f"^{re.escape(message)}$"):
        getattr(request, name)
    assert not hasattr(request, name)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("", {}),
        ("n=4&word=a%20b+c", {"n": "4", "word": "a b c"}),
        ("n=1&n=1&flag&empty=", {"n": "1", "flag": "", "empty": ""}),
        ("n=1&n=2&n=1", {"n": "(several)"}),
        ("word=%C3%BC&broken=%FF", {"word": "\u00fc", "broken": "\ufffd"}),
    ],
)
def test_the_query_is_the_same_in_all_frameworks(text: str, query: dict[str, str]) -> None:
    scope = {"type": "http", "path": "/", "headers": [], "query_string": text.encode()}
    native = RequestFactory().get("/", QUERY_STRING=text)
    for request in (AsgiRequest(scope), WsgiRequest({"QUERY_STRING": text}), DjangoRequest(native)):
        assert request.query == query
    assert AsgiRequest({"type": "http", "path": "/", "headers": []}).query == {}
    with Flask("shop").test_request_context("/", query_string=text):
        assert FlaskRequest("").query == query


def test_a_cost_from_the_query() -> None:
    app = Flask("shop")
    Penstock(app, "10/hour", cost=lambda request: int(request.query.get("n", "1")))
    client = app.test_client()
    statuses = [client.get(path).status_code for path in ("/?n=8", "/?n=3", "/?n=2", "/?n=0", "/")]
    assert statuses == [404, 429, 404, 404, 429]


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
