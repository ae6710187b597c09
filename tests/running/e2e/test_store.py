"""The table that workers share: its size, what gives way, and what is left of it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from running.e2e.conftest import Start
from running.e2e.running import PATIENCE, Penstock, ask, new_folder
from stores.redis_server import wait_until

LOG_IN = """
domain: api
descriptors:
  - key: user
    limits: 3/minute lockout 15m
  - key: path
    limits: 1000/day
"""
LONG = """
domain: api
descriptors:
  - key: user
    limits: 1000/hour sliding_log
"""


def flood(service: Penstock, count: int) -> None:
    """So many new keys of each rule, a hundred a request."""
    for start in range(0, count, 50):
        numbers = range(start, start + 50)
        asked = [{key: f"flood {number}"} for number in numbers for key in ("user", "path")]
        body = json.dumps({"domain": "api", "descriptors": asked}).encode()
        assert ask(service.http, "/v1/check", "POST", body).status == 200


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_flood_of_keys_frees_no_lockout_and_is_told(
    penstock_service: Start, workers: str
) -> None:
    service = penstock_service(LOG_IN, "--workers", workers, "--max-keys", "2000")
    service.said(r"store  (memory|shared), 2000 keys")
    while service.check({"user": "locked"}).status == 200:
        pass
    assert service.counted("penstock_store_evictions_total") == 0
    flood(service, 5000)
    assert service.check({"user": "locked"}).status == 429
    evictions = service.counted("penstock_store_evictions_total")
    assert evictions > 2000
    assert service.counted("penstock_store_max_keys") == 2000
    service.said(r"the store \(\w+\) is full: \d+ keys .* raise --max-keys \(now 2000\)")


def test_the_table_holds_a_million_keys_unless_told_otherwise(penstock_service: Start) -> None:
    service = penstock_service(LOG_IN, "--workers", "2")
    service.said(r"store  shared, 1000000 keys of 128 bytes")
    flood(service, 5000)
    assert service.counted("penstock_store_evictions_total") == 0


def test_rows_are_as_long_as_the_rules_need(penstock_service: Start) -> None:
    """A sliding_log above 12 once could not start, and named an option that did not exist."""
    service = penstock_service(LONG, "--workers", "2")
    service.said(r"store  shared, 1000000 keys of 16064 bytes")
    for _ in range(3):
        answer = service.check({"user": "42"}, hits=400)
    assert answer.status == 429
    # Memory is taken for what is used, not for what could be.
    assert max(service.values("penstock_process_resident_memory_bytes")) < 500e6


def test_rows_that_are_too_short_name_the_rule_and_the_option() -> None:
    file = new_folder() / "rules.yaml"
    file.write_text(LONG)
    service = Penstock(file, "--workers", "2", "--bytes-per-key", "64")
    try:
        service.said(
            r"bytes_per_key is 64, and rule api/user: 1000/hour sliding_log needs 16064:"
            r" raise --bytes-per-key to 16064 or leave it out"
        )
        assert service.process.wait(PATIENCE) == 1
    finally:
        service.end()


def test_a_reload_that_needs_longer_rows_is_refused_and_the_old_rules_stay() -> None:
    file = new_folder() / "rules.yaml"
    file.write_text(LOG_IN)
    service = Penstock(file, "--workers", "2")
    try:
        service.wait()
        file.write_text(LONG)
        service.said(r"rule api/user: 1000/hour sliding_log needs 16064 bytes a key.*has 128")
        service.said("rules were not reloaded, the old ones stay in force")
        assert [service.check({"user": "1"}).status for _ in range(4)] == [200] * 3 + [429]
        assert service.values("penstock_rules_ok") == [0]
        # As many entries as fit are no reason to refuse.
        file.write_text(LONG.replace("1000/hour", "4/hour"))
        service.said("rules reloaded")
        assert [service.check({"user": "2"}).status for _ in range(5)] == [200] * 4 + [429]
    finally:
        service.end()


def test_an_override_that_does_not_fit_is_refused(penstock_service: Start) -> None:
    """Else every request that it is for would be an error."""
    service = penstock_service(LONG + "  - key: ip\n    limits: 5/hour\n", "--workers", "2")
    for key, body, status in (
        ("user", {"factor": 10}, 400),
        ("user", {"limit": "5000/hour sliding_log"}, 400),
        ("user", {"factor": 0.5}, 200),
        ("ip", {"factor": 10}, 200),
    ):
        sent = json.dumps({"key": key, "value": "42", **body}).encode()
        answer = ask(service.admin, "/v1/overrides", "PUT", sent, content_type="application/json")
        assert answer.status == status, answer
    assert service.check({"user": "42"}, hits=500).status == 200
    assert service.check({"user": "42"}).status == 429


def mappings(name: str) -> list[str]:
    """Processes that have memory of this name."""
    found = []
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if name in maps.read_text():
                found.append(maps.parent.name)
        except OSError:
            continue
    return found


def test_nothing_is_left_when_all_are_killed() -> None:
    service = Penstock(None, "--workers", "2").wait()
    try:
        workers = {str(pid) for pid in service.workers}
        assert workers <= set(mappings("memfd:penstock"))
        assert not workers & set(mappings("/dev/shm/")), "a file would be left"
        os.killpg(service.process.pid, signal.SIGKILL)
        wait_until(
            lambda: not workers & set(mappings("memfd:penstock")), "its memory to go", PATIENCE
        )
    finally:
        service.end()


def test_a_file_of_somebody_else_is_named(tmp_path: Path) -> None:
    path = tmp_path / "limits"
    path.write_text("PENSTOCK, but not really")
    service = Penstock(None, "--workers", "2", "--store", f"shared:{path}")
    try:
        service.said(r"cannot start: .*limits can be read or written by other users")
        assert service.process.wait(PATIENCE) == 1
    finally:
        service.end()


def test_services_on_one_path_share_a_file_whatever_their_rules_need(tmp_path: Path) -> None:
    path, first, second = tmp_path / "limits", new_folder() / "a.yaml", new_folder() / "b.yaml"
    first.write_text(LONG.replace("1000/hour", "30/hour"))
    second.write_text(LOG_IN)
    store = ("--store", f"shared:{path}", "--max-keys", "1000")
    one, two = Penstock(first, *store), None
    try:
        one.wait()
        two = Penstock(second, *store[:2]).wait()
        assert two.check({"user": "42"}).status == 200
    finally:
        one.end()
        if two is not None:
            two.end()
