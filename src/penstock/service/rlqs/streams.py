"""Streams: what each Envoy has reported, was sent, and is proven to have.

A stream does nothing by itself: it keeps what has arrived until the service's loop takes it, one
entry for each bucket. So a stream that floods costs no more memory than one that does not.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from typing import Protocol

from penstock.service.rlqs.account import Reply, Request
from penstock.service.rlqs.buckets import BucketRule
from penstock.service.rlqs.interface import QuotaWire
from penstock.service.rlqs.messages import Action, Pairs, Tokens, bucket_id, read_reports
from penstock.service.rlqs.shares import SLACK
from penstock.service.rlqs.stats import RlqsStats

# Of one stream: buckets, and characters of their names, as Envoy reports all of them in one
# message of at most 4 MB. More of them get no assignment.
MOST_BUCKETS = 20_000
MOST_CHARACTERS = 4 * 2**20
# Envoy has no name for itself: `rlqs_server.initial_metadata` can add one.
NODE_ID = "x-node-id"
LONGEST_NAME = 128
# A bucket without requests for so many milliseconds is abandoned: Envoy itself never forgets one.
IDLE = 300_000
# As many requests as a double counts exactly, also by the thousand.
MOST_REQUESTS = 2**40


class Host(Protocol):
    """What the service does for its streams."""

    stats: RlqsStats

    def now(self) -> int: ...
    def has_room(self, stream: Stream, size: int) -> bool: ...
    def count_bucket(self, bucket: Bucket) -> None: ...
    def make_ready(self, bucket: Bucket) -> None: ...
    def forget_bucket(self, bucket: Bucket) -> None: ...
    def forget(self, stream: Stream) -> None: ...


class Bucket:
    """One bucket of one stream. Times are in milliseconds, by the service's clock."""

    __slots__ = (
        "account", "action", "asked_at", "busy_at", "domain", "holder", "id", "is_idle", "pairs",
        "proven", "reply", "reported", "requests", "rule", "sent", "sent_at", "size", "stream",
        "waits",
    )  # fmt: skip

    def __init__(self, stream: Stream, domain: str, pairs: Pairs, now: int) -> None:
        self.stream = stream
        self.domain = domain
        self.pairs = pairs
        self.id = bucket_id(pairs)
        self.size = size_of(domain, pairs)
        self.holder = stream.name
        self.rule = BucketRule()
        self.account = ""  # where it has a lease, or had one; "" if nowhere
        self.requests = 0  # since it was last asked for
        self.reported = False
        self.is_idle = False
        self.waits = False  # for a timer
        self.reply: Reply | None = None  # the last one with an assignment
        self.action: Action | None = None  # sent last
        self.sent = 0  # the number of that assignment
        self.proven = 0
        self.sent_at = self.busy_at = now
        self.asked_at = -1_000_000

    def request(self, kind: int, now: int) -> Request:
        tokens = self.action if isinstance(self.action, Tokens) else Tokens(0, 0, 0)
        provable = self.stream.provable
        if not provable and now - self.sent_at >= SLACK:
            self.proven = self.sent  # the stream is open: it has arrived, as far as we can know
        return Request(
            kind, self.holder, self.stream.id, min(self.requests, MOST_REQUESTS),
            self.sent, self.proven, tokens.most, tokens.fill, provable,
        )  # fmt: skip


class Stream:
    """A `QuotaStream`."""

    def __init__(
        self, service: Host, wire: QuotaWire, metadata: Mapping[str, str], peer: str
    ) -> None:
        self.service = service
        self.wire = wire
        self.id = secrets.token_hex(8)
        self.node = node_name(metadata, peer)
        self.name = f"{self.node}{address_of(metadata, peer)}"  # for the bank
        self.provable = True
        self.buckets: dict[tuple[str, Pairs], Bucket] = {}
        self.size = 0  # of all buckets' names, in characters
        self.is_open = True
        self.ignored = 0
        self.ends_at = 0
        # Sent and not yet confirmed, from oldest to newest; of the wire's callbacks.
        self.unconfirmed: list[int] = []

    def receive(self, message: bytes) -> None:
        """A report. `ValueError` if it is none."""
        domain, usages = read_reports(message)
        if not domain:
            raise ValueError("a RateLimitQuotaUsageReports names its domain; this one is empty")
        if not self.is_open:
            return
        if usages and not self.buckets:
            # Before the first assignment, which is smaller if it cannot be taken back quickly.
            self.provable = self.wire.confirm(nothing)
        service = self.service
        now = service.now()
        service.stats.reports += 1
        for pairs, requests in usages:
            bucket = self.buckets.get((domain, pairs))
            if bucket is None:
                if not service.has_room(self, size_of(domain, pairs)):
                    self.ignored += 1
                    service.stats.ignored += 1
                    continue
                bucket = self.buckets[domain, pairs] = Bucket(self, domain, pairs, now)
                service.count_bucket(bucket)
            bucket.requests += requests
            bucket.reported = True
            if requests:
                bucket.busy_at = now
            bucket.is_idle = now - bucket.busy_at > IDLE
            service.make_ready(bucket)

    def closed(self) -> None:
        """The stream is over. What was assigned lives on in Envoy, and in the bank."""
        if self.is_open:
            self.is_open = False
            self.service.forget(self)

    def drop(self, bucket: Bucket) -> None:
        """It was abandoned."""
        if self.buckets.pop((bucket.domain, bucket.pairs), None) is not None:
            self.service.forget_bucket(bucket)

    def confirm(self, now: int, delivered: Callable[[], None]) -> None:
        """Call ``delivered`` when all that was sent has arrived, if the wire can know."""
        self.unconfirmed.append(now)

        def arrived() -> None:
            if self.unconfirmed:
                self.unconfirmed.pop(0)
            if self.is_open:
                delivered()

        if not self.wire.confirm(arrived):
            self.unconfirmed.clear()
            self.provable = False


def nothing() -> None:
    """To find out whether a wire can confirm."""


def address_of(metadata: Mapping[str, str], peer: str) -> str:
    """Envoys with a copied configuration have one name, but most of them other addresses."""
    if NODE_ID in metadata and peer.startswith(("ipv4:", "ipv6:")):
        return f"@{peer.rpartition(':')[0]}"
    return ""


def size_of(domain: str, pairs: Pairs) -> int:
    """How many characters the name of a bucket has."""
    return len(domain) + sum([len(key) + len(value) for key, value in pairs])


def node_name(metadata: Mapping[str, str], peer: str) -> str:
    """The same for every stream of an Envoy, if it names itself."""
    name = metadata.get(NODE_ID) or peer
    if len(name) <= LONGEST_NAME and name.isprintable():
        return name
    return hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=16).hexdigest()
