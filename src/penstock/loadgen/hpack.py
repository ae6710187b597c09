"""HPACK (RFC 7541), as much as a client of gRPC needs: it reads all that a server may send.

What is written is written without the dynamic table and without Huffman's code: a few bytes
more, and no state.

Huffman's code of the RFC is canonical: symbols by the length of their code, and then by
their number, get consecutive codes. So a list of symbols for each length says it all. Symbols
that are no printable ASCII have codes of 19 bits or more; headers of gRPC have none, and a
text that does is read up to the first.
"""

from __future__ import annotations

from collections import deque

# What every table begins with; a name alone where the value is empty.
_WORDS = (
    ":authority=|:method=GET|:method=POST|:path=/|:path=/index.html|:scheme=http|"
    ":scheme=https|:status=200|:status=204|:status=206|:status=304|:status=400|:status=404|"
    ":status=500|accept-charset=|accept-encoding=gzip, deflate|accept-language=|"
    "accept-ranges=|accept=|access-control-allow-origin=|age=|allow=|authorization=|"
    "cache-control=|content-disposition=|content-encoding=|content-language=|"
    "content-length=|content-location=|content-range=|content-type=|cookie=|date=|etag=|"
    "expect=|expires=|from=|host=|if-match=|if-modified-since=|if-none-match=|if-range=|"
    "if-unmodified-since=|last-modified=|link=|location=|max-forwards=|"
    "proxy-authenticate=|proxy-authorization=|range=|referer=|refresh=|retry-after=|server=|"
    "set-cookie=|strict-transport-security=|transfer-encoding=|user-agent=|vary=|via=|"
    "www-authenticate="
)
_STATIC = tuple((name, value) for name, _, value in (w.partition("=") for w in _WORDS.split("|")))
_BY_LENGTH = {
    5: "012aceiost",
    6: " %-./3456789=A_bdfghlmnpru",
    7: ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: "&*,;XZ",
    10: '!"()?',
    11: "'+|",
    12: "#>",
    13: "\0$@[]~",
    14: "^}",
    15: "<`{",
}
_TABLE_SIZE = 4096
Header = tuple[str, str]


class HpackError(ValueError):
    """A block of headers that cannot be read."""


def _codes() -> dict[tuple[int, int], str]:
    codes: dict[tuple[int, int], str] = {}
    code = 0
    length = 5
    for bits, symbols in _BY_LENGTH.items():
        code <<= bits - length
        length = bits
        for symbol in symbols:
            codes[bits, code] = symbol
            code += 1
    return codes


_CODES = _codes()


def huffman(data: bytes) -> str:
    out = []
    code = length = 0
    for byte in data:
        for bit in range(7, -1, -1):
            code = code << 1 | byte >> bit & 1
            length += 1
            symbol = _CODES.get((length, code))
            if symbol is not None:
                out.append(symbol)
                code = length = 0
            elif length > 15:
                return "".join(out)
    return "".join(out)


class Decoder:
    """The headers of one connection, in the order of their blocks.

    ``version`` changes whenever the dynamic table does: until then, a block means the same.
    """

    def __init__(self) -> None:
        self._dynamic: deque[Header] = deque()
        self._size = 0
        self._most = _TABLE_SIZE
        self.version = 0

    def decode(self, block: bytes) -> list[Header]:
        headers: list[Header] = []
        at = 0
        try:
            while at < len(block):
                byte = block[at]
                if byte & 0x80:  # name and value
                    index, at = _integer(block, at, 7)
                    headers.append(self._entry(index))
                elif byte & 0x40:  # to be remembered
                    header, at = self._literal(block, at, 6)
                    headers.append(header)
                    self._remember(header)
                elif byte & 0x20:  # a new size of the table
                    self._most, at = _integer(block, at, 5)
                    self._shrink()
                else:
                    header, at = self._literal(block, at, 4)
                    headers.append(header)
        except IndexError:
            raise HpackError("a block of headers ends too early") from None
        return headers

    def _literal(self, block: bytes, at: int, bits: int) -> tuple[Header, int]:
        index, at = _integer(block, at, bits)
        if index:
            name = self._entry(index)[0]
        else:
            name, at = _text(block, at)
        value, at = _text(block, at)
        return (name, value), at

    def _entry(self, index: int) -> Header:
        if 0 < index <= len(_STATIC):
            name, value = _STATIC[index - 1]
            return name, value
        try:
            return self._dynamic[index - len(_STATIC) - 1]
        except IndexError:
            raise HpackError(f"no header {index} in the table") from None

    def _remember(self, header: Header) -> None:
        self._dynamic.appendleft(header)
        self._size += _size(header)
        self._shrink()

    def _shrink(self) -> None:
        while self._size > self._most and self._dynamic:
            self._size -= _size(self._dynamic.pop())
        self.version += 1


def encode(headers: list[Header]) -> bytes:
    out = b""
    for name, value in headers:
        out += b"\x00" + _written(name) + _written(value)
    return out


def _size(header: Header) -> int:
    return len(header[0]) + len(header[1]) + 32


def _written(text: str) -> bytes:
    data = text.encode("latin-1")
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest = len(data) - 127
    out = bytearray([127])
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out) + data


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    number = block[at] & most
    at += 1
    if number < most:
        return number, at
    shift = 0
    while True:
        byte = block[at]
        at += 1
        number += (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at
        if shift > 28:
            raise HpackError("a number that is too large")


def _text(block: bytes, at: int) -> tuple[str, int]:
    coded = block[at] & 0x80
    length, at = _integer(block, at, 7)
    data = block[at : at + length]
    if len(data) < length:
        raise IndexError
    return (huffman(data) if coded else data.decode("latin-1")), at + length
