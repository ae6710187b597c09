"""Status codes of gRPC, and the error that ends a call with one of them."""

from __future__ import annotations

from typing import Final

from penstock.errors import PenstockError

OK: Final = 0
CANCELLED: Final = 1
UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
NOT_FOUND: Final = 5
ALREADY_EXISTS: Final = 6
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
ABORTED: Final = 10
OUT_OF_RANGE: Final = 11
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
DATA_LOSS: Final = 15
UNAUTHENTICATED: Final = 16

# Clients accept some 8 KB of headers in total; a truncated text is better than none.
LONGEST_TEXT: Final = 1024

_PLAIN: Final = bytes(b for b in range(0x20, 0x7F) if b != ord("%"))
_ENCODED: Final = [bytes([b]) if b in _PLAIN else b"%%%02X" % b for b in range(256)]


class GrpcError(PenstockError):
    """Ends a call with this status. A wire turns it into trailers."""

    def __init__(self, code: int, message: str = "") -> None:
        if not OK < code <= UNAUTHENTICATED:
            raise ValueError(
                f"{code} is no status of an error: use 1 to 16, as in GrpcError(INVALID_ARGUMENT)"
            )
        self.code = code
        self.message = message
        super().__init__(message)

    def __reduce__(self) -> tuple[type[GrpcError], tuple[int, str]]:
        """It can be sent between processes."""
        return type(self), (self.code, self.message)


def check_status(code: int) -> int:
    """``code``, if it is a status of gRPC."""
    if not OK <= code <= UNAUTHENTICATED:
        raise ValueError(f"{code} is no status of gRPC: use 0 to 16, as in UNAVAILABLE")
    return code


def percent_encoded(message: str) -> bytes:
    """``message`` for the grpc-message field: UTF-8, with all but plain ASCII escaped."""
    data = message.encode("utf-8", "replace")[:LONGEST_TEXT]
    if data.translate(None, _PLAIN):
        data = b"".join([_ENCODED[byte] for byte in data])
        cut = data[:LONGEST_TEXT]
        # Do not cut an escape in half: it would be read as text.
        data = cut[: cut.rindex(b"%")] if b"%" in cut[-2:] and len(data) > LONGEST_TEXT else cut
    return data
