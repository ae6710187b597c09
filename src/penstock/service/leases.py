"""Lease ids: what a client of the service gets for its slots, and gives back to release them.

The id itself says which slots they are, signed with a secret::

    base64( signature | random | rule, limit, key, units, mark, end of each slot )

So any worker, and any host with the same secret, can release a lease that another one granted,
and nothing has to be remembered for each of them. Nobody without the secret can make an id.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.limits import Limit
from penstock.rules.deciding.verdict import Slot
from penstock.stores.base import Counters

SHORTEST_SECRET = 16
_SIGNATURE, _RANDOM = 16, 12


class UnknownLease(PenstockError):
    """No lease of this service has this id."""

    status = 404

    def __init__(self) -> None:
        super().__init__(
            "unknown lease: this service did not grant it, or was restarted since;"
            " what it held is free when its time is over"
        )


class Lease(NamedTuple):
    """The slots of a lease, and a key of its own: under it, a release is counted once."""

    slots: Sequence[Slot]
    key: str


class LeaseIds:
    """Writes and reads ids, signed with ``secret``."""

    def __init__(self, secret: bytes | None = None) -> None:
        if secret is not None and len(secret) < SHORTEST_SECRET:
            raise ValueError(f"a secret for leases has at least {SHORTEST_SECRET} bytes")
        self._secret = hashlib.sha256(secret or secrets.token_bytes(32)).digest()

    def write(self, slots: Sequence[Slot]) -> str:
        """A new id; two leases never have the same."""
        rows = [
            (slot.rule, str(slot.counters.limit), slot.key, slot.units, slot.mark, slot.until)
            for slot in slots
        ]
        content = secrets.token_bytes(_RANDOM) + json.dumps(rows, separators=(",", ":")).encode()
        return urlsafe_b64encode(self._sign(content) + content).decode().rstrip("=")

    def read(self, lease: str, counters: Callable[[Limit], Counters]) -> Lease:
        """The slots of an id; `UnknownLease` if it is none of ours."""
        try:
            data = urlsafe_b64decode(lease.encode() + b"=" * (-len(lease) % 4))
        except ValueError:
            raise UnknownLease from None
        signature, content = data[:_SIGNATURE], data[_SIGNATURE:]
        if not hmac.compare_digest(signature, self._sign(content)):
            raise UnknownLease
        slots = [
            Slot(rule, counters(Limit.parse(limit)), key, units, mark, until)
            for rule, limit, key, units, mark, until in json.loads(content[_RANDOM:])
        ]
        return Lease(slots, f"lease:{content[:_RANDOM].hex()}")

    def _sign(self, content: bytes) -> bytes:
        return hashlib.blake2b(content, key=self._secret, digest_size=_SIGNATURE).digest()
