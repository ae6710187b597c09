"""The file of a SharedMemoryStore is not trusted: whose it is, and what it says."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from penstock import Limit, Limiter, SharedMemoryStore, StoreError, StoreFileError, _mode
from penstock.stores import layout
from penstock.stores.shared import new_memory_file

HERE = Path(__file__).parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "limits.store"


# Whose it is ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602, 0o644])
def test_a_file_that_others_can_open_is_not_used(path: Path, mode: int) -> None:
    with SharedMemoryStore(path, max_keys=100) as store:
        Limiter("5/hour", store).hit("k")
    path.chmod(mode)
    before = path.read_bytes()
    with pytest.raises(StoreFileError, match=f"mode {mode:04o}.* delete it; or.* chmod 600"):
        SharedMemoryStore(path)
    assert path.read_bytes() == before
    path.chmod(0o600)
    SharedMemoryStore(path).close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_used(path: Path) -> None:
    SharedMemoryStore(path, max_keys=100).close()
    os.chown(path, 65534, 65534)
    with pytest.raises(StoreFileError, match=r"belongs to user 65534, .* runs as user 0"):
        SharedMemoryStore(path)


def test_a_new_file_is_for_its_owner_only(path: Path) -> None:
    before = os.umask(0)
    try:
        SharedMemoryStore(path, max_keys=100).close()
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [other.name for other in path.parent.iterdir()] == [path.name]


def test_links_pipes_and_folders_are_named(tmp_path: Path) -> None:
    real = tmp_path / "real"
    SharedMemoryStore(real, max_keys=100).close()
    (tmp_path / "link").symlink_to(real)
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, said in (
        ("link", "is a symbolic link"),
        ("nowhere", "is a symbolic link"),
        ("pipe", "not an ordinary file"),
        ("folder", "Is a directory"),
    ):
        with pytest.raises(StoreFileError, match=said):
            SharedMemoryStore(tmp_path / name)
    assert not (tmp_path / "missing").exists()


def test_who_gives_no_sizes_uses_the_file_as_it_is(path: Path) -> None:
    SharedMemoryStore(path, max_keys=100, bytes_per_key=64).close()
    with SharedMemoryStore(path) as store:
        assert (store.max_keys, store.bytes_per_key) == (100, 64)
    with pytest.raises(StoreFileError, match="made with max_keys=100"):
        SharedMemoryStore(path, max_keys=200)


def test_a_file_that_does_not_fit_says_how_much_is_free(tmp_path: Path) -> None:
    small = Path("/dev/shm")
    if not os.access(small, os.W_OK) or os.statvfs(small).f_bavail * 4096 > 2**46:
        pytest.skip("no file system with a bound")
    path = small / f"penstock-{os.getpid()}-large"
    with pytest.raises(StoreFileError, match=r"bytes are free in /dev/shm.*; lower max_keys"):
        SharedMemoryStore(path, max_keys=2**31, bytes_per_key=2**16)
    assert not path.exists()


def test_a_memory_file_has_no_name_and_cannot_be_cut_off() -> None:
    fd = new_memory_file(1000, 64)
    try:
        one, two = (Limiter("3/hour", SharedMemoryStore(fd)) for _ in range(2))
        assert [bool(each.hit("k")) for each in (one, two, one, two)] == [True] * 3 + [False]
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 4096)
    finally:
        os.close(fd)


# What it says -----------------------------------------------------------------------------


def rewrite(path: Path, at: int, *words: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(struct.pack(f"={len(words)}q", *words))


def only_row(path: Path) -> int:
    """Where in the file the row of its only key begins."""
    content = path.read_bytes()
    core = layout.COMPILED_CORE if _mode.COMPILED else layout.PURE_CORE
    found = layout.read_layout(content, len(content), path, core)
    for start in range(found.sets_at, found.file_bytes, found.set_bytes):
        hashes = struct.unpack_from(f"={layout.WAYS}q", content, start)
        for way, h in enumerate(hashes):
            if h:
                return start + 8 * (layout.WAYS + way * found.row_words)
    raise AssertionError("no key in the file")


@pytest.mark.parametrize("verb", ["hit", "peek", "refund", "charge"])
@pytest.mark.parametrize(
    ("text", "word", "value"),
    [
        ("5/hour fixed_window", 1, -(2**62)),
        ("5/hour sliding_window", 1, 2**62),
        ("5/hour sliding_window", 2, 2**40),
        ("5/hour sliding_log", 1, 2**40),  # the length: who believes it leaves the row
        ("5/hour sliding_log", 2, -(2**40)),
        ("5/hour sliding_log", 3, 2**40),
        ("5/hour sliding_log", 4, 2**62),
        ("5/hour sliding_log soft 3 for 1m lockout 1h", 2 + 3 + 1, 2**40),
    ],
)
def test_a_damaged_row_begins_anew_and_is_counted(
    path: Path, text: str, word: int, value: int, verb: str
) -> None:
    with SharedMemoryStore(path, max_keys=10) as store:
        counters = store.counters(Limit.parse(text))
        assert [counters.hit("k", 1).remaining for _ in range(2)] == [4, 3]
        rewrite(path, only_row(path) + 8 * word, value)
        getattr(counters, verb)("k", 1)
        assert store.repairs == 1
        taken = verb in ("hit", "charge")
        assert counters.peek("k", 1).remaining == 5 - taken
        assert store.repairs == 1


@pytest.mark.parametrize("words", [1, 63, 2**40, -1])
@pytest.mark.parametrize(
    "at", [-8, 8, 4096, 2**40, 2**62, -(2**63), "header", "lock", "hash", "inside"]
)
def test_a_damaged_journal_is_not_believed(path: Path, at: int | str, words: int) -> None:
    """Its offset was once handed to memcpy as it was."""
    with SharedMemoryStore(path, max_keys=10) as store:
        Limiter("5/hour", store).hit("k")
    row = only_row(path)
    place = {"header": 144, "lock": layout.PAGE, "hash": row - 8 * 900, "inside": row + 4}
    rewrite(path, layout.PAGE + layout.LOCK_BYTES, place.get(str(at), at), words, *[7] * 8)  # type: ignore[arg-type]
    with SharedMemoryStore(path) as store:
        assert Limiter("5/hour", store).peek("k").remaining == 4
        assert store.repairs == 1


@pytest.mark.parametrize(("at", "value"), [(layout.OFFSET_AT, 2**62), (layout.SEEN_AT, -1)])
def test_a_damaged_clock_begins_anew(path: Path, at: int, value: int) -> None:
    SharedMemoryStore(path, max_keys=10).close()
    rewrite(path, at, value)
    with SharedMemoryStore(path) as store:
        assert store.repairs == 1
        assert Limiter("5/hour", store).hit("k").reset_after == pytest.approx(720)


def test_a_clock_that_is_damaged_while_the_file_is_in_use_does_no_harm(path: Path) -> None:
    with SharedMemoryStore(path, max_keys=10) as store:
        limiter = Limiter("5/hour", store)
        limiter.hit("k", cost=5)
        rewrite(path, layout.OFFSET_AT, 2**61, 2**61)
        assert not limiter.hit("k")
        rewrite(path, layout.OFFSET_AT, 2**62)
        with pytest.raises(StoreFileError, match="clock makes no sense"):
            SharedMemoryStore(path)


@pytest.mark.skipif(not _mode.COMPILED, reason="the pure core has no locks in the file")
def test_a_damaged_lock_is_an_error(path: Path) -> None:
    with SharedMemoryStore(path, max_keys=1) as store:
        limiter = Limiter("5/hour", store)
        limiter.hit("k")
        with path.open("r+b") as file:
            file.seek(layout.PAGE)
            file.write(b"\xff" * 40)
        with pytest.raises(StoreError, match="one of its locks is none"):
            limiter.hit("k")
    with SharedMemoryStore(path) as store:
        assert Limiter("5/hour", store).hit("k").remaining == 3


# What happens to it while it is in use ----------------------------------------------------

VERBS = {
    "hit": 'limiter.hit("k")',
    "peek": 'limiter.peek("k")',
    "refund": 'limiter.refund("k")',
    "reset": 'limiter.reset("k")',
    "evictions": "store.evictions",
    "hit_each": 'store.hit_each([(limiter.default, "k", 1), (other, "k", 1)])',
}


def outcome(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Of a process of its own: what does not come back, or crashes, would take us along."""
    program = "import os, sys\nfrom penstock import *\n" + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], timeout=60, capture_output=True, text=True
    )


