"""grpc.health.v1.Health: health checks for load balancers and Kubernetes.

``Check`` answers once, with NOT_FOUND for an unknown name. ``Watch`` answers at once and on every
change; there an unknown name has a status of its own, because it may become known later.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from penstock.service.grpc_status import INVALID_ARGUMENT, NOT_FOUND, GrpcError
from penstock.service.health import Health
from penstock.wires.grpc.methods import Methods
from penstock.wires.grpc.protobuf_fields import Fields, read_fields, text_of

CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"

# The whole HealthCheckResponse: its only field is the status.
SERVING = b"\x08\x01"
NOT_SERVING = b"\x08\x02"
SERVICE_UNKNOWN = b"\x08\x03"

LONGEST_NAME = 1_000


def health_methods(health: Health) -> Methods:
    """The methods of the service."""

    def check(message: bytes) -> bytes:
        name = service_of(message)
        if not health.knows(name):
            raise GrpcError(NOT_FOUND, f"no such service: {name!r:.100}")
        return SERVING if health.serving(name) else NOT_SERVING

    def watch(message: bytes) -> AsyncIterator[bytes]:
        return changes(health, service_of(message))

    return Methods(unary={CHECK: check}, watch={WATCH: watch})


async def changes(health: Health, name: str) -> AsyncIterator[bytes]:
    """The current status of a part, and every later one, until it is closed."""
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def listen(_: str) -> None:
        # Called from any thread; watchers of a closed loop are ignored.
        if not loop.is_closed():
            loop.call_soon_threadsafe(changed.set)

    health.subscribe(listen)
    try:
        last = b""
        while True:
            changed.clear()
            status = status_of(health, name)
            if status != last:
                last = status
                yield status
            await changed.wait()
    finally:
        health.unsubscribe(listen)


def status_of(health: Health, name: str) -> bytes:
    if not health.knows(name):
        return SERVICE_UNKNOWN
    return SERVING if health.serving(name) else NOT_SERVING


def service_of(message: bytes) -> str:
    """The name in a HealthCheckRequest."""
    fields: Fields = read_fields(message, "HealthCheckRequest")
    name = text_of(fields, 1, "HealthCheckRequest")
    if len(name) > LONGEST_NAME:
        raise GrpcError(INVALID_ARGUMENT, f"a service name has at most {LONGEST_NAME} characters")
    return name
