"""The file behind a `SharedMemoryStore`: created, opened, and checked before it is trusted.

Everybody may put files into a directory such as ``/dev/shm``. So a file is used only if it is a
regular file, not a link, that belongs to this user and that nobody else can read or write. The
open file is checked, not its path.

A file without a name (`memory_file`) is passed on by its descriptor. It cannot be planted or
truncated, and disappears when the last process that holds it ends.
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
    """A descriptor of the file, which is created if there is none."""
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
    """Open the file again: locks belong to an open file description, not to the file."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)


def memory_file(layout: Layout) -> int:
    """A file in memory, without a name. Only the parts that are written to use memory."""
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
    """The layout of an open file, if it may be trusted."""
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
    """Take a shared lock on the file; tidy up if no other process has one.

    Then no lock inside the file can be held: they are created again, unfinished changes are
    undone, and the clock is set after a reboot.
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
    """Complete the file under another name, then link it to its own."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    try:
        fd = os.open(
            temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            # Reserve the space: a write must not fail because the disk is full.
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
    message = f"cannot make {path} of {layout.file_bytes} bytes: {error.strerror}"
    if error.errno != errno.ENOSPC:
        return message
    with contextlib.suppress(OSError):
        disk = os.statvfs(path.parent)
        message += f" ({disk.f_bavail * disk.f_frsize} bytes are free in {path.parent})"
    return (
        f"{message}; lower max_keys ({layout.max_keys}) or bytes_per_key ({layout.bytes_per_key})"
    )
