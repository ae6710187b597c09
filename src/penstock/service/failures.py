"""Requests that could not be decided: whose fault it is, and the message for the client."""

from __future__ import annotations

import logging

from penstock.errors import PenstockError, StoreError, TooManyLimits, UnsupportedLimit
from penstock.service.grpc_status import (
    INVALID_ARGUMENT,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    GrpcError,
)

logger = logging.getLogger("penstock.server")


def is_ours(error: PenstockError) -> bool:
    """Whether the store failed, rather than the request being wrong."""
    return isinstance(error, StoreError) and not isinstance(error, UnsupportedLimit)


def for_client(error: PenstockError) -> str:
    """The message for a client. Details about the store go to the log only."""
    if not is_ours(error):
        return str(error)
    logger.error("a request could not be decided: %s", error)
    return "the limits cannot be checked now: the store failed"


def as_status(error: PenstockError) -> GrpcError:
    if isinstance(error, GrpcError):
        return error
    if isinstance(error, TooManyLimits):
        return GrpcError(RESOURCE_EXHAUSTED, str(error))
    return GrpcError(UNAVAILABLE if is_ours(error) else INVALID_ARGUMENT, for_client(error))
