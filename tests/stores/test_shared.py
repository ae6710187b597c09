"""SharedMemoryStore: the conformance suite, and what only it promises."""

from __future__ import annotations

import gc
import os
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock import (
    Limit,
    Limiter,
    SharedMemoryStore,
    StoreError,
    StoreFileError,
    UnsupportedLimit,
    _mode,
)
from penstock.stores import layout
from penstock.testing import FakeClock, StoreConformance

HOUR = "1000/hour"


class TestSharedMemoryStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.made = 0

    def make_store(self, clock: FakeClock) -> SharedMemoryStore:
        self.made += 1
        return SharedMemoryStore(
            self.folder / f"{self.made}.store", max_keys=2_000, bytes_per_key=512, clock=clock
        )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "limits.store"


def in_child(work: Callable[[], int]) -> int:
    """Run it in a forked process; what it returns is the exit status."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(work())
        except BaseException:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_two_stores_on_one_path_share_their_keys(path: Path) -> None:
    one, two = (Limiter("3/hour", SharedMemoryStore(path)) for _ in range(2))
    assert [bool(limiter.hit("k")) for limiter in (one, two, one, two)] == [True] * 3 + [False]


def test_a_process_that_opens_the_path_shares_it(path: Path) -> None:
    limiter = Limiter(HOUR, SharedMemoryStore(path))
    limiter.hit("k")
    taken = in_child(
        lambda: sum(bool(Limiter(HOUR, SharedMemoryStore(path)).hit("k")) for _ in range(10))
    )
    assert taken == 10
    assert limiter.peek("k").remaining == 1000 - 11


def test_a_forked_child_uses_the_store_it_inherits(path: Path) -> None:
    limiter = Limiter(HOUR, SharedMemoryStore(path))
    assert in_child(lambda: sum(bool(limiter.hit("k")) for _ in range(10))) == 10
    assert limiter.peek("k").remaining == 990


def test_state_survives_all_processes(path: Path) -> None:
    with SharedMemoryStore(path) as store:
        Limiter(HOUR, store).hit("k", cost=600)
    with SharedMemoryStore(path) as store:
        assert Limiter(HOUR, store).peek("k").remaining == 400


def test_a_closed_store_says_so(path: Path) -> None:
    store = SharedMemoryStore(path)
    limiter = Limiter(HOUR, store)
    store.close()
    store.close()
    for ask in (limiter.hit, limiter.peek, limiter.reset, limiter.refund):
        with pytest.raises(StoreError, match="closed"):
            ask("k")
    with pytest.raises(StoreError, match="closed"):
        limiter.hit("k", "1/second")


# Files that are not what they should be ---------------------------------------


def refused(path: Path, **options: int) -> str:
    """The error that opening it raises; the file must be as it was."""
    before = path.read_bytes(), path.stat().st_mtime_ns
    with pytest.raises(StoreFileError) as error:
        SharedMemoryStore(path, **options)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert str(path) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("content", [b"", b"PNG", b"something else " * 1000])
def test_a_foreign_file_is_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert "is not a Penstock store" in refused(path)


@pytest.mark.parametrize("keep", [10, 4095, 4096, 100_000, -1])
def test_a_truncated_file_is_left_alone(path: Path, keep: int) -> None:
    SharedMemoryStore(path).close()
    path.write_bytes(path.read_bytes()[:keep])
    assert "cut off" in refused(path)


def test_a_file_of_another_version_is_left_alone(path: Path) -> None:
    SharedMemoryStore(path).close()
    content = bytearray(path.read_bytes())
    struct.pack_into("=I", content, 8, layout.VERSION + 1)
    path.write_bytes(content)
    assert f"layout version {layout.VERSION + 1}" in refused(path)


def test_a_damaged_header_is_left_alone(path: Path) -> None:
    SharedMemoryStore(path).close()
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    assert "checksum" in refused(path)


def test_a_file_of_the_other_core_is_left_alone(path: Path) -> None:
    other = layout.PURE_CORE if _mode.COMPILED else layout.COMPILED_CORE
    made = layout.Layout.for_keys(100_000, 256, other)
    path.touch(0o600)
    path.write_bytes(made.header() + bytes(made.file_bytes - layout.PAGE))
    assert "locks it otherwise" in refused(path)


def test_a_file_of_another_size_is_left_alone(path: Path) -> None:
    SharedMemoryStore(path, max_keys=1_000).close()
    assert "made with max_keys=1000" in refused(path, max_keys=2_000)
    assert "128" in refused(path, max_keys=1_000, bytes_per_key=128)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreFileError, match="No such file"):
        SharedMemoryStore(tmp_path / "missing" / "limits.store")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreFileError, match="Is a directory"):
        SharedMemoryStore(tmp_path)


@pytest.mark.parametrize("options", [{"max_keys": 0}, {"max_keys": 1.5}, {"bytes_per_key": 20}])
def test_bad_sizes_are_errors(path: Path, options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="is a"):
        SharedMemoryStore(path, **options)
    assert not path.exists()


def test_a_limit_that_does_not_fit_is_refused_with_the_reason(path: Path) -> None:
    store = SharedMemoryStore(path)
    long = Limit(1000, "hour", algorithm="sliding_log")
    with pytest.raises(UnsupportedLimit, match="needs 16064 bytes a key, this store has 256"):
        Limiter(long, store)
    with pytest.raises(UnsupportedLimit):
        Limiter("1/second", store).hit("k", long)
    assert Limiter(Limit(5, "hour", algorithm="sliding_log"), store).hit("k")


# Time, space, and dying ---------------------------------------------------------


def test_time_goes_on_over_a_reboot(path: Path) -> None:
    """The monotonic clock starts again: what was used half an hour ago has half come back."""
    with SharedMemoryStore(path) as store:
        Limiter(HOUR, store).hit("k", cost=1000)
    content = bytearray(path.read_bytes())
    # As if that machine had been up for ten days, and then down for half an hour.
    half = 1800 * 10**9
    (offset, seen) = struct.unpack_from("=qq", content, layout.OFFSET_AT)
    (tat,) = struct.unpack_from("=q", content, only_row(path))
    content[layout.BOOT_AT] ^= 1
    struct.pack_into("=qq", content, layout.OFFSET_AT, offset - 864_000 * 10**9, seen - half)
    struct.pack_into("=q", content, only_row(path), tat - half)
    path.write_bytes(content)
    with SharedMemoryStore(path) as store:
        assert Limiter(HOUR, store).peek("k").remaining in (500, 501)


def test_a_wall_clock_that_is_wrong_after_a_reboot_grants_nothing(path: Path) -> None:
    with SharedMemoryStore(path) as store:
        Limiter(HOUR, store).hit("k", cost=1000)
    content = bytearray(path.read_bytes())
    # The file's last time is a year ahead of this machine's clock.
    ahead = time.time_ns() + 10**9 * 86_400 * 365
    content[layout.BOOT_AT] ^= 1
    struct.pack_into("=q", content, layout.SEEN_AT, ahead)
    struct.pack_into("=q", content, only_row(path), ahead + 3600 * 10**9)
    path.write_bytes(content)
    with SharedMemoryStore(path) as store:
        refused = Limiter(HOUR, store).hit("k")
        assert not refused
        assert 3500 < refused.reset_after <= 3600


def only_row(path: Path) -> int:
    """Where in the file the row of its only key begins."""
    content = path.read_bytes()
    found = layout.read_layout(content, len(content), path, core())
    for index in range(found.sets):
        start = found.sets_at + index * found.set_bytes
        hashes = struct.unpack_from(f"={layout.WAYS}q", content, start)
        for way, h in enumerate(hashes):
            if h:
                return start + 8 * (layout.WAYS + way * found.row_words)
    raise AssertionError("no key in the file")


def core() -> int:
    return layout.COMPILED_CORE if _mode.COMPILED else layout.PURE_CORE


def test_a_full_store_evicts_and_counts(path: Path) -> None:
    store = SharedMemoryStore(path, max_keys=100)
    limiter = Limiter(HOUR, store)
    assert all(limiter.hit(f"k{i}", cost=100) for i in range(5_000))
    places = layout.Layout.for_keys(100, 256, 1).sets * layout.WAYS
    assert store.evictions == 5_000 - places


def test_the_key_that_would_be_forgotten_soonest_gives_way(path: Path) -> None:
    limiter = Limiter(HOUR, SharedMemoryStore(path, max_keys=1))
    for i in range(layout.WAYS):
        limiter.hit(f"k{i}", cost=i + 2)
    limiter.hit("new")
    assert limiter.peek("k0").remaining == 1000
    assert [limiter.peek(f"k{i}").remaining < 1000 for i in range(1, layout.WAYS)] == [True] * 31


def test_expired_keys_make_room_without_being_counted(path: Path) -> None:
    clock = FakeClock()
    store = SharedMemoryStore(path, max_keys=100, clock=clock)
    limiter = Limiter("10/second", store)
    for _ in range(20):
        assert all(limiter.hit(f"k{clock.now()}:{i}") for i in range(60))
        clock.advance(2)
    assert store.evictions == 0


@pytest.mark.parametrize("text", ["5/hour", "5/hour fixed_window", "5/hour sliding_window"])
def test_what_a_dead_process_left_half_written_is_undone(path: Path, text: str) -> None:
    """Its journal names the row and keeps the old words: put back on the next opening."""
    clock = FakeClock()
    with SharedMemoryStore(path, max_keys=10, clock=clock) as store:
        limiter = Limiter(text, store)
        limiter.hit("k", cost=3)
        before = repr(limiter.peek("k"))
    content, row = bytearray(path.read_bytes()), only_row(path)
    width = 8 * layout.Layout.for_keys(10, 256, core()).row_words
    journal = layout.PAGE + layout.LOCK_BYTES
    content[journal + 16 : journal + 16 + width] = content[row : row + width]
    struct.pack_into("=qq", content, journal, row, width // 8)
    content[row : row + width] = b"\x7f" * width
    path.write_bytes(content)
    with SharedMemoryStore(path, max_keys=10, clock=clock) as store:
        assert repr(Limiter(text, store).peek("k")) == before


# What other clocks, other processes and the garbage collector do to it ----------------


def test_a_wall_clock_limit_does_not_take_the_place_of_a_bucket(path: Path) -> None:
    """Machines sleep, and clocks are set: then the file's own time is behind the wall's."""
    SharedMemoryStore(path, max_keys=100).close()
    content = bytearray(path.read_bytes())
    (offset,) = struct.unpack_from("=q", content, layout.OFFSET_AT)
    struct.pack_into("=q", content, layout.OFFSET_AT, offset - 8 * 3600 * 10**9)
    path.write_bytes(content)
    store = SharedMemoryStore(path, max_keys=100)
    limiter = Limiter("1/day", store)
    for number in range(60):
        limiter.hit(f"bucket {number}")
    for number in range(60):
        limiter.hit(f"window {number}", "5/hour fixed_window")
    assert not any(limiter.hit(f"bucket {number}") for number in range(60))


def test_a_reservation_outlives_the_store_object(path: Path) -> None:
    reservation = Limiter(HOUR, SharedMemoryStore(path)).reserve("k", cost=3)
    gc.collect()
    reservation.settle(1)
    assert Limiter(HOUR, SharedMemoryStore(path)).peek("k").remaining == 999


@pytest.mark.parametrize("text", ["5/hour sliding_window", "5/hour sliding_log lockout 1h"])
def test_a_row_that_cannot_be_ours_is_as_good_as_none(path: Path, text: str) -> None:
    """After a loss of power, one page of a set may be older than another."""
    with SharedMemoryStore(path, max_keys=10) as store:
        Limiter(text, store).hit("k")
    content, row = bytearray(path.read_bytes()), only_row(path)
    for word in range(1, 8):
        struct.pack_into("=q", content, row + 8 * word, time.time_ns())
    path.write_bytes(content)
    with SharedMemoryStore(path, max_keys=10) as store:
        limiter = Limiter(text, store)
        limiter.peek("k")
        limiter.hit("k")
        limiter.reset("k")
        assert limiter.hit("k").remaining == 4


def test_a_second_store_on_the_path_does_not_open_the_first_ones_lock(path: Path) -> None:
    """Closing a descriptor must not let go of a lock that another one holds."""
    first = Limiter(HOUR, SharedMemoryStore(path))

    def work() -> int:
        limiter = Limiter(HOUR, SharedMemoryStore(path))
        return sum(bool(limiter.hit("k")) for _ in range(200))

    with ThreadPoolExecutor(4) as pool:
        other = [pool.submit(work) for _ in range(8)]
        mine = sum(bool(first.hit("k")) for _ in range(200))
    assert mine + sum(future.result() for future in other) == 1000
