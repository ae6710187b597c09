"""HTTP/2 frames made and read by hand, so that they can be wrong in any way."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 5, 6, 7, 8, 9
END_STREAM = ACK = 1
END_HEADERS, PADDED = 4, 8

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3
STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL = 5, 6, 7, 8
COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 9, 11

Pairs = list[tuple[str, str]]


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def settings(**values: int) -> bytes:
    """``settings(window=0)``: only what the tests need."""
    ids = {"streams": 3, "window": 4, "frame_size": 5, "header_bytes": 6}
    return frame(
        SETTINGS, payload=b"".join(struct.pack(">HI", ids[name], n) for name, n in values.items())
    )


HELLO = PREFACE + settings()


def message(data: bytes, *, flag: int = 0, length: int | None = None) -> bytes:
    """A gRPC message: what a DATA frame carries."""
    return struct.pack(">BI", flag, len(data) if length is None else length) + data


def _text(data: bytes) -> bytes:
    n = len(data)
    if n < 127:
        return bytes([n]) + data
    more, rest = [127], n - 127
    while rest >= 128:
        more.append(rest % 128 + 128)
        rest //= 128
    return bytes([*more, rest]) + data


def block(fields: Iterable[tuple[str, str]]) -> bytes:
    """A header block without any compression."""
    return b"".join(
        b"\0" + _text(name.encode()) + _text(value.encode("latin-1")) for name, value in fields
    )


def head(path: str, *more: tuple[str, str], drop: Iterable[str] = (), **other: str) -> Pairs:
    """The fields of a gRPC request; ``other`` replaces (``method="GET"``), ``drop`` leaves out."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    for name, value in other.items():
        fields[":" + name if ":" + name in fields else name.replace("_", "-")] = value
    return [(name, value) for name, value in fields.items() if name not in drop] + list(more)


def request(path: str, data: bytes, stream: int = 1, **other: str) -> bytes:
    """A whole unary request."""
    return frame(HEADERS, END_HEADERS, stream, block(head(path, **other))) + frame(
        DATA, END_STREAM, stream, message(data)
    )


@dataclass
class Frame:
    """One that came from the server; header blocks are decoded."""

    kind: int
    flags: int
    stream: int
    payload: bytes
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def code(self) -> int:
        """Of RST_STREAM and GOAWAY."""
        return int.from_bytes(self.payload[:4] if self.kind == RST_STREAM else self.payload[4:8])

    @property
    def last_stream(self) -> int:
        """Of GOAWAY."""
        return int.from_bytes(self.payload[:4])

    @property
    def text(self) -> str:
        """Of GOAWAY."""
        return self.payload[8:].decode()


class _Field(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.POINTER(ctypes.c_char)),
        ("value", ctypes.POINTER(ctypes.c_char)),
        ("name_length", ctypes.c_size_t),
        ("value_length", ctypes.c_size_t),
        ("flags", ctypes.c_uint8),
    ]


class Reader:
    """Bytes of a server to frames. Header blocks are read by the library that wrote them."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libnghttp2.so.14")
        self._library.nghttp2_hd_inflate_hd2.restype = ctypes.c_ssize_t
        self._inflater = ctypes.c_void_p()
        self._library.nghttp2_hd_inflate_new(ctypes.byref(self._inflater))
        self._rest = b""

    def __del__(self) -> None:
        self._library.nghttp2_hd_inflate_del(self._inflater)

    def read(self, data: bytes) -> list[Frame]:
        """The frames that are complete by now."""
        self._rest += data
        found = []
        while len(self._rest) >= 9:
            end = 9 + int.from_bytes(self._rest[:3])
            if len(self._rest) < end:
                break
            kind, flags, stream = struct.unpack(">BBI", self._rest[3:9])
            one = Frame(kind, flags, stream, self._rest[9:end])
            if kind == HEADERS:
                assert flags & END_HEADERS
                one.fields = dict(self._fields(one.payload))
            found.append(one)
            self._rest = self._rest[end:]
        return found

    def _fields(self, data: bytes) -> Pairs:
        found: Pairs = []
        while True:
            one, flags = _Field(), ctypes.c_int()
            size = ctypes.c_size_t(len(data))
            n = self._library.nghttp2_hd_inflate_hd2(
                self._inflater, ctypes.byref(one), ctypes.byref(flags), data, size, 1
            )
            assert n >= 0, n
            data = data[n:]
            if flags.value & 2:
                name, value = one.name[: one.name_length], one.value[: one.value_length]
                found.append((name.decode(), value.decode()))
            if flags.value & 1:
                self._library.nghttp2_hd_inflate_end_headers(self._inflater)
                return found
