"""Who asks, as the server is told, and paths, as rules see them."""

from __future__ import annotations

import pytest

from penstock.integrations.identity import Trust
from penstock.server.proxy.fields import to_server
from penstock.server.proxy.request import ProxyRequest, plain_path

NEW = {"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded"}


@pytest.mark.parametrize(
    ("peer", "trusted", "header", "came", "told"),
    [
        (  # nobody is trusted: what came is thrown away
            "198.51.100.1", [], "x-forwarded-for",
            {"X-Forwarded-For": "6.6.6.6", "X-Forwarded-Proto": "https",
             "Forwarded": "for=6.6.6.6"},
            {"X-Forwarded-For": "198.51.100.1", "X-Forwarded-Proto": "http",
             "X-Forwarded-Host": "h", "Forwarded": 'for=198.51.100.1;host="h";proto=http'},
        ),
        (  # a trusted one: its word is kept, and it is added; a forged other is not
            "10.0.0.1", ["10.0.0.0/8"], "x-forwarded-for",
            {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https",
             "X-Forwarded-Host": "shop", "Forwarded": "for=6.6.6.6"},
            {"X-Forwarded-For": "203.0.113.7, 10.0.0.1", "X-Forwarded-Proto": "https",
             "X-Forwarded-Host": "shop", "Forwarded": 'for=203.0.113.7;host="h";proto=http'},
        ),
        (  # the same with Forwarded
            "10.0.0.1", ["10.0.0.0/8"], "forwarded",
            {"X-Forwarded-For": "6.6.6.6", "Forwarded": 'for="[2001:db8::1]:4711"'},
            {"X-Forwarded-For": "2001:db8::1",
             "Forwarded": 'for="[2001:db8::1]:4711", for=10.0.0.1;host="h";proto=http'},
        ),
        (  # IPv6 is in brackets and quotes
            "2001:db8::2", [], "x-forwarded-for", {},
            {"X-Forwarded-For": "2001:db8::2",
             "Forwarded": 'for="[2001:db8::2]";host="h";proto=http'},
        ),
        (  # a Unix socket has no address
            None, ["unix"], "x-forwarded-for", {"X-Forwarded-For": "203.0.113.7"},
            {"X-Forwarded-For": "203.0.113.7"},
        ),
        (None, [], "x-forwarded-for", {}, {"X-Forwarded-For": "unknown"}),
    ],
)  # fmt: skip
def test_who_asks_is_told_as_far_as_it_is_known(
    peer: str | None, trusted: list[str], header: str, came: dict[str, str], told: dict[str, str]
) -> None:
    fields = [(b"Host", b"h"), *[(n.encode(), v.encode()) for n, v in came.items()]]
    request = ProxyRequest("GET", b"/", "1.1", fields, peer)
    sent = to_server(request, Trust(trusted, header=header), header)
    found = {n.decode(): v.decode() for n, v in sent if n.decode() in NEW}
    assert len([n for n, _ in sent if n.decode().title() in NEW]) == 4
    assert {name: found[name] for name in told} == told


def test_via_is_a_list_that_grows() -> None:
    fields = [(b"Host", b"h"), (b"via", b"1.0 a"), (b"Via", b"1.1 b")]
    request = ProxyRequest("GET", b"/", "1.1", fields, "10.0.0.1")
    sent = to_server(request, Trust(), "x-forwarded-for")
    assert [v for n, v in sent if n.lower() == b"via"] == [b"1.0 a, 1.1 b, 1.1 penstock"]


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/", "/"), ("/a/b", "/a/b"), ("/a/", "/a/"), ("//a", "/a"), ("/a//b", "/a/b"),
        ("/./a", "/a"), ("/a/.", "/a/"), ("/a/..", "/"), ("/a/../b", "/b"), ("/../../a", "/a"),
        ("/a/b/../", "/a/"), ("/.a", "/.a"), ("/a/...", "/a/..."), ("//", "/"), ("*", "*"),
    ],
)  # fmt: skip
def test_paths_have_one_spelling(path: str, plain: str) -> None:
    assert plain_path(path) == plain
