"""What every backend promises, for threads and for tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kv.shells import Replica, until
from penstock import InvalidKey, LimitError, RevisionConflict, StoreError, ValueTooLarge
from penstock.kv import LARGEST_VALUE, at_least

READS = ("local", "primary")


async def test_a_value_is_read_back(kv: Any) -> None:
    written = await kv.put("rules/api", "domain: api", who="ana", why="first")
    assert (written.revision, written.value, written.age) == (1, "domain: api", 0.0)
    for read in (*READS, at_least(1)):
        entry = await kv.get("rules/api", read=read)
        assert (entry.key, entry.value, entry.revision) == ("rules/api", "domain: api", 1)
        assert (entry.who, entry.why, entry.expires_at) == ("ana", "first", None)
        assert entry.at == written.at
        assert await kv.get("rules/other", read=read) is None


async def test_the_author_can_be_a_default(open_kv: Any) -> None:
    kv = open_kv(who="deploy")
    assert (await kv.put("a", "1")).who == "deploy"
    assert (await kv.put("a", "1", who="ana")).who == "ana"


@pytest.mark.parametrize(
    "value",
    ["", "x", b"", b"\x00\xff", "é" * 5_120, "a" * LARGEST_VALUE, b"\x00" * LARGEST_VALUE, "🚰"],
    ids=range(8),
)
async def test_values_keep_their_type_and_bytes(kv: Any, value: str | bytes) -> None:
    await kv.put("k", value)
    for read in READS:
        back = (await kv.get("k", read=read)).value
        assert (type(back), back) == (type(value), value)


async def test_a_value_that_is_too_large_is_a_clear_error(kv: Any) -> None:
    with pytest.raises(ValueTooLarge, match=r"'k' has 10241 bytes, and the largest has 10240: spl"):
        await kv.put("k", "a" * (LARGEST_VALUE + 1))
    with pytest.raises(TypeError, match=r"str or bytes, not dict: write json.dumps"):
        await kv.put("k", {"a": 1})
    assert await kv.get("k") is None


@pytest.mark.parametrize("key", ["", "a\nb", "a\x00", 7, None, "k" * 257, "\ud800", "é" * 129])
async def test_wrong_keys_are_refused(kv: Any, key: Any) -> None:
    for call in (kv.put(key, "x"), kv.get(key), kv.delete(key)):
        with pytest.raises(InvalidKey):
            await call


@pytest.mark.parametrize("key", ["k" * 256, "a b", "[*]?^\\-", "ключ/1", "{ns}:x", "%", "'\""])
async def test_any_short_text_is_a_key(kv: Any, key: str) -> None:
    await kv.put(key, "1")
    await kv.put("other", "2")
    for read in READS:
        assert (await kv.get(key, read=read)).key == key
        assert [entry.key for entry in await kv.list(key[:200], read=read)] == [key]


async def test_wrong_options_are_refused(kv: Any) -> None:
    for options in ({"expect": -1}, {"expect": "7"}, {"expect": True}):
        with pytest.raises(ValueError, match="expect is a revision"):
            await kv.put("k", "1", **options)
    with pytest.raises(LimitError, match="ttl"):
        await kv.put("k", "1", ttl=0)
    with pytest.raises(ValueError, match=r"read is 'local', 'primary' or at_least"):
        await kv.get("k", read="fresh")
    with pytest.raises(InvalidKey, match="who"):
        await kv.put("k", "1", who="w" * 101)
    with pytest.raises(InvalidKey, match="why"):
        await kv.put("k", "1", why="a\nb")
    assert await kv.list() == []


# Revisions -------------------------------------------------------------------------------


async def test_revisions_number_all_writes(kv: Any) -> None:
    revisions = [(await kv.put(key, "1")).revision for key in ("a", "b", "a")]
    assert [*revisions, await kv.delete("b")] == [1, 2, 3, 4]


async def test_compare_and_set(kv: Any) -> None:
    first = await kv.put("k", "1", expect=0)
    with pytest.raises(RevisionConflict, match="does not exist") as none:
        await kv.put("other", "1", expect=5)
    assert (none.value.expected, none.value.actual) == (5, 0)
    with pytest.raises(RevisionConflict, match="is at revision 1"):
        await kv.put("k", "2", expect=0)
    second = await kv.put("k", "2", expect=first.revision)
    with pytest.raises(RevisionConflict) as conflict:
        await kv.put("k", "3", expect=first.revision)
    assert (conflict.value.expected, conflict.value.actual) == (first.revision, second.revision)
    with pytest.raises(RevisionConflict):
        await kv.delete("k", expect=first.revision)
    assert (await kv.get("k")).value == "2"
    assert await kv.delete("k", expect=second.revision) == 3
    assert (await kv.put("k", "4", expect=0)).revision == 4


async def test_of_concurrent_writers_one_wins(open_kv: Any) -> None:
    writers = [open_kv() for _ in range(4)]

    async def count(kv: Any) -> int:
        won = 0
        for _ in range(5):
            while True:
                entry = await kv.get("n", read="primary")
                try:
                    await kv.put(
                        "n",
                        str(int(entry.value) + 1 if entry else 1),
                        expect=entry.revision if entry else 0,
                    )
                except RevisionConflict:
                    continue
                won += 1
                break
        return won

    assert await asyncio.gather(*[count(kv) for kv in writers]) == [5] * 4
    assert (await writers[0].get("n", read="primary")).value == "20"


async def test_nothing_to_delete(kv: Any) -> None:
    assert await kv.delete("k") is None
    assert await kv.delete("k", expect=0) is None
    assert (await kv.put("k", "1")).revision == 1


async def test_at_least_includes_a_write_of_somebody_else(open_kv: Any) -> None:
    reader, writer = open_kv(), open_kv()
    assert await reader.get("k") is None
    for n in range(20):
        written = await writer.put("k", str(n))
        assert (await reader.get("k", read=at_least(written.revision))).value == str(n)
        assert [e.value for e in await reader.list("", read=at_least(written.revision))] == [str(n)]


async def test_a_revision_that_was_never_written(kv: Any) -> None:
    await kv.put("k", "1")
    with pytest.raises(StoreError, match="is at revision 1 and does not have revision 9"):
        await kv.get("k", read=at_least(9))
    with pytest.raises(ValueError, match="whole number from 0"):
        at_least(-1)


async def test_own_writes_are_read_at_once(kv: Any) -> None:
    await kv.get("k")
    for n in range(20):
        await kv.put("k", str(n))
        assert (await kv.get("k")).value == str(n)
        if n % 5 == 4:
            await kv.delete("k")
            assert await kv.get("k") is None


# Lists -----------------------------------------------------------------------------------


async def test_lists_are_sorted_and_by_prefix(kv: Any) -> None:
    for key in ("b/2", "a/1", "b/1", "b", "c", "b/é"):
        await kv.put(key, key)
    await kv.delete("b/2")
    for read in READS:
        assert [entry.key for entry in await kv.list(read=read)] == ["a/1", "b", "b/1", "b/é", "c"]
        assert [entry.value for entry in await kv.list("b/", read=read)] == ["b/1", "b/é"]
        assert await kv.list("nothing", read=read) == []


async def test_many_keys(open_kv: Any) -> None:
    kv, other = open_kv(), open_kv()
    await asyncio.gather(*[kv.put(f"k/{n:04}", "v" * 50) for n in range(700)])
    for read in READS:
        assert len(await other.list("k/", read=read)) == 700


# Time to live ----------------------------------------------------------------------------


async def test_a_value_is_gone_after_its_time(open_kv: Any) -> None:
    kv, other = open_kv(), open_kv()
    replica = Replica(other.watch("t/"))
    written = await kv.put("t/1", "1", ttl="300ms")
    assert written.expires_at == pytest.approx(written.at + 0.3, abs=0.002)
    await kv.put("t/2", "2", ttl=3600)
    await until(lambda: any(change.kind == "expire" for change in replica.changes))
    await replica.until({"t/2": "2"})
    for read in READS:
        for each in (kv, other):
            assert [entry.key for entry in await each.list(read=read)] == ["t/2"]
            assert await each.get("t/1", read=read) is None
    assert (await kv.put("t/1", "again", expect=0)).value == "again"
    await replica.until({"t/1": "again", "t/2": "2"})
    await replica.close()


async def test_a_new_value_has_a_new_time_to_live(kv: Any) -> None:
    await kv.put("k", "1", ttl="200ms")
    await kv.put("k", "2")
    await kv.put("end", "", ttl="400ms")
    while await kv.get("end", read="primary") is not None:
        await asyncio.sleep(0.02)
    for read in READS:
        assert (await kv.get("k", read=read)).value == "2"


# Watches ---------------------------------------------------------------------------------


async def test_a_watch_begins_with_what_is_there(open_kv: Any) -> None:
    kv = open_kv()
    await kv.put("a/1", "1")
    await kv.put("b/1", "1")
    for each in (kv, open_kv()):
        replica = Replica(each.watch("a/"))
        await replica.until({"a/1": "1"})
        await replica.close()


async def test_a_watch_tells_every_kind_of_change(open_kv: Any) -> None:
    kv, other = open_kv(), open_kv()
    replica = Replica(other.watch("a/"))
    await kv.put("a/1", "1", who="ana", why="because")
    await replica.until({"a/1": "1"})
    await kv.put("b/1", "not watched")
    await kv.put("a/2", "2")
    await replica.until({"a/1": "1", "a/2": "2"})
    await kv.delete("a/1", who="bo", why="no longer")
    await replica.until({"a/2": "2"})
    first, second, third = replica.changes
    assert (first.kind, first.key, first.revision, first.who) == ("put", "a/1", 1, "ana")
    assert (first.previous, first.entry.why) == (0, "because")
    assert (second.kind, second.revision) == ("put", 3)
    assert (third.kind, third.entry, third.revision) == ("delete", None, 4)
    assert (third.who, third.why, third.previous) == ("bo", "no longer", 1)
    await replica.close()


async def test_a_slow_reader_gets_the_last_state(open_kv: Any) -> None:
    kv, other = open_kv(), open_kv()
    watch = other.watch("a/")
    for n in range(50):
        await kv.put(f"a/{n % 2}", str(n))
    await kv.delete("a/1")
    await other.sync()
    changes = await watch.batch()
    assert len(changes) <= 2
    last = {change.key: change for change in changes}
    assert last["a/0"].entry.value == "48"
    assert "a/1" not in last or last["a/1"].entry is None
    watch.close()


async def test_a_closed_watch_ends(open_kv: Any) -> None:
    kv = open_kv()
    watch = kv.watch("a/")
    waiting = asyncio.ensure_future(watch.__anext__())
    await asyncio.sleep(0.01)
    watch.close()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(waiting, 5)
    assert await watch.batch() == []


async def test_sync_waits_for_what_was_written(open_kv: Any) -> None:
    kv, other = open_kv(), open_kv()
    for n in range(20):
        written = await kv.put("k", str(n))
        assert await other.sync() >= written.revision
        assert (await other.get("k")).value == str(n)


async def test_a_trimmed_log(small_log: None, open_kv: Any) -> None:
    """A follower that slept too long: what it did not see put, it must not have; and more."""
    kv, other = open_kv(), open_kv()
    replica = Replica(other.watch(""))
    await kv.put("gone", "1")
    await kv.put("stays", "1")
    await kv.put("changes", "1")
    await replica.until({"gone": "1", "stays": "1", "changes": "1"})
    await kv.delete("gone")
    await kv.put("changes", "2")
    for n in range(10):
        await kv.put("new", str(n))
    await other.sync()
    await replica.until({"stays": "1", "changes": "2", "new": "9"})
    assert [change.revision for change in await kv.history()] == [15, 14, 13]
    assert await kv.change(3) is None
    await replica.close()


# History ---------------------------------------------------------------------------------


async def test_history_says_who_and_why(kv: Any) -> None:
    await kv.put("a", "1", who="ana", why="one")
    await kv.put("b", "2", who="bo")
    await kv.put("a", "3", who="cy", why="three")
    await kv.delete("a", who="di", why="four")
    history = await kv.history()
    assert [(c.revision, c.kind, c.key, c.who, c.why, c.previous) for c in history] == [
        (4, "delete", "a", "di", "four", 3),
        (3, "put", "a", "cy", "three", 1),
        (2, "put", "b", "bo", "", 0),
        (1, "put", "a", "ana", "one", 0),
    ]
    assert [c.revision for c in await kv.history("a", limit=2)] == [4, 3]
    assert [c.revision for c in await kv.history("a", before=4)] == [3, 1]
    assert await kv.history(before=1) == []
    assert (await kv.change(3)).entry.value == "3"
    assert (await kv.change(4)).entry is None
    assert await kv.change(9) is None
    with pytest.raises(ValueError, match="limit is from 1"):
        await kv.history(limit=0)


async def test_the_status_of_a_store_that_is_there(kv: Any) -> None:
    await kv.put("k", "1")
    await kv.sync()
    status = await kv.status()
    assert (status.connected, status.source, status.reason) == (True, "store", "")
    assert status.revision == 1
    assert 0 <= status.age < 10
    assert (await kv.get("k")).age < 10