@pytest.mark.parametrize("size", [0, 100, 4096])
@pytest.mark.parametrize("verb", VERBS)
def test_a_file_that_is_cut_off_while_in_use_is_an_error(path: Path, verb: str, size: int) -> None:
    code = f"""
        store = SharedMemoryStore(sys.argv[1], max_keys=1000)
        limiter = Limiter("5/hour sliding_window", store)
        limiter.hit("k")
        other = store.counters(Limit.parse("6/hour"))
        os.truncate(sys.argv[1], {size})
        said = []
        for _ in range(3):
            try:
                {VERBS[verb]}
            except StoreError as error:
                said.append(str(error))
        # The first page is all that this asks for, and it may still be there.
        if "{verb}" != "evictions" or {size} == 0:
            assert len(said) == 3 and all("was cut off while it was in use" in one for one in said)
        # Another store, and the end of this one, are not touched by it.
        other = Limiter("5/hour", SharedMemoryStore(sys.argv[1] + ".other", max_keys=10))
        del limiter, store
        assert other.hit("k").remaining == 4
        print("done")
    """
    ended = outcome(code, str(path))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_a_file_that_is_cut_off_at_any_moment_is_an_error(path: Path) -> None:
    """Also between a lock and its row: another process cuts, over and over."""
    code = """
        import threading, time
        cuts = stop = 0
        def cut():
            while not stop:
                time.sleep(0.0005)
                try:
                    os.truncate(sys.argv[1], 0)
                except FileNotFoundError:
                    pass
        threading.Thread(target=cut).start()
        end = time.monotonic() + 60
        try:
            while cuts < 100 and time.monotonic() < end:
                try:
                    limiter = Limiter("500/hour sliding_log",
                        SharedMemoryStore(sys.argv[1], max_keys=1000, bytes_per_key=16384))
                    while True:
                        limiter.hit("k")
                except StoreError:
                    cuts += 1
                    os.unlink(sys.argv[1])
        finally:
            stop = 1
        print("done" if cuts > 3 else cuts)
    """
    ended = outcome(code, str(path))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.skipif(not _mode.COMPILED, reason="the pure core maps nothing")
@pytest.mark.parametrize("before", ["", "import faulthandler; faulthandler.enable()"])
@pytest.mark.parametrize("after", ["", "import faulthandler; faulthandler.enable()"])
def test_other_bus_errors_end_the_process_as_ever(path: Path, before: str, after: str) -> None:
    code = f"""
        import mmap
        {before}
        store = SharedMemoryStore(sys.argv[1], max_keys=10)
        {after}
        SharedMemoryStore(sys.argv[1])
        with open(sys.argv[1] + ".own", "w+b") as file:
            file.truncate(8192)
            own = mmap.mmap(file.fileno(), 8192)
            file.truncate(0)
            own[5000]
    """
    ended = outcome(code, str(path))
    assert ended.returncode == -signal.SIGBUS
    assert ("Fatal Python error: Bus error" in ended.stderr) == bool(before or after)


def test_the_fuzzer_finds_nothing() -> None:
    """Bytes of all kinds, damaged at rest and in use; ``make fuzz`` does more of it."""
    count = "150" if _mode.COMPILED else "40"
    ended = subprocess.run(
        [sys.executable, str(HERE / "fuzz_mapped.py"), "--count", count],
        timeout=300, capture_output=True, text=True,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "nothing found" in ended.stdout
