"""What a real nginx does with exported limits, against what Penstock does."""

from __future__ import annotations

import http.client
import ipaddress
import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.replay import ExportError, export
from replay.exporting.driving import drive, judge, most_in_window
from replay.exporting.servers import nginx

BY_ADDRESS: dict[str, Any] = {"key": "remote_address"}


def rules(*descriptors: dict[str, Any]) -> dict[str, Any]:
    return {"domain": "web", "descriptors": list(descriptors)}


def requests(count: int, clients: int = 2, **fields: str) -> list[dict[str, str]]:
    return [{"peer": f"127.0.0.{2 + at % clients}", **fields} for at in range(count)]


def test_a_bucket_is_exact(tmp_path: Path) -> None:
    made = export(rules(BY_ADDRESS | {"limits": "20/second burst 10"}), "nginx", keys=100)
    assert [piece.how for piece in made.pieces] == ["exact"]
    with nginx(made.text, tmp_path) as clients:
        asked = drive(clients, requests(400), 0.025)
    result = judge(made.rules, asked)
    assert result.differ == []
    assert result.compared >= 200
    assert 50 < result.admitted < 350
    assert set(clients.statuses) == {200, 429}


def test_a_rounded_rate_is_what_it_says(tmp_path: Path) -> None:
    """nginx keeps 1000r/m as 16.666 a second: the same limit with that rate decides alike."""
    made = export(rules(BY_ADDRESS | {"limits": "1000/minute burst 8"}), "nginx", keys=100)
    (piece,) = made.pieces
    assert (piece.how, str(piece.means)) == ("rounded", "16666/1000s burst 8")
    with nginx(made.text, tmp_path) as clients:
        asked = drive(clients, requests(400), 0.03)
    result = judge(made.means, asked)
    assert result.differ == []
    assert result.compared >= 200


def test_several_limits_are_all_or_none(tmp_path: Path) -> None:
    login = BY_ADDRESS | {"limits": "8/second burst 4"}
    made = export(
        rules(
            BY_ADDRESS | {"limits": "20/second burst 12"},
            {"key": "path", "value": "/login", "descriptors": [login]},
            {"key": "header:x-tenant", "value": "special", "limits": "6/second burst 3"},
            {"key": "header:x-tenant", "limits": "10/second burst 6"},
        ),
        "nginx",
        keys=100,
    )  # fmt: skip
    assert {piece.how for piece in made.pieces} == {"exact"}
    fields = itertools.cycle(
        [
            {"target": "/login"}, {"target": "/LOGIN"}, {"target": "/"},
            {"target": "/a?b", "header:x-tenant": "special"},
            {"target": "/login", "header:x-tenant": "bob"},
            {"target": "/", "header:x-tenant": "Special"},
        ]
    )  # fmt: skip
    sent = [one | next(fields) for one in requests(420)]
    with nginx(made.text, tmp_path) as clients:
        asked = drive(clients, sent, 0.02)
    result = judge(made.rules, asked)
    assert result.differ == []
    assert result.compared >= 200
    assert 80 < result.admitted < 400


@pytest.mark.parametrize("never_above", [False, True])
def test_a_window_stays_within_the_stated_error(tmp_path: Path, never_above: bool) -> None:
    limit = {"limit": "15/second", "algorithm": "sliding_log"}
    made = export(
        rules(BY_ADDRESS | {"limits": limit}),
        "nginx", approximate=True, never_above=never_above, keys=100,
    )  # fmt: skip
    (piece,) = made.pieces
    assert piece.how == "approximate"
    most = 15 if never_above else 29
    assert ("at most 15 in any 1s" if never_above else "up to 29 in some 1s") in made.text
    with nginx(made.text, tmp_path) as clients:
        asked = drive(clients, requests(300, clients=1), 0.03)
    assert judge(made.means, asked).differ == []
    assert 5 < most_in_window(asked, 10**9) <= most


def test_a_shaper_delays(tmp_path: Path) -> None:
    limit = {"limit": "20/second", "burst": 5, "algorithm": "leaky_bucket"}
    made = export(rules(BY_ADDRESS | {"limits": limit}), "nginx", keys=100)
    assert "burst=4;" in made.text
    with nginx(made.text, tmp_path) as clients:
        asked = drive(clients, requests(5, clients=1), 0.0001, seed=1)
    took = [(each.after - each.before) / 1e9 for each in asked]
    assert all(each.admitted for each in asked)
    assert took[0] < 0.04
    assert sum(took) >= 0.18  # four of them wait for their turn of 50 ms each


