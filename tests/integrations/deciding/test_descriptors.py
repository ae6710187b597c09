"""From requests to descriptors, and from requests to keys."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock import AsyncGate, Gate, RulesError
from penstock.integrations import (
    by_api_key,
    by_cookie,
    by_header,
    by_ip,
    by_user,
    combined,
)
from penstock.integrations.asgi.request import AsgiRequest
from penstock.integrations.deciding.descriptors import Descriptors
from penstock.integrations.deciding.dimensions import DIMENSIONS, family
from penstock.integrations.deciding.request import identity_of
from penstock.integrations.deciding.waiting import finish_async
from penstock.integrations.wsgi.request import WsgiRequest

RULES = """
domain: web
allow: {user: [root]}
descriptors:
  - key: remote_address
    limits: 100/minute
  - key: path
    value: /login
    descriptors:
      - {key: remote_address, limits: 5/minute}
      - {key: "header:X-Tenant", limits: 9/minute}
  - key: path
    value: /search
    descriptors:
      - {key: remote_address, limits: 7/minute}
"""


def asked(path: str = "/", **headers: str) -> AsgiRequest:
    pairs = [(n.replace("_", "-").encode(), v.encode()) for n, v in headers.items()]
    return AsgiRequest(
        {"type": "http", "method": "GET", "path": path, "headers": pairs, "client": ("1.2.3.4", 5)}
    )


def pairs(found: Any) -> list[list[tuple[str, str]]]:
    return [list(descriptor.pairs) for descriptor in found]


def test_each_shape_for_which_the_request_has_all_values() -> None:
    descriptors = Descriptors(Gate.from_rules(RULES), DIMENSIONS, family)
    assert pairs(descriptors.of(asked("/search"))) == [
        [("remote_address", "1.2.3.4")],
        [("path", "/search"), ("remote_address", "1.2.3.4")],
    ]
    assert pairs(descriptors.of(asked("/login", x_tenant="acme"))) == [
        [("remote_address", "1.2.3.4")],
        [("path", "/login"), ("remote_address", "1.2.3.4")],
        [("path", "/login"), ("header:X-Tenant", "acme")],
    ]


def test_a_listed_key_is_asked_about_by_itself() -> None:
    request = asked()
    request.native["user"] = "root"
    found = pairs(Descriptors(Gate.from_rules(RULES), DIMENSIONS, family).of(request))
    assert [("user", "root")] in found


async def test_dimensions_may_be_awaited_or_fixed() -> None:
    async def tenant(request: Any) -> str:
        return "acme"

    rules = "domain: d\ndescriptors: [{key: tenant, descriptors: [{key: site, limits: 1/hour}]}]"
    gate = AsyncGate.from_rules(rules)
    descriptors = Descriptors(gate, {"tenant": tenant, "site": "eu"})
    found = await finish_async(descriptors.flow(asked()))
    assert pairs(found) == [[("tenant", "acme"), ("site", "eu")]]
    with pytest.raises(TypeError, match="tenant is a coroutine function"):
        descriptors.of(asked())


def test_a_key_that_nobody_knows_is_named_with_its_line(tmp_path: Any) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("domain: d\ndescriptors:\n  - {key: usr, limits: 1/hour}\n")
    with pytest.raises(RulesError, match=r"rules.yaml:3:\d+: nobody says what 'usr' is"):
        Descriptors(Gate.from_file(file), DIMENSIONS, family)


def test_after_a_reload_it_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate.from_rules(RULES)
    descriptors = Descriptors(gate, DIMENSIONS, family)
    gate.replace(
        "domain: web\ndescriptors: [{key: usr, limits: 1/hour}, {key: path, limits: 1/hour}]"
    )
    with caplog.at_level(logging.WARNING, "penstock"):
        found = [pairs(descriptors.of(asked("/a"))) for _ in range(2)]
    assert found == [[[("path", "/a")]]] * 2
    assert len(caplog.messages) == 1
    assert "'usr'" in caplog.text


def test_which_domain_must_be_said_where_there_are_several(tmp_path: Any) -> None:
    for name in ("a", "b"):
        rules = f"domain: {name}\ndescriptors: [{{key: path, limits: 1/hour}}]"
        (tmp_path / f"{name}.yaml").write_text(rules)
    gate = Gate.from_file(tmp_path)
    with pytest.raises(RulesError, match="which domain"):
        Descriptors(gate, DIMENSIONS)
    assert Descriptors(gate, DIMENSIONS, domain="b").of(asked())


# Other rules, for which the groups must hold, too.
OTHERS = """
domain: other
descriptors:
  - {key: remote_address, limits: 1/hour}
  - {key: own, group: {ipv6: 128}, limits: 1/hour}
  - key: path
    descriptors: [{key: remote_address, limits: 1/hour}]
