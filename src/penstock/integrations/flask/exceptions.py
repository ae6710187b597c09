"""The exceptions that a limit raises in Flask, and our answers as Flask's responses."""

from __future__ import annotations

import flask
from flask import current_app
from werkzeug.exceptions import (
    BadRequest,
    Forbidden,
    HTTPException,
    ServiceUnavailable,
    TooManyRequests,
)

from penstock.integrations.deciding.outcome import Outcome
from penstock.integrations.deciding.responses import Answer


class Refusal(HTTPException):
    answer: Answer
    outcome: Outcome

    @classmethod
    def of(cls, answer: Answer, outcome: Outcome) -> Refusal:
        refusal = cls(response=respond(answer))
        refusal.answer, refusal.outcome = answer, outcome
        return refusal


class RateLimited(Refusal, TooManyRequests):
    """429. ``answer`` is our response, and ``outcome`` the decision."""


class Denied(Refusal, Forbidden):
    """403: on a deny list."""


class LimitsUnavailable(Refusal, ServiceUnavailable):
    """503: the store failed, and ``on_failure`` is ``"closed"``."""


class PathUnclear(Refusal, BadRequest):
    """400: the path has several meanings, with different rules."""


BY_STATUS: dict[int, type[Refusal]] = {
    429: RateLimited, 403: Denied, 503: LimitsUnavailable, 400: PathUnclear,
}  # fmt: skip


def respond(answer: Answer) -> flask.Response:
    return current_app.response_class(answer.body, answer.status, answer.headers)
