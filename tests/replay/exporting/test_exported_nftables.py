"""What nftables of this kernel does with exported limits, in a network namespace of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.replay import ExportError, export
from replay.exporting import connecting
from replay.exporting.driving import Asked, gaps, judge
from replay.exporting.servers import program
from replay.exporting.test_exported_nginx import BY_ADDRESS, requests, rules


def connect(configuration: str, folder: Path, plan: list[tuple[float, str]]) -> list[Asked]:
    """Connect by a plan of pauses and addresses."""
    nft = program("nft", "nftables")
    unshare = shutil.which("unshare")
    if unshare is None or shutil.which("ip") is None:
        pytest.skip("no unshare or ip: apt-get install util-linux iproute2")
    spaces = ["--net"] if os.geteuid() == 0 else ["--net", "--user", "--map-root-user"]
    for allowed in ([unshare, *spaces, "true"], [unshare, *spaces, nft, "list", "ruleset"]):
        tried = subprocess.run(allowed, capture_output=True, text=True, timeout=60)
        if tried.returncode:
            pytest.skip(f"this machine permits no nftables in a namespace: {tried.stderr.strip()}")
    file = folder / "penstock.nft"
    file.write_text(configuration)
    script = [sys.executable, connecting.__file__, nft, str(file), json.dumps(plan)]
    done = subprocess.run([unshare, *spaces, *script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [
        Asked({"peer": peer}, before, after, admitted)
        for (_, peer), (before, after, admitted) in zip(plan, json.loads(done.stdout), strict=True)
    ]


def plan(count: int, unit: float) -> list[tuple[float, str]]:
    sent = requests(count)
    return [(gap, one["peer"]) for one, gap in zip(sent, gaps(7, unit), strict=False)]


@pytest.mark.parametrize("limit", ["20/second burst 10", "1200/minute burst 7"])
def test_a_bucket_is_exact(tmp_path: Path, limit: str) -> None:
    made = export(
        rules(BY_ADDRESS | {"limits": limit}), "nftables", keys=100, ports=[connecting.PORT]
    )
    assert [piece.how for piece in made.pieces] == ["exact"]
    asked = connect(made.text, tmp_path, plan(400, 0.025))
    result = judge(made.rules, asked)
    assert result.differ == []
    assert result.compared >= 200
    assert 50 < result.admitted < 350


def test_a_rounded_rate_is_what_it_says(tmp_path: Path) -> None:
    made = export(
        rules(BY_ADDRESS | {"limits": "35/1700ms burst 7"}),
        "nftables", keys=100, ports=[connecting.PORT],
    )  # fmt: skip
    (piece,) = made.pieces
    assert piece.how == "rounded"
    asked = connect(made.text, tmp_path, plan(400, 0.025))
    result = judge(made.means, asked)
    assert result.differ == []
    assert result.compared >= 200


def test_networks_and_single_addresses(tmp_path: Path) -> None:
    made = export(
        rules(
            {"key": "ip", "limits": "3/hour"},
            {"key": "ip", "value": "192.0.2.1", "limits": "1/hour"},
        ),
        "nftables", keys=100, ports=[connecting.PORT],
    )  # fmt: skip
    assert {piece.how for piece in made.pieces} == {"exact"}
    peers = ["2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:3::1", "192.0.2.1", "192.0.2.2"]
    asked = connect(made.text, tmp_path, [(0, peer) for peer in peers * 4])
    admitted = [each.request["peer"] for each in asked if each.admitted]
    assert [admitted.count(peer) for peer in peers] == [2, 1, 3, 1, 3]
    assert judge(made.rules, asked).differ == []


def test_concurrency_counts_connections(tmp_path: Path) -> None:
    made = export(
        rules(BY_ADDRESS | {"concurrency": 5}), "nftables", approximate=True, ports=[8080]
    )
    assert "ct count over 5" in made.text
    asked = connect(made.text, tmp_path, [(0, "192.0.2.1"), (0, "2001:db8:1:2::1")])
    assert all(each.admitted for each in asked)


def test_only_addresses() -> None:
    rule = {"key": "header:x-user", "limits": "9/second"}
    with pytest.raises(ExportError, match="knows remote_address, but not 'header:x-user'"):
        export(rules(rule), "nftables", approximate=True)
