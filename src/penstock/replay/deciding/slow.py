"""The slow way: a gate over a `MemoryStore`, on the clock of the log."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Sequence
from typing import Any

from penstock.gate import Gate
from penstock.integrations.deciding.paths import AmbiguousPath
from penstock.keys import descriptor_key
from penstock.replay.deciding.log_request import LogRequest, is_asset, text_of
from penstock.replay.deciding.settings import ReplayClock, Settings
from penstock.replay.deciding.tallies import Outcome, PureTally, RuleTally
from penstock.replay.reading.blocks import Block
from penstock.replay.reading.requests import Requests
from penstock.rules.deciding.check import only_domain
from penstock.rules.deciding.verdict import Descriptor, Verdict
from penstock.rules.model import Rule, RuleSet
from penstock.rules.walk import rules_of

ALLOWED, REFUSED, AMBIGUOUS = 0, 1, 2
_KEY_BYTES, _MEMO_BYTES = 900, 700


class SlowReplay:
    """Decides on every request by `Gate.check`."""

    way = "slow"

    def __init__(self, rules: RuleSet, requests: Requests, settings: Settings) -> None:
        self._clock = ReplayClock()
        self._rules = rules
        self._requests = requests
        self._settings = settings
        self._gate: Gate | None = None
        self._memo: dict[tuple[int, ...], list[Descriptor] | None] = {}
        self._tallies: dict[str, tuple[Rule, PureTally, dict[str, int], list[str]]] = {}
        self._held: list[tuple[int, int, Verdict]] = []
        self._turn = 0
        self._rows: array[int] = array("i")
        self.allowed = self.refused = self.ambiguous = self.unmatched = 0
        # Problems with dimensions are found before the first request.
        gate = settings.gate(rules, ReplayClock())
        _, dimensions = settings.descriptors(gate).in_force()
        self.names = list(dimensions)

    def start(self, now: int) -> None:
        self._clock.time = now
        self._gate = self._settings.gate(self._rules, self._clock)
        self._descriptors = self._settings.descriptors(self._gate)
        self._domain = only_domain(self._gate.compiled, self._settings.domain)
        for rule in rules_of(self._gate.rules.domains[self._domain]):
            self._tallies[rule.id] = (rule, PureTally(), {}, [])

    @property
    def bytes(self) -> int:
        """Memory for keys, about: they are Python objects here, and each may be in a store."""
        keys = sum(tally.keys for _, tally, _, _ in self._tallies.values())
        return _KEY_BYTES * keys + _MEMO_BYTES * len(self._memo)

    def feed(self, block: Block) -> array[int]:
        """Decide on a block; what became of each request."""
        if self._gate is None:
            self.start(block.times[0])
        requests = self._requests
        number = {name: at for at, name in enumerate(requests.numbers)}
        word = {name: at for at, name in enumerate(requests.words)}
        cost = number.get(self._settings.cost or "", -1)
        status, duration = number.get("status", -1), number.get("duration", -1)
        agent, target = word.get("header:user-agent", -1), word.get("target", -1)
        out = array("b", bytes(block.n))
        for at in range(block.n):
            numbers = tuple([column[at] for column in block.words])
            self._release(block.times[at])
            self._clock.time = block.times[at]
            descriptors = self._of(numbers)
            if descriptors is None:
                out[at] = AMBIGUOUS
                self.ambiguous += 1
                continue
            hits = 1 if cost < 0 else max(1, block.numbers[cost][at])
            verdict = self._check(descriptors, hits)
            out[at] = ALLOWED if verdict is None or verdict.allowed else REFUSED
            self.allowed += out[at] == ALLOWED
            self.refused += out[at] == REFUSED
            if verdict is None:
                self.unmatched += 1
                continue
            self._note(verdict, block, at, agent, target, status)
            if verdict.slots:
                took = block.numbers[duration][at] if duration >= 0 else 0
                self._turn += 1
                heapq.heappush(self._held, (block.times[at] + max(0, took), self._turn, verdict))
        return out

    def feed_rows(self, block: Block) -> array[int]:
        """Count a block; the row of each request's key, or -1."""
        self._rows = array("i", [-1] * block.n)
        self.feed(block)
        return self._rows

    def _of(self, numbers: tuple[int, ...]) -> list[Descriptor] | None:
        if numbers in self._memo:
            return self._memo[numbers]
        requests = self._requests

        def read(name: str) -> str | None:
            if name not in requests.words:
                return None
            at = requests.words.index(name)
            raw = requests.interners[at].text(numbers[at])
            return text_of(raw, requests.kind, latin=name == "target")

        try:
            descriptors: list[Descriptor] | None = self._descriptors.of(
                LogRequest(read, self._settings.trust)
            )
        except AmbiguousPath:
            descriptors = None
        if len(self._memo) > 100_000:
            self._memo.clear()
        self._memo[numbers] = descriptors
        return descriptors

    def _check(self, descriptors: Sequence[Descriptor], hits: int) -> Verdict | None:
        if not descriptors:
            return None
        assert self._gate is not None
        return self._gate.check(*descriptors, domain=self._domain, hits=min(hits, 2**32 - 1))

    def _release(self, now: int) -> None:
        """Free the slots of requests that have ended."""
        assert self._gate is not None
        while self._held and self._held[0][0] <= now:
            end, _, verdict = heapq.heappop(self._held)
            self._clock.time = max(self._clock.time, end)
            self._gate.release(verdict)

    def _note(
        self, verdict: Verdict, block: Block, at: int, agent: int, target: int, status: int
    ) -> None:
        matched = False
        for each in verdict.statuses:
            if each.rule is None:
                continue
            matched = True
            if each.rule.id not in self._tallies:  # of a deny list without a rule
                self._tallies[each.rule.id] = (each.rule, PureTally(), {}, [])
            _, tally, rows, keys = self._tallies[each.rule.id]
            key = descriptor_key(self._domain, self._values(each.pairs))
            row = rows.get(key)
            if row is None:
                row = rows[key] = tally.new_row()
                keys.append(name_of(self._values(each.pairs)))
            if len(self._rows) > at:
                self._rows[at] = row
            refused = not each.allowed
            if each.shadow:
                refused = each.decision is not None and not each.decision.allowed
                refused = refused or (each.decision is None and each.reason in _WITHOUT_LIMIT)
            path = block.words[target][at] if target >= 0 else 0
            tally.note(
                row,
                block.times[at],
                refused,
                block.words[agent][at] if agent >= 0 else 0,
                path,
                target >= 0 and is_asset(self._requests.interners[target].text(path)),
                block.numbers[status][at] if status >= 0 else 0,
            )
        listed = not matched and not verdict.allowed
        self.unmatched += not matched and not listed and _is_unmatched(verdict)

    def _values(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """The pairs with the values that are counted: networks for addresses, for example."""
        assert self._gate is not None
        match = self._gate.matchers[self._domain].match(pairs)
        if match is None:
            return list(pairs)
        return [(key, value) for (key, _), value in zip(pairs, match.values, strict=False)]

    def outcome(self) -> Outcome:
        agent = text_reader(self._requests, "header:user-agent")
        return Outcome(
            allowed=self.allowed,
            refused=self.refused,
            ambiguous=self.ambiguous,
            unmatched=self.unmatched,
            way=self.way,
            rules=[
                RuleTally(rule, tally, keys.__getitem__, agent)
                for rule, tally, _, keys in self._tallies.values()
            ],
        )


_WITHOUT_LIMIT = ("closed", "deny list")


def _is_unmatched(verdict: Verdict) -> bool:
    return all(status.reason == "unmatched" for status in verdict.statuses)


def name_of(pairs: Sequence[tuple[str, str]]) -> str:
    """A key for people: ``path=/login remote_address=192.0.2.7``."""
    return " ".join(
        f"{key}={value.removesuffix('/32').removesuffix('/128')}" for key, value in pairs
    )


def text_reader(requests: Requests, field: str) -> Any:
    """From a number of a field to its text."""
    if field not in requests.words:
        return lambda number: None
    interner = requests.interners[requests.words.index(field)]
    return lambda number: text_of(interner.text(number), requests.kind)
