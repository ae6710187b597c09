"""Assigner: turns ready buckets into requests for the bank, and its replies into messages.

What one Envoy no longer has is for the others of its account: they are looked at when a decrease
has arrived, and when somebody has less than its share. A look costs a request for each of them,
so it is made at most every 100 ms, or 10 ms for each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from penstock.service.rlqs.account import (
    ASSIGNED,
    CONFIRM,
    CONFLICT,
    LEAVE,
    LOOK,
    RELEASE,
    REPORT,
    Reply,
)
from penstock.service.rlqs.bank import Entry
from penstock.service.rlqs.buckets import DENY, BucketRule, BucketRules
from penstock.service.rlqs.messages import Abandon, Action, Tokens, write_action
from penstock.service.rlqs.shares import TTL_SECONDS
from penstock.service.rlqs.stats import RlqsStats
from penstock.service.rlqs.streams import Bucket, Stream

logger = logging.getLogger("penstock.rlqs")

# All in milliseconds. A bucket asks the bank at most this often.
PACE = 100
# When to ask again for what was not free: another server may have freed it.
RETRY = 1_000
# At most so often, and so often for each, are the others of an account looked at.
ROUND, ROUND_EACH = 100, 10
# In one message to Envoy.
MOST_ACTIONS = 1_000
# Names that several Envoys have, in the log.
MOST_NAMES = 1_000


class Loop(Protocol):
    """What the service does for it."""

    def make_ready(self, bucket: Bucket) -> None: ...
    def at(self, due: int, call: Callable[[], None]) -> None: ...
    def notify(self, entry: Entry, then: Callable[[], None] | None = None) -> None: ...
    def now(self) -> int: ...


class Question(NamedTuple):
    """``then`` is sent whatever the bank says: instead of something that is released."""

    bucket: Bucket
    kind: int
    entry: Entry
    then: Action | None = None


class Sending(NamedTuple):
    """An action for Envoy; with the bank's reply if it can be proven to it."""

    bucket: Bucket
    action: Action
    reply: Reply | None = None
    entry: Entry | None = None


