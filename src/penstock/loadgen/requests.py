"""The requests: the descriptors of a key, as JSON for HTTP and as protobuf for gRPC."""

from __future__ import annotations

import json
from collections.abc import Sequence

from penstock.wires.grpc.protobuf_fields import delimited

ENTRIES = ("user", "remote_address", "path")


def descriptors(key: int, names: Sequence[str]) -> list[tuple[str, str]]:
    """One pair for each name; the first is unique for each key, the others repeat."""
    values = (f"key-{key}", f"10.{key >> 16 & 255}.{key >> 8 & 255}.{key & 255}", f"/{key % 10}")
    return [(name, values[at % 3]) for at, name in enumerate(names)]


def as_json(domain: str, pairs: Sequence[tuple[str, str]]) -> bytes:
    """For POST /v1/check."""
    check = {"domain": domain, "descriptors": [{name: value} for name, value in pairs]}
    return json.dumps(check, separators=(",", ":")).encode()


def as_message(domain: str, pairs: Sequence[tuple[str, str]]) -> bytes:
    """An envoy.service.ratelimit.v3.RateLimitRequest."""
    message = delimited(1, domain.encode())
    for name, value in pairs:
        entry = delimited(1, name.encode()) + delimited(2, value.encode())
        message += delimited(2, delimited(1, entry))
    return message


def overall_code(message: bytes) -> int:
    """Of a RateLimitResponse: 1 OK, 2 OVER_LIMIT, 0 neither. ValueError if it is not one."""
    at, code = 0, 0
    while at < len(message):
        tag, at = _read(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _read(message, at)
            if tag >> 3 == 1:
                code = value
        elif kind == 2:
            length, at = _read(message, at)
            at += length
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError("not a RateLimitResponse")
    if at != len(message):
        raise ValueError("not a whole RateLimitResponse")
    return code


def _read(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("not a RateLimitResponse")
        byte = message[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
