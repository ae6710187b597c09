"""Values as they are stored: one byte that says how, and the value, compressed where that pays.

::

    0x01  as it is     0x11  text in UTF-8, as it is
    0x02  zlib         0x12  text, zlib
    0x03  zstd         0x13  text, zstd

A value is compressed from 512 bytes on, and only if that makes it 10 % smaller. Smaller values
gain nothing: 162 bytes of rules stay 162 bytes. Decompression never produces more than the
largest value, so a forged one cannot fill the memory.
"""

from __future__ import annotations

import zlib
from typing import Any, Literal

from penstock.errors import StoreError, ValueTooLarge
from penstock.kv.entry import Value

LARGEST_VALUE = 10_240
# What a stored value may take at most: nothing is stored that compression has made larger.
LARGEST_PAYLOAD = LARGEST_VALUE + 1

Compression = Literal["zlib", "zstd", "off"]
COMPRESSIONS = ("zlib", "zstd", "off")

_PLAIN, _ZLIB, _ZSTD = 1, 2, 3
_TEXT = 0x10
_WORTH_TRYING = 512  # bytes
_WORTH_KEEPING = 0.9  # of the size
_ZSTD_LEVEL = 3


def check_compression(name: object) -> Compression:
    if name not in COMPRESSIONS:
        raise ValueError(f"compression is one of {', '.join(COMPRESSIONS)}, not {name!r:.50}")
    if name == "zstd":
        _zstd()
    return name  # type: ignore[return-value]  # it is one of them


def encode(key: str, value: object, compression: Compression = "zlib") -> bytes:
    """`ValueTooLarge` above 10 KB, before compression."""
    if isinstance(value, str):
        data, text = value.encode(), _TEXT
    elif isinstance(value, bytes | bytearray | memoryview):
        data, text = bytes(value), 0
    else:
        raise TypeError(
            f"a value is a str or bytes, not {type(value).__name__}: write json.dumps(value) for"
            " other data"
        )
    if len(data) > LARGEST_VALUE:
        raise ValueTooLarge(
            f"the value of {key!r:.100} has {len(data)} bytes, and the largest has"
            f" {LARGEST_VALUE}: split it over several keys, or store where it is"
        )
    if len(data) >= _WORTH_TRYING and compression != "off":
        codec, smaller = (
            (_ZLIB, zlib.compress(data, 6))
            if compression == "zlib"
            else (_ZSTD, _zstd().compress(data, _ZSTD_LEVEL))
        )
        if len(smaller) <= len(data) * _WORTH_KEEPING:
            return bytes([codec | text]) + smaller
    return bytes([_PLAIN | text]) + data


def decode(key: str, payload: bytes) -> Value:
    """`StoreError` if this was not written by `encode`."""
    codec = payload[0] if payload else 0
    try:
        data = _decompressed(codec & 0x0F, payload[1:])
        return data.decode() if codec & _TEXT else data
    except (ValueError, zlib.error) as error:
        raise StoreError(f"the value of {key!r:.100} in the store is damaged: {error}") from None


def _decompressed(codec: int, data: bytes) -> bytes:
    if codec == _PLAIN:
        return data
    if codec == _ZLIB:
        stream = zlib.decompressobj()
        value = stream.decompress(data, LARGEST_VALUE)
        if not stream.eof:
            raise ValueError("it is cut short, or longer than a value may be")
        return value
    if codec == _ZSTD:
        return _zstd().decompress(data)
    raise ValueError(f"it was written in an unknown way ({codec})")


class _StandardZstd:
    """`compression.zstd` of Python 3.14."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def compress(self, data: bytes, level: int) -> bytes:
        smaller: bytes = self._module.compress(data, level)
        return smaller

    def decompress(self, data: bytes) -> bytes:
        stream = self._module.ZstdDecompressor()
        try:
            value: bytes = stream.decompress(data, LARGEST_VALUE)
        except self._module.ZstdError as error:
            raise ValueError(str(error)) from None
        if not stream.eof:
            raise ValueError("it is cut short, or longer than a value may be")
        return value


class _InstalledZstd:
    """The package ``zstandard``."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def compress(self, data: bytes, level: int) -> bytes:
        smaller: bytes = self._module.ZstdCompressor(level=level).compress(data)
        return smaller

    def decompress(self, data: bytes) -> bytes:
        try:
            size = self._module.get_frame_parameters(data).content_size
            if size > LARGEST_VALUE:
                raise ValueError("it is longer than a value may be")
            value: bytes = self._module.ZstdDecompressor().decompress(
                data, max_output_size=LARGEST_VALUE
            )
        except self._module.ZstdError as error:
            raise ValueError(str(error)) from None
        return value


def _zstd() -> _StandardZstd | _InstalledZstd:
    try:
        from compression import zstd

        return _StandardZstd(zstd)
    except ModuleNotFoundError:
        pass
    try:
        import zstandard  # type: ignore[import-not-found,unused-ignore]  # may not be installed

        return _InstalledZstd(zstandard)
    except ModuleNotFoundError:
        raise StoreError(
            "zstd needs Python 3.14, or: pip install zstandard. Every reader needs it, too; zlib"
            " works everywhere"
        ) from None
