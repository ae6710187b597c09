"""The secret that signs leases: from a file, or a new one for this run of the service."""

from __future__ import annotations

import secrets
from pathlib import Path

from penstock.running.settings import Settings, SettingsError
from penstock.service.leases import SHORTEST_SECRET


def lease_secret(settings: Settings) -> bytes:
    """For all workers, and those that replace them."""
    path = settings.lease_secret_file
    if not path:
        return secrets.token_bytes(32)
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise SettingsError(f"lease_secret_file: {error}") from None
    if len(secret) < SHORTEST_SECRET:
        raise SettingsError(
            f"lease_secret_file: {path} has {len(secret)} bytes, and {SHORTEST_SECRET} is the"
            " least; create one with: openssl rand -hex 32"
        )
    return secret
