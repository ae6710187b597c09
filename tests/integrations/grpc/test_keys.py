"""Who calls: addresses, metadata, and what cannot be forged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from integrations.grpc.kit import Bench
from penstock.integrations.deciding.identity import Trust
from penstock.integrations.deciding.keys import hashed
from penstock.integrations.grpc import Call, by_metadata, by_method, by_peer, combined
from penstock.integrations.grpc.call import address_of


def call(peer: str = "ipv4:192.0.2.7:50000", *pairs: Any, **more: Any) -> Call:
    return Call("/shop.Orders/Place", peer, pairs, **more)


@pytest.mark.parametrize(
    ("peer", "address", "key"),
    [
        ("ipv4:1.2.3.4:5", "1.2.3.4", "ip:1.2.3.4/32"),
        ("ipv6:[2001:db8:1:2:3::1]:5", "2001:db8:1:2:3::1", "ip:2001:db8:1:2::/64"),
        ("ipv6:%5B2001:db8:1:2:3::1%5D:5", "2001:db8:1:2:3::1", "ip:2001:db8:1:2::/64"),
        ("ipv6:[2001:DB8:1:2::]:5", "2001:db8:1:2::", "ip:2001:db8:1:2::/64"),
        ("ipv6:%5B::1%5D:5", "::1", "ip:::/64"),
        ("ipv6:[::ffff:1.2.3.4]:5", "1.2.3.4", "ip:1.2.3.4/32"),
        ("ipv6:%5Bfe80::1%25eth0%5D:5", "fe80::1", "ip:fe80::/64"),
        ("unix:", None, "ip:unknown"),
        ("unix:/run/shop.sock", None, "ip:unknown"),
        ("unix-abstract:%00shop", None, "ip:unknown"),
        ("vsock:3:1024", None, "ip:unknown"),
        ("ipv4:", None, "ip:unknown"),
        ("ipv6:[::1", None, "ip:unknown"),
        ("ipv4:unix:5", None, "ip:unknown"),
        ("", None, "ip:unknown"),
    ],
)
def test_the_peer(peer: str, address: str | None, key: str) -> None:
    assert address_of(peer) == address
    assert by_peer(call(peer)) == key


def test_the_parts_of_a_call() -> None:
    found = call("unix:", ("User-Agent", "x"), ("a", "1"), ("A", "2"), ("raw-bin", b"\0\xff"))
    assert (found.service, found.name) == ("shop.Orders", "Place")
    assert found.metadata == {"user-agent": ("x",), "a": ("1", "2"), "raw-bin": (b"\0\xff",)}
    assert (found.text("A"), found.text("raw-bin"), found.text("none")) == ("1,2", "00ff", None)
    assert by_method(found) == "method:/shop.Orders/Place"


SECRET = f"key:{hashed('s3cret')}"
PEER = "ip:192.0.2.7/32"


@pytest.mark.parametrize(
    ("function", "pairs", "key"),
    [
        (by_metadata("x-tenant"), [("x-tenant", "acme")], "metadata:x-tenant:acme"),
        (by_metadata("X-Tenant"), [("x-tenant", "acme")], "metadata:x-tenant:acme"),
        (by_metadata("x-tenant"), [], PEER),
        (by_metadata("x-tenant"), [("x-tenant", "")], PEER),
        (by_metadata("x-tenant"), [("x-tenant", "a"), ("x-tenant", "b")], PEER),
        (by_metadata("x-tenant"), [("x-tenant", "a"), ("x-tenant", "a")], PEER),
        (by_metadata("x-tenant"), [("x-tenant", PEER)], f"metadata:x-tenant:{PEER}"),
        (by_metadata("x-api-key", secret=True), [("x-api-key", "s3cret")], SECRET),
        (by_metadata("x-api-key", secret=True), [], PEER),
        (by_metadata("x-tenant", otherwise=None), [], None),
        (by_metadata("x-tenant", otherwise=by_method), [], "method:/shop.Orders/Place"),
        (by_metadata("id-bin"), [("id-bin", b"\1\2")], "metadata:id-bin:0102"),
        (combined(by_peer, by_method), [], "ip%3A192.0.2.7/32:method%3A/shop.Orders/Place"),
    ],
)  # fmt: skip
def test_keys(function: Any, pairs: list[Any], key: str | None) -> None:
    assert function(call("ipv4:192.0.2.7:50000", *pairs)) == key


def test_a_secret_is_in_no_key_and_a_long_value_is_cut_down() -> None:
    secret = by_metadata("x-api-key", secret=True)(call("unix:", ("x-api-key", "s3cret")))
    assert "s3cret" not in str(secret)
    salted = by_metadata("x-api-key", secret=True, salt="pepper")
    assert salted(call("unix:", ("x-api-key", "s3cret"))) != secret
    long = str(by_metadata("x-tenant")(call("unix:", ("x-tenant", "x" * 10_000))))
    assert len(long) < 100


@pytest.mark.parametrize(
    ("trust", "header", "address"),
    [
        (Trust(), "203.0.113.7", "192.0.2.7"),
        (Trust(["192.0.2.0/24"]), "203.0.113.7", "203.0.113.7"),
        (Trust(["192.0.2.0/24"]), "6.6.6.6, 203.0.113.7", "203.0.113.7"),
        (Trust(["192.0.2.0/24"]), "6.6.6.6, rubbish", "192.0.2.7"),
        (Trust(["10.0.0.0/8"]), "203.0.113.7", "192.0.2.7"),
        (Trust(hops=1), "6.6.6.6, 203.0.113.7", "203.0.113.7"),
    ],
)
def test_proxies_are_believed_only_if_told_so(trust: Trust, header: str, address: str) -> None:
    found = call("ipv4:192.0.2.7:50000", ("x-forwarded-for", header), trust=trust)
    assert found.address == address


@pytest.mark.parametrize("name", ["", None, 7, "ü"])
def test_metadata_has_a_name(name: Any) -> None:
    with pytest.raises(ValueError, match="metadata has ASCII names"):
        by_metadata(name)


def test_otherwise_is_a_function() -> None:
    with pytest.raises(TypeError, match="write otherwise=by_peer"):
        by_metadata("x", otherwise="by_peer")  # type: ignore[arg-type]  # that is the point


# On the wire -------------------------------------------------------------------------------


def test_a_forged_header_is_no_other_client(bench: Bench) -> None:
    client = bench.limited(bench.limiter("1/minute"))
    assert client.call(metadata=(("x-forwarded-for", "1.1.1.1"),)).passed
    for forged in ("2.2.2.2", "127.0.0.2", "unknown"):
        metadata = (("x-forwarded-for", forged), ("forwarded", f"for={forged}"))
        assert not client.call(metadata=metadata).passed


def test_a_trusted_proxy_says_who_calls(bench: Bench) -> None:
    client = bench.limited(bench.limiter("1/minute"), trusted=["127.0.0.0/8"])
    passed = [
        client.call(metadata=(("x-forwarded-for", told),)).passed
        for told in ("1.1.1.1", "9.9.9.9, 1.1.1.1", "2.2.2.2", "2.2.2.2:5000")
    ]
    assert passed == [True, False, True, False]


def test_two_connections_of_one_host_are_one_client(bench: Bench) -> None:
    target = bench.serve(bench.interceptor(bench.limiter("2/minute")))
    passed = [bench.connect(target).call().passed for _ in range(3)]
    assert passed == [True, True, False]


def test_ipv6(bench: Bench) -> None:
    seen: list[Call] = []
    key = lambda call: seen.append(call) or by_peer(call)  # noqa: E731  # it is handed over
    interceptor = bench.interceptor(bench.limiter("1/minute"), key=key)
    try:
        target = bench.serve(interceptor, address="[::1]:0")
    except RuntimeError:
        pytest.skip("this machine has no IPv6")
    client = bench.connect(target)
    assert [client.call().passed for _ in range(2)] == [True, False]
    assert seen[0].address == "::1"
    assert by_peer(seen[0]) == "ip:::/64"


def test_a_unix_socket(bench: Bench, tmp_path: Path) -> None:
    target = bench.serve(
        bench.interceptor(bench.limiter("1/minute")), address=f"unix:{tmp_path}/socket"
    )
    client = bench.connect(target)
    assert [client.call().passed for _ in range(2)] == [True, False]


def test_a_key_function_may_be_awaited(bench: Bench, kind: str) -> None:
    key = bench.function(by_metadata("who"))
    client = bench.limited(bench.limiter("1/minute"), key=key)
    passed = [client.call(kind, metadata=(("who", who),)).passed for who in "aabb"]
    assert passed == [True, False, True, False]


def test_a_key_of_several_awaits_what_it_must(bench: Bench) -> None:
    key = combined(bench.function(by_metadata("who")), by_method)
    client = bench.limited(bench.limiter("1/minute"), key=key)
    passed = [
        client.call(kind, metadata=(("who", who),)).passed
        for kind in ("unary_unary", "stream_stream")
        for who in "ab"
    ]
    assert passed == [True] * 4
    assert not client.call(metadata=(("who", "a"),)).passed


@pytest.mark.parametrize("nothing", [None, ""])
def test_calls_without_a_key_are_counted_by_address(bench: Bench, nothing: str | None) -> None:
    key = bench.function(lambda call: nothing)
    client = bench.limited(bench.limiter("2/minute"), key=key)
    assert [client.call().passed for _ in range(3)] == [True, True, False]