class Assigner:
    """For all streams of a service."""

    def __init__(self, loop: Loop, rules: BucketRules, stats: RlqsStats) -> None:
        self._loop = loop
        self._rules = rules
        self._stats = stats
        self._accounts: dict[str, dict[Bucket, None]] = {}
        self._shared_names: set[str] = set()  # that the log has
        self._rounds: dict[str, int] = {}  # when the last one of an account was, or will be

    # Asking -----------------------------------------------------------------------------------

    def question(self, bucket: Bucket, now: int) -> Question | None:
        """What to ask the bank. A blanket needs no bank, and is sent at once."""
        if not bucket.stream.is_open:
            return None
        if now - bucket.asked_at < PACE:
            if not bucket.waits:
                bucket.waits = True
                self._loop.at(bucket.asked_at + PACE, lambda: self._again(bucket))
            return None
        rule = self._rules.find(bucket.domain, bucket.pairs)
        if bucket.is_idle:
            return self._abandon(bucket, now)
        if bucket.account and rule.account != bucket.account:
            question = self._question(bucket, RELEASE, now, rule.blanket)
            self._part(bucket)
            bucket.rule = rule
            if rule.terms is not None:
                bucket.reported = True
                self._loop.make_ready(bucket)
            return question
        bucket.rule = rule
        if rule.terms is None:
            self._blanket(bucket, now)
            return None
        if not bucket.account:
            self._join(bucket, rule)
        return self._question(bucket, REPORT if bucket.reported else LOOK, now)

    def _abandon(self, bucket: Bucket, now: int) -> Question | None:
        if not bucket.account:
            self._send(bucket.stream, [Sending(bucket, Abandon())], now)
            return None
        question = self._question(bucket, RELEASE, now, Abandon())
        self._part(bucket)
        return question

    def leave(self, stream: Stream, now: int) -> None:
        """A stream is over: let its Envoy come back under the same name."""
        for bucket in stream.buckets.values():
            if bucket.account and bucket.rule.terms is not None:
                request = bucket.request(LEAVE, now)
                self._loop.notify(Entry(bucket.account, bucket.rule.terms, request))
            self._part(bucket)
        stream.buckets.clear()

    def _again(self, bucket: Bucket) -> None:
        bucket.waits = False
        if bucket.stream.is_open:
            self._loop.make_ready(bucket)

    def _question(
        self, bucket: Bucket, kind: int, now: int, then: Action | None = None
    ) -> Question:
        request = bucket.request(kind, now)
        if kind == REPORT:
            bucket.requests, bucket.reported = 0, False
        if kind != RELEASE:
            bucket.asked_at = now
        assert bucket.rule.terms is not None
        return Question(bucket, kind, Entry(bucket.account, bucket.rule.terms, request), then)

    def _join(self, bucket: Bucket, rule: BucketRule) -> None:
        bucket.account = rule.account
        bucket.holder = bucket.stream.name + rule.part
        bucket.reported = True  # the bank has to know of it
        members = self._accounts.setdefault(rule.account, {})
        if any(each.holder == bucket.holder for each in members):
            self._take_own_name(bucket)
        members[bucket] = None

    def _part(self, bucket: Bucket) -> None:
        members = self._accounts.get(bucket.account)
        if members is not None:
            members.pop(bucket, None)
            if not members:
                del self._accounts[bucket.account]
                self._rounds.pop(bucket.account, None)
        bucket.account = ""

    # Answering --------------------------------------------------------------------------------

    def answer(
        self, questions: Sequence[Question], replies: Sequence[Reply | None], now: int
    ) -> None:
        """Send what the bank has assigned. It is reserved already."""
        outbox: dict[Stream, list[Sending]] = {}
        for question, reply in zip(questions, replies, strict=True):
            stream = question.bucket.stream
            if stream.is_open:
                sending = self._sending(question, reply, now)
                if sending is not None:
                    outbox.setdefault(stream, []).append(sending)
        for stream, sendings in outbox.items():
            self._send(stream, sendings, now)

    def _sending(self, question: Question, reply: Reply | None, now: int) -> Sending | None:
        bucket, kind, entry, then = question
        if kind == RELEASE:
            bucket.reply = None
            return None if then is None else Sending(bucket, then, reply, entry)
        if reply is None:
            # The bank is away, or cannot know yet what is out. Envoys go on with what they have.
            if kind == REPORT:
                self._stats.unanswered += 1
                bucket.requests += entry.request.requests
                bucket.reported = True
                self._later(bucket, now + RETRY)
            return None
        if reply.status == CONFLICT:
            if kind == REPORT:
                self._rename(bucket, entry.request.requests, now)
            return None
        bucket.reply = reply
        if reply.wait or reply.rate + entry.terms.rate // 50 < reply.wanted:
            self._later(bucket, now + (min(reply.wait, RETRY) or RETRY))
            self._look_at_others(bucket.account, now)
        if reply.status != ASSIGNED:
            return None
        if kind == LOOK:
            self._stats.pushes += 1
        if reply.rate == 0:
            self._stats.denials += 1
            return Sending(bucket, DENY, reply, entry)
        tokens = Tokens(reply.burst, reply.rate, entry.terms.interval)
        return Sending(bucket, tokens, reply, entry)

    def _rename(self, bucket: Bucket, requests: int, now: int) -> None:
        """The bank knows of another stream with this name."""
        self._take_own_name(bucket)
        bucket.requests += requests
        bucket.reported, bucket.asked_at = True, now - PACE
        bucket.sent = bucket.proven = 0
        self._loop.make_ready(bucket)

    def _take_own_name(self, bucket: Bucket) -> None:
        """Two Envoys with one name must not share what one of them was assigned."""
        stream = bucket.stream
        bucket.holder = f"{stream.name}@{stream.id}{bucket.rule.part}"
        if stream.node not in self._shared_names and len(self._shared_names) < MOST_NAMES:
            self._shared_names.add(stream.node)
            logger.warning(
                "several Envoys have the name %r: each gets a share of its own, but loses it when"
                " its stream ends; give each another x-node-id", stream.node,
            )  # fmt: skip

    def _blanket(self, bucket: Bucket, now: int) -> None:
        """What a bucket gets that is not divided; nothing, if it should be and cannot."""
        blanket = bucket.rule.blanket
        if bucket.reported and blanket is None:
            self._stats.undivided += 1
        is_due = bucket.reported or bucket.action != blanket
        bucket.requests, bucket.reported, bucket.reply = 0, False, None
        if blanket is not None and is_due:
            bucket.asked_at = now
            self._send(bucket.stream, [Sending(bucket, blanket)], now)

    # Others of the same account ---------------------------------------------------------------

    def _later(self, bucket: Bucket, due: int) -> None:
        if not bucket.waits:
            bucket.waits = True
            self._loop.at(due, lambda: self._again(bucket))

    def _look_at_others(self, account: str, now: int) -> None:
        members = self._accounts.get(account, {})
        last = self._rounds.get(account)
        if len(members) < 2 or (last is not None and last > now):
            return  # or one is coming
        start = now
        if last is not None:
            start = max(now, last + max(ROUND, ROUND_EACH * len(members)))
        self._rounds[account] = start
        self._loop.at(start, lambda: self._round(account))

    def _freed(self, account: str) -> None:
        self._look_at_others(account, self._loop.now())

    def _round(self, account: str) -> None:
        for bucket in self._accounts.get(account, ()):
            self._loop.make_ready(bucket)

    # Sending ----------------------------------------------------------------------------------

    def _send(self, stream: Stream, sendings: Sequence[Sending], now: int) -> None:
        for start in range(0, len(sendings), MOST_ACTIONS):
            part = sendings[start : start + MOST_ACTIONS]
            stream.wire.send(
                b"".join([write_action(each.bucket.id, each.action, TTL_SECONDS) for each in part])
            )
        decreased = [each for each in sendings if is_less(each.action, each.bucket.action)]
        for bucket, action, reply, _ in sendings:
            number = 0 if reply is None else reply.number
            bucket.action, bucket.sent, bucket.sent_at = action, number, now
            if isinstance(action, Abandon):
                self._stats.abandoned += 1
                stream.drop(bucket)
            else:
                self._stats.assignments += 1
        if any(each.reply is not None for each in sendings):
            stream.confirm(now, lambda: self._arrived(sendings, decreased))

    def _arrived(self, sendings: Sequence[Sending], decreased: Sequence[Sending]) -> None:
        for bucket, _, reply, _ in sendings:
            if reply is not None:
                bucket.proven = max(bucket.proven, reply.number)
        for bucket, _, reply, entry in decreased:
            if reply is None or entry is None or bucket.sent != reply.number:
                continue
            account, terms, request = entry
            request = request._replace(kind=CONFIRM, sent=0, proven=reply.number, requests=0)
            self._loop.notify(
                Entry(account, terms, request),
                partial(self._freed, account),
            )


def is_less(action: Action, before: Action | None) -> bool:
    """Whether Envoy may use less than before, so that others get more once it is proven."""
    if not isinstance(before, Tokens):
        return False
    if not isinstance(action, Tokens):
        return True
    return action.most < before.most or action.fill < before.fill
