"""Dimensions that are written as text."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Gate
from penstock.integrations.asgi.request import AsgiRequest
from penstock.integrations.deciding.descriptors import Descriptors
from penstock.integrations.deciding.dimension_sources import parse_dimensions
from penstock.integrations.deciding.dimensions import DIMENSIONS, PROXY_DIMENSIONS, family
from penstock.integrations.deciding.identity import Trust
from penstock.integrations.deciding.keys import hashed

IP = "domain: d\ndescriptors: [{key: ip, limits: 1/hour}]"


def asked(*headers: tuple[str, str], peer: str = "10.0.0.1") -> AsgiRequest:
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    request = AsgiRequest(
        {"type": "http", "method": "GET", "path": "/", "headers": pairs, "client": (peer, 5)}
    )
    request.trust = Trust(["10.0.0.0/8"])
    return request


@pytest.mark.parametrize(
    ("source", "headers", "value"),
    [
        ("header:X-User", [("x-user", "ann")], "ann"),
        ("header:x-user", [("x-user", "forged"), ("x-user", "ann")], "ann"),
        ("header:x-user", [], None),
        ("client-header:x-user", [("x-user", "ann"), ("x-user", "bob")], "ann"),
        ("secret-header:authorization", [("authorization", "s3cret")], hashed("s3cret")),
        ("cookie:session", [("cookie", "a=1; session=s3cret")], hashed("s3cret")),
        ("text:eu:west", [], "eu:west"),
    ],
)
def test_each_source(source: str, headers: list[tuple[str, str]], value: str | None) -> None:
    (dimension,) = parse_dimensions([f"user={source}"]).values()
    assert dimension(asked(*headers)) == value


@pytest.mark.parametrize(
    ("source", "value"), [("header:x-user", None), ("client-header:x-user", "ann")]
)
def test_a_header_is_accepted_from_trusted_proxies_only(source: str, value: str | None) -> None:
    (dimension,) = parse_dimensions([f"user={source}"]).values()
    assert dimension(asked(("x-user", "ann"), peer="192.0.2.1")) == value


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["user"], "NAME=SOURCE"),
        (["=header:a"], "NAME=SOURCE"),
        (["user=header:"], "NAME=SOURCE"),
        (["user=query:a"], "one of header:..., client-header:..."),
        (["user=header:a\u00e9"], "a header's name is ASCII"),
        (["user=text:a", "user=text:b"], "'user' is given twice"),
    ],
)
def test_what_cannot_be_read(wrong: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_dimensions(wrong)


def test_a_proxy_knows_no_users_and_no_routes() -> None:
    assert set(DIMENSIONS) - set(PROXY_DIMENSIONS) == {"user", "route"}


def value_of(dimensions: Any) -> str:
    gate = Gate.from_rules(IP)
    (descriptor,) = Descriptors(gate, dimensions, family).of(asked(peer="192.0.2.1"))
    return dict(descriptor.pairs)["ip"]


def test_ip_is_another_name_of_the_address() -> None:
    assert value_of(DIMENSIONS) == "192.0.2.1"
    assert value_of({"remote_address": "replaced"}) == "replaced"
    assert value_of({**DIMENSIONS, "ip": "its own"}) == "its own"
