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

CHUNK = 1 << 20
_GZIP, _ZSTD, _BZIP2, _XZ = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ"
# A line that is longer than this is no line of an access log.
LONGEST_LINE = 1 << 20


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

    def chunks(self) -> Iterator[bytes]:
        """Whole lines, about `CHUNK` bytes at a time; the last one ends with a line feed, too."""
        rest = b""
        skipping = False
        while True:
            data = self._read()
            if not data:
                break
            end = data.rfind(b"\n")
            if skipping:
                first = data.find(b"\n")
                if first < 0:
                    continue
                data, end, skipping = data[first + 1 :], end - first - 1, False
            if end < 0:
                rest += data
                if len(rest) > LONGEST_LINE:
                    self.overlong += 1
                    rest, skipping = b"", True
                continue
            yield rest + data[: end + 1] if rest else memoryview(data)[: end + 1]  # type: ignore[misc]
            rest = data[end + 1 :]
        if rest and not skipping:
            yield rest + b"\n"

    def _read(self) -> bytes:
        try:
            data: bytes = self._stream.read(CHUNK)
        except (OSError, EOFError, ValueError) as error:
            raise LogError(f"{self.name}: {error}") from None
        except Exception as error:  # zlib.error and zstd's own are no OSError
            if type(error).__module__.partition(".")[0] in ("zlib", "isal", "zstandard", "lzma"):
                raise LogError(f"{self.name}: {error}") from None
            raise
        return data

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
