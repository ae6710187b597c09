"""Small protobuf messages, read and written field by field, where speed does not matter."""

from __future__ import annotations

from penstock.service.grpc_status import INVALID_ARGUMENT, GrpcError

# All values of each field, by field number, in order: integers or bytes.
Fields = dict[int, list[int | bytes]]


def read_fields(message: bytes, kind: str) -> Fields:
    """The fields of a message, ordered by their last occurrence; `GrpcError` if it is malformed.

    Groups, which are obsolete, are errors.
    """
    fields: Fields = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at, kind)
        number, wire = tag >> 3, tag & 7
        value: int | bytes
        if wire == 0:
            value, at = _varint(message, at, kind)
        else:
            size = {1: 8, 5: 4}.get(wire)
            if wire == 2:
                size, at = _varint(message, at, kind)
            if size is None or not number or size > len(message) - at:
                raise _malformed(kind)
            value, at = message[at : at + size], at + size
        if not 0 < number < 2**29:
            raise _malformed(kind)
        values = fields.pop(number, [])
        values.append(value)
        fields[number] = values
    return fields


def text_of(fields: Fields, number: int, kind: str) -> str:
    """The text of a field, from its last occurrence; empty if there is none."""
    texts = [value for value in fields.get(number, ()) if isinstance(value, bytes)]
    try:
        return [text.decode("utf-8") for text in texts][-1] if texts else ""
    except UnicodeDecodeError:
        raise _malformed(kind) from None


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def delimited(number: int, value: bytes) -> bytes:
    """A length-delimited field: a string, bytes or a message."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def _varint(message: bytes, at: int, kind: str) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(message[at : at + 10]):
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value & 2**64 - 1, at + index + 1
    raise _malformed(kind)


def _malformed(kind: str) -> GrpcError:
    return GrpcError(INVALID_ARGUMENT, f"not a valid {kind}")
