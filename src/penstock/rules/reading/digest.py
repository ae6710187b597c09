"""Digest of a file of rules, by which a change of its content is known."""

from __future__ import annotations

import hashlib


def digest_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
