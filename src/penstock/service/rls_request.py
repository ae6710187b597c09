"""Reads Envoy's rate limit requests (envoy.service.ratelimit.v3), as protobuf parsers do.

::

    field    tag (number << 3 | wire type), value
    known    of its own wire type: taken. A scalar said twice counts once, the last time;
             parts of one message are put together
    other    skipped: also a known number of another wire type, and whole groups
    error    what is cut short, a varint of more than 10 bytes, field number 0, wire types
             6 and 7, an end without its group, text that is not UTF-8

This module is compiled where possible. Compiled, it reads bytes by index without Python's
bounds checks, so every index is compared with ``end`` before it is used.
"""

from __future__ import annotations

from penstock.service.envoy_constants import DEEPEST, MOST_DESCRIPTORS, MOST_ENTRIES, U32, U64
from penstock.service.grpc_status import INVALID_ARGUMENT, GrpcError


class RequestedDescriptor:
    """One descriptor. ``amount`` is None without a ``limit``, and ``hits`` without hits."""

    def __init__(self) -> None:
        self.pairs: tuple[tuple[str, str], ...] = ()
        self.amount: int | None = None
        self.unit = 0
        self.hits: int | None = None
        self.negative = False

    def is_plain(self) -> bool:
        """Whether it has nothing but pairs."""
        return self.amount is None and self.hits is None and not self.negative


class RateLimitRequest:
    """A RateLimitRequest."""

    def __init__(self) -> None:
        self.domain = ""
        self.descriptors: list[RequestedDescriptor] = []
        self.hits = 0


class Reader:
    """A position in a message, and where the part that is being read ends."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.end = len(data)

    def varint(self, most: int) -> int:
        """A number of at most ``most`` bytes."""
        at, value, shift, byte = self.at, 0, 0, 0
        while at < self.end and shift < 7 * most:
            byte = self.data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                self.at = at
                return value & U64
            shift += 7
        raise malformed("a number is cut short" if at >= self.end else "a number is too long")

    def tag(self) -> int:
        tag = self.varint(5)
        if tag > U32 or tag < 8:
            raise malformed("a field has no possible number")
        return tag

    def size(self) -> int:
        """The length of what follows, checked against what is there."""
        size = self.varint(5)
        if size > self.end - self.at:
            raise malformed("a field is longer than what it stands in")
        return size

    def enter(self) -> int:
        """Enter a message, and return the old end, which the caller restores."""
        size = self.size()
        outer = self.end
        self.end = self.at + size
        return outer

    def text(self) -> str:
        size = self.size()
        start = self.at
        self.at = start + size
        try:
            return self.data[start : start + size].decode("utf-8")
        except UnicodeDecodeError:
            raise malformed("a text is not UTF-8") from None

    def jump(self, size: int) -> None:
        if size > self.end - self.at:
            raise malformed("a field is cut short")
        self.at += size

    def skip(self, tag: int, depth: int) -> None:
        """Skip an unknown field."""
        kind = tag & 7
        if kind == 0:
            self.varint(10)
        elif kind == 1:
            self.jump(8)
        elif kind == 2:
            self.jump(self.size())
        elif kind == 5:
            self.jump(4)
        elif kind == 3:
            if depth <= 0:
                raise malformed(f"groups lie more than {DEEPEST} deep")
            inner = self.tag()
            while inner & 7 != 4:
                self.skip(inner, depth - 1)
                inner = self.tag()
            if inner >> 3 != tag >> 3:
                raise malformed("a group ends that did not begin")
        else:
            raise malformed(f"a field has the wire type {kind}")


def malformed(why: str) -> GrpcError:
    return GrpcError(INVALID_ARGUMENT, f"not a valid RateLimitRequest: {why}")


def read_request(data: bytes) -> RateLimitRequest:
    """From bytes; `GrpcError` if they are not such a message."""
    reader = Reader(data)
    request = RateLimitRequest()
    entries = 0
    while reader.at < reader.end:
        tag = reader.tag()
        if tag == 18:  # descriptors
            descriptor = read_descriptor(reader)
            request.descriptors.append(descriptor)
            entries += len(descriptor.pairs)
            if len(request.descriptors) > MOST_DESCRIPTORS or entries > MOST_ENTRIES:
                raise GrpcError(
                    INVALID_ARGUMENT,
                    f"a request has at most {MOST_DESCRIPTORS} descriptors, with"
                    f" {MOST_ENTRIES} entries in all",
                )
        elif tag == 10:  # domain
            request.domain = reader.text()
        elif tag == 24:  # hits_addend
            request.hits = reader.varint(10) & U32
        else:
            reader.skip(tag, DEEPEST - 1)
    return request


def read_descriptor(reader: Reader) -> RequestedDescriptor:
    descriptor = RequestedDescriptor()
    pairs: list[tuple[str, str]] = []
    outer = reader.enter()
    while reader.at < reader.end:
        tag = reader.tag()
        if tag == 10:  # entries
            pairs.append(read_entry(reader))
        elif tag == 18:  # limit
            read_limit(reader, descriptor)
        elif tag == 26:  # hits_addend
            descriptor.hits = read_wrapped(reader, descriptor.hits)
        elif tag == 32:  # is_negative_hits
            descriptor.negative = reader.varint(10) != 0
        else:
            reader.skip(tag, DEEPEST - 2)
    reader.end = outer
    descriptor.pairs = tuple(pairs)
    return descriptor


def read_entry(reader: Reader) -> tuple[str, str]:
    key = value = ""
    outer = reader.enter()
    while reader.at < reader.end:
        tag = reader.tag()
        if tag == 10:
            key = reader.text()
        elif tag == 18:
            value = reader.text()
        else:
            reader.skip(tag, DEEPEST - 3)
    reader.end = outer
    return key, value


def read_limit(reader: Reader, descriptor: RequestedDescriptor) -> None:
    """A RateLimitOverride, merged with parts of it that came before."""
    if descriptor.amount is None:
        descriptor.amount = 0
    outer = reader.enter()
    while reader.at < reader.end:
        tag = reader.tag()
        if tag == 8:  # requests_per_unit
            descriptor.amount = reader.varint(10) & U32
        elif tag == 16:  # unit
            descriptor.unit = reader.varint(10) & U32
        else:
            reader.skip(tag, DEEPEST - 3)
    reader.end = outer


def read_wrapped(reader: Reader, before: int | None) -> int:
    """A UInt64Value."""
    value = 0 if before is None else before
    outer = reader.enter()
    while reader.at < reader.end:
        tag = reader.tag()
        if tag == 8:
            value = reader.varint(10)
        else:
            reader.skip(tag, DEEPEST - 3)
    reader.end = outer
    return value
