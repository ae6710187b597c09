"""The file behind a `SharedMemoryStore`: made, found, and checked before it is trusted.

A file with a name lies in a folder such as ``/dev/shm``, where everybody may put files. So
it is used only if it is an ordinary file (not a link to one) that belongs to this user and
that nobody else can read or write. All of this is asked of the open file, not of its path.

A file without a name (`memory_file`) is handed on by its descriptor. It cannot be planted
or cut off, and it is gone when the last process that holds it ends, however that ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import struct
from pathlib import Path
from typing import Any

from penstock.errors import StoreFileError
from penstock.stores.layout import (
    MAGIC,
    OFFSET_AT,
    PAGE,
    REPAIRS_AT,
    Layout,
    carry_clock,
    clock_makes_sense,
    read_layout,
)

_OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK


def open_file(path: Path, wanted: Layout) -> int:
    """A descriptor of the file, which is made if there is none."""
    for _ in range(100):
        try:
            return os.open(path, _OPEN | os.O_NOFOLLOW)
        except FileNotFoundError:
            _make_file(path, wanted)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise StoreFileError(
                    f"{path} is a symbolic link, which is not followed: give the path of the"
                    " file itself"
                ) from None
            raise StoreFileError(f"cannot open {path}: {error.strerror}") from error
    raise StoreFileError(f"cannot open {path}: it keeps disappearing")


def open_again(fd: int) -> int:
    """The same file, opened anew: locks belong to an opening, not to a file."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)


def memory_file(layout: Layout) -> int:
    """A file without a name, in memory. Memory is used for the parts that are written to."""
    try:
        fd = os.memfd_create("penstock", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.fchmod(fd, 0o600)
            os.ftruncate(fd, layout.file_bytes)
            os.pwrite(fd, layout.header(), 0)
            fcntl.fcntl(
                fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            )
        except BaseException:
            os.close(fd)
            raise
    except (OSError, OverflowError) as error:
        raise StoreFileError(
            f"cannot make shared memory of {layout.file_bytes} bytes: {error}"
        ) from error
    return fd


def checked_layout(fd: int, path: Path, core: int) -> Layout:
    """What an open file says of itself, if it may be trusted."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise StoreFileError(f"{path} is not an ordinary file: it was left as it is")
    page = os.pread(fd, PAGE, 0)
    if page[: len(MAGIC)] != MAGIC:
        raise StoreFileError(f"{path} is not a Penstock store: it was left as it is")
    if status.st_uid != os.geteuid():
        raise StoreFileError(
            f"{path} belongs to user {status.st_uid}, and this process runs as user"
            f" {os.geteuid()}: run all processes as one user, or use another path"
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise StoreFileError(
            f"{path} can be read or written by other users (mode {mode:04o}): delete it; or,"
            f" if you trust what is in it, chmod 600 {path}"
        )
    return read_layout(page, status.st_size, path, core)


def attach(fd: int, path: Path, mapped: Any) -> None:
    """Everyone who uses the file shares a lock on it; who is alone may tidy up.

    Alone means that no lock in the file can be held by anybody: they are made
    anew, unfinished changes are undone, and the clock is carried over a reboot.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(fd, fcntl.LOCK_SH)
    else:
        page = bytearray(_first_page(fd, path))
        if carry_clock(page):
            (repairs,) = struct.unpack_from("=q", page, REPAIRS_AT)
            struct.pack_into("=q", page, REPAIRS_AT, repairs + 1)
        os.pwrite(fd, page, 0)
        mapped.tidy()
        fcntl.flock(fd, fcntl.LOCK_SH)
    (offset,) = struct.unpack_from("=q", _first_page(fd, path), OFFSET_AT)
    if not clock_makes_sense(offset):
        raise StoreFileError(
            f"{path} is damaged: its clock makes no sense; stop the processes that use it and"
            " delete it"
        )
    mapped.set_clock(offset)


def _first_page(fd: int, path: Path) -> bytes:
    page = os.pread(fd, PAGE, 0)
    if len(page) < PAGE:  # since it was checked
        raise StoreFileError(f"{path} was cut off while it was being opened: delete it")
    return page


def _make_file(path: Path, layout: Layout) -> None:
    """Whole before it has its name."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    try:
        fd = os.open(
            temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            # Reserved, not only promised: a full disk must not be found out by a write.
            os.posix_fallocate(fd, 0, layout.file_bytes)
            os.pwrite(fd, layout.header(), 0)
            with contextlib.suppress(FileExistsError):  # another process was first
                os.link(temporary, path)
        finally:
            os.close(fd)
            os.unlink(temporary)
    except OSError as error:
        raise StoreFileError(_cannot_make(path, layout, error)) from error


def _cannot_make(path: Path, layout: Layout, error: OSError) -> str:
    said = f"cannot make {path} of {layout.file_bytes} bytes: {error.strerror}"
    if error.errno != errno.ENOSPC:
        return said
    with contextlib.suppress(OSError):
        there = os.statvfs(path.parent)
        said += f" ({there.f_bavail * there.f_frsize} bytes are free in {path.parent})"
    return f"{said}; lower max_keys ({layout.max_keys}) or bytes_per_key ({layout.bytes_per_key})"