def test_addresses_of_a_network_share_a_counter(tmp_path: Path) -> None:
    group = {"ipv4": 24, "ipv6": 64}
    made = export(rules(BY_ADDRESS | {"group": group, "limits": "3/minute"}), "nginx", keys=9)
    with nginx(made.text, tmp_path) as clients:
        near = [clients.status({"peer": f"127.0.7.{at}"}) for at in range(1, 6)]
        assert near == [200] * 3 + [429] * 2
        assert clients.status({"peer": "127.0.8.1"}) == 200
        assert [clients.status({"peer": "::1"}) for _ in range(4)] == [200] * 3 + [429]


def test_ipv6_networks_are_those_of_penstock(tmp_path: Path) -> None:
    """nginx reads addresses from a trusted header, so that it sees any of them."""
    made = export(rules(BY_ADDRESS | {"limits": "10/second"}), "nginx", keys=100)
    ones = [0, 1, 0xDB8, 0xFFFF]
    heads = [":".join(f"{each:x}" for each in head) for head in itertools.product(ones, repeat=4)]
    real_ip = "set_real_ip_from 127.0.0.0/8; real_ip_header X-Client;\n"
    show = real_ip + (
        "location /show { add_header X-Net $penstock_address_32_64; try_files /ok.txt =404; }"
    )
    tails = ("0:0:0:1", "1:2:3:4", "0:0:0:0", "0:9:0:0", "7:0:0:0")
    texts: dict[str, set[str]] = {}
    with nginx(made.text, tmp_path, show) as clients:
        for head in heads:
            for tail in tails:
                address = str(ipaddress.ip_address(f"{head}:{tail}"))
                if address.startswith("::ffff:"):
                    continue
                net = header_of(clients, address)
                texts.setdefault(net, set()).add(head)
    assert all(len(networks) == 1 for networks in texts.values())
    assert len(texts) == len(heads)


def header_of(clients: Any, address: str) -> str:
    request = {"peer": "127.0.0.1", "target": "/show", "header:x-client": address}
    clients.status(request)
    return str(clients.answer.headers["X-Net"])


def test_locations_keep_named_captures_but_not_numbered_ones(tmp_path: Path) -> None:
    """Which the comment in the configuration says."""
    made = export(rules({"key": "header:x-tenant", "value": "Bob", "limits": "9/second"}), "nginx")
    assert "(?<id>" in made.text
    locations = (
        "location ~ ^/named/(?<id>.+)$ { add_header X-Id $id; try_files /ok.txt =404; }\n"
        "location ~ ^/first/(.+)$ { add_header X-Id $1; try_files /ok.txt =404; }"
    )
    with nginx(made.text, tmp_path, locations) as clients:
        for path, header, seen in (
            ("/named/42", "Bob", "42"),
            ("/first/42", "Al", "42"),
            ("/first/42", "Bob", None),
        ):
            clients.status({"peer": "127.0.0.1", "target": path, "header:x-tenant": header})
            assert clients.answer.headers["X-Id"] == seen


def test_limit_conn_counts_what_runs(tmp_path: Path) -> None:
    made = export(rules(BY_ADDRESS | {"concurrency": 2}), "nginx", keys=9)
    assert "limit_conn penstock_1 2;" in made.text
    (tmp_path / "large").write_bytes(b"x" * 30_000_000)
    with nginx(made.text, tmp_path, "location /large { }") as clients:
        held = []
        for _ in range(2):  # their bodies are not read: they go on
            connection = http.client.HTTPConnection("127.0.0.1", clients.port, timeout=60)
            held.append(connection)
            connection.request("GET", "/large")
            connection.getresponse()
        assert clients.status({"peer": "127.0.0.1"}) == 429
        assert clients.status({"peer": "127.0.0.9"}) == 200
        for connection in held:
            connection.close()


def test_limit_req_has_counted_what_limit_conn_refuses(tmp_path: Path) -> None:
    """Which is why the two together are an approximation."""
    both = rules(BY_ADDRESS | {"concurrency": 1, "limits": "5/minute"})
    with pytest.raises(ExportError, match="with its other limits: a request that those refuse"):
        export(both, "nginx")
    made = export(both, "nginx", approximate=True, keys=9)
    assert [piece.how for piece in made.pieces] == ["approximate", "exact"]
    (tmp_path / "large").write_bytes(b"x" * 30_000_000)
    with nginx(made.text, tmp_path, "location /large { }") as clients:
        connection = http.client.HTTPConnection("127.0.0.1", clients.port, timeout=60)
        connection.request("GET", "/large")
        connection.getresponse()
        assert [clients({"peer": "127.0.0.1"}) for _ in range(4)] == [False] * 4
        connection.close()
        until = time.monotonic() + 60
        while "limiting connections" not in (tmp_path / "error.log").read_text():
            assert time.monotonic() < until
            time.sleep(0.01)
        assert not clients({"peer": "127.0.0.1"})
        assert "limiting requests" in (tmp_path / "error.log").read_text()
