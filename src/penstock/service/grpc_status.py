"""How a gRPC call ends that does not end well: a number and a text.

The numbers are gRPC's own and never change.
"""

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

# Clients take some 8 KB of headers in all; a text that is cut is better than none.
LONGEST_TEXT: Final = 1024

_PLAIN: Final = bytes(b for b in range(0x20, 0x7F) if b != ord("%"))
_ENCODED: Final = [bytes([b]) if b in _PLAIN else b"%%%02X" % b for b in range(256)]


class GrpcError(PenstockError):
    """Ends a call with this status. A wire turns it into trailers; it is not a failure of ours."""

    def __init__(self, code: int, message: str = "") -> None:
        if not OK < code <= UNAUTHENTICATED:
            raise ValueError(
                f"{code} is no status of an error: use 1 to 16, as in GrpcError(INVALID_ARGUMENT)"
            )
        self.code = code
        self.message = message
        super().__init__(message)

    def __reduce__(self) -> tuple[type[GrpcError], tuple[int, str]]:
        """It may have to come back from another process."""
        return type(self), (self.code, self.message)


def percent_encoded(message: str) -> bytes:
    """``message`` as the field grpc-message holds it: UTF-8, with all but plain ASCII escaped."""
    data = message.encode("utf-8", "replace")[:LONGEST_TEXT]
    if data.translate(None, _PLAIN):
        data = b"".join([_ENCODED[byte] for byte in data])
        cut = data[:LONGEST_TEXT]
        # Never half an escape: it would be taken for text.
        data = cut[: cut.rindex(b"%")] if b"%" in cut[-2:] and len(data) > LONGEST_TEXT else cut
    return data
