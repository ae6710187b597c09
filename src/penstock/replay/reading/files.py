"""Opens logs: plain, gzip, zstandard, or from standard input; by name or by pattern."""

from __future__ import annotations

import glob
import gzip
import io
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from penstock.replay.reading.formats import LogError

# Bytes that are read at a time: what was read is still in the processor's cache when it is
# scanned. A line that is longer is no line of an access log.
CHUNK = 1 << 19
_GZIP, _ZSTD, _BZIP2, _XZ = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ"


class LogFile:
    """The bytes of one log.

    ``size`` and ``position`` are those of the file as it lies on disk, to show the progress.
    """

    def __init__(self, name: str, raw: BinaryIO, size: int) -> None:
        self.name = name
        self.size = size
        self._raw = raw
        self._stream: Any = _decompressed(name, raw)
        self.overlong = 0

    @property
    def position(self) -> int:
        try:
            return self._raw.tell()
        except (OSError, ValueError):
            return 0

    def chunks(self, buffers: int = 1, size: int = CHUNK) -> Iterator[memoryview]:
        """Whole lines, up to ``size`` bytes at a time; the last one ends with a line feed, too.

        A chunk is good until as many more as there are ``buffers`` have been asked for.
        """
        memory = [bytearray(size + 1) for _ in range(buffers)]
        views = [memoryview(each) for each in memory]
        at = kept = 0  # kept: bytes of a line that is not complete
        skipping = False
        while count := self._read_into(views[at][kept:size]):
            filled = kept + count
            start = memory[at].find(b"\n", 0, filled) + 1 if skipping else 0
            if skipping and not start:
                continue
            skipping = False
            end = memory[at].rfind(b"\n", start, filled) + 1
            if not end and filled < size:
                kept = filled
                continue
            if not end:
                self.overlong += 1
                kept, skipping = 0, True
                continue
            rest = views[at][end:filled]
            after = (at + 1) % buffers
            if end > start:
                yield views[at][start:end]
            kept = len(rest)
            views[after][:kept] = rest
            at = after
        if kept and not skipping:
            memory[at][kept] = ord("\n")
            yield views[at][: kept + 1]

    def _read_into(self, view: memoryview) -> int:
        try:
            size: int = self._stream.readinto(view)
        except (OSError, EOFError, ValueError) as error:
            raise LogError(f"{self.name}: {error}") from None
        except Exception as error:  # zlib.error and zstd's own are no OSError
            if type(error).__module__.partition(".")[0] in ("zlib", "isal", "zstandard", "lzma"):
                raise LogError(f"{self.name}: {error}") from None
            raise
        return size

    def close(self) -> None:
        self._stream.close()
        if self._raw is not self._stream and self._raw is not sys.stdin.buffer:
            self._raw.close()


def open_logs(names: Iterable[str | Path]) -> list[LogFile]:
    """``-`` is standard input; a name with ``*``, ``?`` or ``[`` stands for all that it matches."""
    return [_open(name) for name in _expanded(names)]


def _expanded(names: Iterable[str | Path]) -> list[str]:
    out: list[str] = []
    for name in map(str, names):
        if name != "-" and any(sign in name for sign in "*?[") and not Path(name).exists():
            matches = sorted(glob.glob(name, recursive=True))
            if not matches:
                raise LogError(f"no file matches {name!r}")
            out += [match for match in matches if Path(match).is_file()]
        else:
            out.append(name)
    return list(dict.fromkeys(out))


def _open(name: str) -> LogFile:
    if name == "-":
        return LogFile("standard input", sys.stdin.buffer, 0)
    try:
        raw = open(name, "rb")  # noqa: SIM115  # LogFile closes it
        return LogFile(name, raw, Path(name).stat().st_size)
    except OSError as error:
        raise LogError(f"{name}: {error.strerror or error}") from None


def _decompressed(name: str, raw: BinaryIO) -> Any:
    if not raw.seekable():
        raw = io.BufferedReader(raw, 1 << 16) if not hasattr(raw, "peek") else raw  # type: ignore[type-var]
        start = raw.peek(6)[:6]
    else:
        start = raw.read(6)
        raw.seek(0)
    if start.startswith(_GZIP):
        try:
            from isal import igzip as faster
        except ModuleNotFoundError:
            return gzip.GzipFile(fileobj=raw)
        opened: Any = faster
        return opened.IGzipFile(fileobj=raw)
    if start.startswith(_ZSTD):
        return _zstd(name, raw)
    if start.startswith(_BZIP2):
        import bz2

        return bz2.BZ2File(raw)
    if start.startswith(_XZ):
        import lzma

        return lzma.LZMAFile(raw)
    return raw


def _zstd(name: str, raw: BinaryIO) -> Any:
    try:
        from compression import zstd  # Python 3.14

        return zstd.ZstdFile(raw)
    except ModuleNotFoundError:
        pass
    try:
        import zstandard
    except ModuleNotFoundError:
        raise LogError(
            f"{name} is compressed by zstandard: pip install 'penstock[report]', or use"
            " zstdcat and -"
        ) from None
    return zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