"""

# Groups ---------------------------------------------------------------------------------------


def test_a_gate_groups_addresses_where_a_rule_does_not() -> None:
    gate = Gate.from_rules(OTHERS.replace("other", "web"))
    one, two = "2001:db8::1", "2001:db8::2"
    before = gate.compiled
    gate.group("something else")
    assert gate.compiled is before
    gate.group("remote_address")
    for _ in range(2):
        assert gate.check({"remote_address": one})
        assert not gate.check({"remote_address": two})
        assert gate.check({"path": "/", "remote_address": one})
        assert not gate.check({"path": "/", "remote_address": two})
        gate.group("own")
        assert gate.check({"own": one})
        assert gate.check({"own": two})
        gate.replace(OTHERS)
    with pytest.raises(RulesError, match="ipv6 is a length from 1 to 128"):
        gate.group("remote_address", ipv6=0)


# Keys -----------------------------------------------------------------------------------------


def test_keys_of_different_kinds_never_meet() -> None:
    plain: Any = by_header("ip")
    assert plain(asked(ip="1.2.3.4/32")) == "header:ip:1.2.3.4/32"
    assert by_ip(asked()) == "ip:1.2.3.4/32"
    request = asked()
    request.native["user"] = "ip:1.2.3.4/32"
    assert by_user(request) == "user:ip:1.2.3.4/32"


def test_secrets_are_hashed_and_long_values_too() -> None:
    key: Any = by_api_key()
    found = key(asked(x_api_key="s3cret"))
    assert found.startswith("key:")
    assert "s3cret" not in found
    assert found == key(asked(x_api_key="s3cret")) != key(asked(x_api_key="other"))
    salted: Any = by_api_key(salt="pepper")
    assert salted(asked(x_api_key="s3cret")) not in (None, found)
    session: Any = by_cookie("session")
    assert session(asked(cookie="a=b; session=s3cret")).startswith("cookie:")
    header: Any = by_header("x-tenant")
    assert len(header(asked(x_tenant="x" * 100_000))) < 100


def test_leaving_the_header_away_is_no_way_round() -> None:
    for key in (by_api_key(), by_cookie("session"), by_header("x-tenant"), by_user):
        assert key(asked()) == "ip:1.2.3.4/32"  # type: ignore[operator]  # a union of functions
    nothing: Any = by_header("x-tenant", otherwise=None)
    assert nothing(asked()) is None


async def test_combined_keys_are_unambiguous_and_await_if_they_must() -> None:
    def fixed(value: str | None) -> Any:
        return lambda request: value

    one: Any = combined(fixed("a:b"), fixed("c"))
    two: Any = combined(fixed("a"), fixed("b:c"))
    assert one(asked()) != two(asked())
    assert combined(fixed("a"), fixed(None))(asked()) is None

    async def later(request: Any) -> str:
        return "later"

    mixed: Any = combined(fixed("a"), later, fixed("b"))
    assert await mixed(asked()) == "a:later:b"


def test_cookies_and_users() -> None:
    request = asked(cookie='a=1; bad[]=x; b="two"; c')
    assert request.cookies["a"] == "1"
    assert request.cookies["b"] == "two"

    class User:
        is_authenticated = True
        pk = 7

    class Anonymous:
        is_authenticated = False
        pk = None

    assert identity_of(User()) == "7"
    assert identity_of(Anonymous()) is None
    assert identity_of("ann") == "ann"
    assert identity_of("") is None
    assert identity_of(object()) is None


def test_a_wsgi_path_is_utf8_in_truth() -> None:
    environ = {"REQUEST_METHOD": "GET", "SCRIPT_NAME": "/app", "PATH_INFO": "/caf\xc3\xa9"}
    assert WsgiRequest(environ).path == "/app/café"


@pytest.mark.parametrize(
    "make",
    [
        lambda: by_header(""),
        lambda: by_header("x:y"),
        lambda: by_cookie(""),
        lambda: by_api_key(otherwise="ip"),  # type: ignore[arg-type]  # what a user might do
        lambda: combined(),
        lambda: combined("ip"),  # type: ignore[arg-type]  # what a user might do
        lambda: Descriptors(Gate.from_rules(RULES), {"user": 7}),  # type: ignore[dict-item]  # the same
        lambda: Descriptors(Gate.from_rules(RULES), {"": by_ip}),
    ],
)
def test_what_is_wrong_is_said(make: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        make()
