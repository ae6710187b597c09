"""What a real HAProxy does with exported limits, against what Penstock does."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from penstock.replay import ExportError, export
from replay.exporting.driving import SLACK, Asked, drive, judge, most_in_window
from replay.exporting.servers import haproxy
from replay.exporting.test_exported_nginx import BY_ADDRESS, requests, rules

SECOND = 10**9


def from_a_boundary(asked: list[Asked], window: int) -> list[Asked]:
    """The same, on a clock by which the first request comes at the beginning of a window.

    HAProxy's windows begin with a key's first request, Penstock's at multiples of their length.
    """
    first = (asked[0].before + asked[0].after) // 2
    shift = -first % window
    return [Asked(a.request, a.before + shift, a.after + shift, a.admitted) for a in asked]


@pytest.mark.parametrize(
    "limit", ["20/second burst 10", "10/500ms sliding_window", "10/500ms fixed_window"]
)
def test_windows_decide_as_stated(tmp_path: Path, limit: str) -> None:
    made = export(rules(BY_ADDRESS | {"limits": limit}), "haproxy", approximate=True, keys=100)
    (piece,) = made.pieces
    assert str(piece.means) == "10/500ms sliding_window cells 1"
    assert "up to 19 in some 500ms" in made.text
    with haproxy(made.text, tmp_path) as clients:
        asked = drive(clients, requests(450, clients=1), 0.04)
    # Where the first one falls is known as well as its time is.
    slack = SLACK + (asked[0].after - asked[0].before) // 2
    result = judge(made.means, from_a_boundary(asked, SECOND // 2), slack)
    assert len(result.differ) <= result.compared // 100
    assert result.compared >= 200
    assert 50 < result.admitted < 420
    assert most_in_window(asked, SECOND // 2) <= 19
    assert set(clients.statuses) == {200, 429}


def test_never_above(tmp_path: Path) -> None:
    limit = "10/500ms sliding_log"
    made = export(rules(BY_ADDRESS | {"limits": limit}), "haproxy", never_above=True, keys=100)
    assert "at most 10 come in any 500ms" in made.text
    with haproxy(made.text, tmp_path) as clients:
        asked = drive(clients, requests(250, clients=1), 0.04)
    assert 3 < most_in_window(asked, SECOND // 2) <= 10


def test_refused_requests_count_nowhere(tmp_path: Path) -> None:
    """By address and by header: what the one refuses, the other has not counted."""
    made = export(
        rules(
            BY_ADDRESS | {"limits": "5/hour"},
            {"key": "header:x-tenant", "limits": "3/hour"},
        ),
        "haproxy",
        approximate=True,
        keys=100,
    )
    with haproxy(made.text, tmp_path) as clients:
        sent = [{"peer": "127.0.0.3", "header:x-tenant": "a"}] * 6
        assert [clients(request) for request in sent] == [True] * 3 + [False] * 3
        alone = [clients({"peer": "127.0.0.3"}) for _ in range(3)]
        assert alone == [True, True, False]


def test_which_requests_a_limit_is_for(tmp_path: Path) -> None:
    """Values, wildcards, what other steps leave, and keys of several parts."""
    made = export(
        rules(
            {"key": "path", "value": "/login", "descriptors": [BY_ADDRESS | {"limits": "2/hour"}]},
            {
                "key": "path",
                "value": "/a b/*/'z\"",
                "descriptors": [{"key": "method", "limits": "1/hour"}],
            },
            {"key": "header:x-tenant", "value": "$PATH", "limits": "1/hour"},
            {
                "key": "header:x-tenant",
                "descriptors": [BY_ADDRESS | {"limits": "2/hour"}],
            },
        ),
        "haproxy",
        approximate=True,
        keys=100,
    )
    sent: list[dict[str, str]] = []
    for fields in (
        {"target": "/login"}, {"target": "/%6Cogin"}, {"target": "/login?a"}, {"target": "/Login"},
        {"target": "/a%20b/x/%27z%22"}, {"target": "/a%20b/c/%27z%22", "method": "PUT"},
        {"header:x-tenant": "$PATH"}, {"header:x-tenant": "bob"}, {"header:x-tenant": "al"},
    ):  # fmt: skip
        sent += [{"peer": peer, **fields} for peer in ("127.0.0.2", "127.0.0.3")] * 2
    with haproxy(made.text, tmp_path) as clients:
        got = [(request, clients(request)) for request in sent]
    asked = [Asked(request, 10**18, 10**18, admitted) for request, admitted in got]
    result = judge(made.means, asked)
    assert result.differ == []
    assert 0 < result.admitted < len(asked)


def test_a_closed_rule_refuses_and_a_shadow_does_not(tmp_path: Path) -> None:
    closed = {
        "key": "method",
        "value": "DELETE",
        "rate_limit": {"unit": "day", "requests_per_unit": 0},
    }
    shadow = BY_ADDRESS | {"limits": "1/hour", "shadow_mode": True}
    made = export(rules(closed, shadow), "haproxy", approximate=True, keys=9)
    with haproxy(made.text, tmp_path) as clients:
        assert [clients({"peer": "127.0.0.1"}) for _ in range(3)] == [True] * 3
        assert clients.status({"peer": "127.0.0.1", "method": "DELETE"}) == 429


def test_a_shadow_counts_what_it_would_admit(tmp_path: Path) -> None:
    shadow = BY_ADDRESS | {"limits": "2/hour", "shadow_mode": True}
    made = export(rules(shadow), "haproxy", approximate=True, keys=9)
    show = "    http-after-response set-header X-Count %[sc_get_gpc0(0)]\n"
    with haproxy(made.text, tmp_path, show) as clients:
        counts = []
        for _ in range(4):
            assert clients({"peer": "127.0.0.1"})
            counts.append(clients.answer.headers["X-Count"])
    assert counts == ["1", "2", "2", "2"]


def test_a_request_has_three_counters() -> None:
    four = [{"key": f"header:x-{at}", "limits": "9/second"} for at in range(4)]
    with pytest.raises(ExportError, match="HAProxy follows 3 keys of a request"):
        export(rules(*four), "haproxy", approximate=True)
    apart = [
        {"key": "path", "value": f"/{at}", "descriptors": [BY_ADDRESS | {"limits": "9/second"}]}
        for at in range(9)
    ]
    made = export(rules(*apart), "haproxy", approximate=True)
    assert made.text.count("track-sc0") == 9
    assert "track-sc1" not in made.text


def test_concurrency(tmp_path: Path) -> None:
    made = export(rules(BY_ADDRESS | {"concurrency": 2}), "haproxy", approximate=True, keys=9)
    wait = (
        "    timeout http-request 60s\n    http-request wait-for-body time 30s if { path /hold }\n"
    )
    with haproxy(made.text, tmp_path, wait) as clients:
        held = [socket.create_connection(("127.0.0.1", clients.port), 60) for _ in range(2)]
        for link in held:  # their bodies do not come
            link.sendall(b"POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")
        until = time.monotonic() + 60
        while clients({"peer": "127.0.0.1"}) and time.monotonic() < until:
            time.sleep(0.01)
        assert clients.status({"peer": "127.0.0.1"}) == 429
        assert clients.status({"peer": "127.0.0.9"}) == 200
        for link in held:
            link.sendall(b"12345")
            assert link.recv(100).startswith(b"HTTP/1.1 200")
            link.close()
