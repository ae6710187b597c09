"""Answers: what becomes of tickets when their server has said something.

Most answers are decisions, and settle their tickets. The others mean that it must be asked
otherwise, elsewhere or again, or that the failure policy decides: see trouble.py.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.decision import Decision
from penstock.events import Damaged
from penstock.stores.redis.ticket import LooseTicket, Question, RestTicket, Ticket, joined
from penstock.stores.redis.trouble import Trouble, redirection, trouble
from penstock.stores.redis.wire import LATE, REFRESH, REFUND, TAKES, Answer

if TYPE_CHECKING:
    from penstock.stores.redis.node import Node

MOST_TRIES = 8
MOST_TOLD = 1_000

logger = logging.getLogger("penstock.redis")

# Where a ticket goes that this node cannot answer: (ticket, slot, host, port, once).
Redirect = Callable[[Ticket, int, str, int, bool], None]


class Answers:
    """Settles the tickets of one node, or sees to it that they are."""

    def __init__(self, node: Node, redirect: Redirect | None) -> None:
        self._node = node
        self._redirect = redirect
        self._told: set[bytes] = set()

    def deliver(self, tickets: list[Ticket], answers: list[Answer], now: int) -> None:
        """The script's answers, one after the other, to those who asked."""
        at = 0
        for ticket in tickets:
            answer: Any = answers[at]
            at += 1
            if ticket.members:
                end = at + len(ticket.members)
                several = answers[at - 1 : end]
                answer = joined(several)
                at = end
                if isinstance(answer, Exception):
                    self._group_failed(ticket, several)
                    continue
            elif type(answer) is not Decision and answer is not None:
                self._unusual(ticket, answer, now)
                continue
            if type(answer) is not list and ticket.members:
                self._unusual(ticket, answer, now)
            elif not ticket.settled:
                ticket.settle(answer)
            elif ticket.abandoned and ticket.verb in TAKES:
                self._give_back(ticket, answer if ticket.members else [answer])

    def _unusual(self, ticket: Ticket, answer: Any, now: int) -> None:
        if answer is LATE or answer is REFRESH:
            if answer is REFRESH:
                for question in ticket.questions:
                    question.counters.renew_policy(now)
            self._again(ticket, answer.value)
        else:
            assert isinstance(answer, Exception)
            self.refused([ticket], answer)

    def _give_back(self, ticket: Ticket, decisions: list[Decision]) -> None:
        """Who was cancelled while the hit was under way has not taken anything."""
        if not all(decisions):
            return
        due = time.monotonic() + self._node.settings.deadline
        for question, decision in zip(ticket.questions, decisions, strict=True):
            refund = LooseTicket(
                question.counters, question.name, REFUND, question.cost, decision._mark
            )
            refund.due, refund.slot = due, ticket.slot
            self._node.put(refund)

    def refused(self, tickets: list[Ticket], error: Exception) -> None:
        """The server answered with an error, to the whole call or to one decision."""
        node, what = self._node, trouble(error)
        if what is Trouble.NO_SCRIPT and node.link is not None:
            again = [ticket for ticket in tickets if self._may_try(ticket, str(error))]
            if again:
                node.send(again, whole_script=True)
        elif what in (Trouble.MOVED, Trouble.ASK) and self._redirect is not None:
            slot, host, port = redirection(error)
            for ticket in tickets:
                if self._may_try(ticket, str(error)):
                    self._redirect(ticket, slot, host, port, what is Trouble.ASK)
        elif what is Trouble.TRY_AGAIN:
            for ticket in tickets:
                ticket.alone = True
                self._again(ticket, str(error), pause=len(tickets) == 1)
        elif what is Trouble.DAMAGED:
            for ticket in tickets:
                self._damaged(ticket)
                self._again(ticket, str(error))
        else:
            if what is Trouble.FOREIGN:
                for ticket in tickets:
                    self._tell_once(ticket.key, f"is not Penstock's: {error}")
            elif what is Trouble.WRONG:
                logger.error(
                    "%s answered with an error: %s", node.name, node.settings.hide(str(error))
                )
            node.degrade(tickets, str(error))
            if what is Trouble.LOST_MASTER:
                node.down(str(error))
            elif what is Trouble.UNAVAILABLE:
                node.notice()

    # Keys that hold what we did not write ---------------------------------------------

    def _group_failed(self, ticket: Ticket, answers: list[Answer]) -> None:
        """One member could not be decided on, and the others were spared."""
        at = next(n for n, answer in enumerate(answers) if isinstance(answer, Exception))
        error, question = answers[at], ticket.questions[at]
        assert isinstance(error, Exception)
        what = trouble(error)
        if what is Trouble.DAMAGED:
            self._damaged(question)
            self._again(ticket, str(error))
        elif what is Trouble.FOREIGN and self._may_try(ticket, str(error)):
            self._tell_once(question.key, f"is not Penstock's: {error}")
            if ticket.settled:
                return
            decision = self._node.settings.decide(question, str(error))
            if decision:
                self._node.put(RestTicket(ticket, at, decision))
            else:
                self._node.degrade([ticket], str(error))
        else:
            self.refused([ticket], error)

    def _damaged(self, question: Question) -> None:
        self._tell_once(question.key, "made no sense, and begins anew")
        limit, name = question.counters.limit, question.name
        self._node.settings.emit(Damaged(self._node.name, limit, name))

    def _tell_once(self, key: bytes, what: str) -> None:
        """A warning for each key, not for each decision."""
        if key not in self._told:
            if len(self._told) >= MOST_TOLD:
                self._told.clear()
            self._told.add(key)
            logger.warning("the value of %r in %s %s", key[:300], self._node.name, what)

    def _again(self, ticket: Ticket, reason: str, pause: bool = False) -> None:
        if not self._may_try(ticket, reason):
            return
        if pause:
            self._node.put_later(ticket)
        else:
            self._node.put(ticket)

    def _may_try(self, ticket: Ticket, reason: str) -> bool:
        ticket.tries += 1
        if ticket.tries <= MOST_TRIES and time.monotonic() < ticket.due:
            return True
        self._node.degrade([ticket], reason)
        return False
