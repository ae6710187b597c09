"""The headers of a response of Flask's, told by all who had a say in its request."""

from __future__ import annotations

from typing import Any

import flask

from penstock.integrations.deciding.http import NAMES
from penstock.integrations.deciding.pending import PENDING, Pending, Settling, fields_of
from penstock.integrations.deciding.request import Response
from penstock.integrations.wsgi.client import client_absent
from penstock.integrations.wsgi.request import Environ

# In the environ: who tells of limits, if that is this module.
_TELLER = "penstock.flask"


class _Teller:
    """Adds headers to whatever the application answers, and settles by its status."""

    def __init__(self, pending: Pending, environ: Environ) -> None:
        self._pending = pending
        self._environ = environ
        self._settling = Settling(pending)
        self._error: BaseException | None = None

    def tell(self, response: flask.Response) -> flask.Response:
        if not self._pending:
            return response
        for name in NAMES:
            response.headers.remove(name)
        response.headers.extend(fields_of(self._pending))
        if self._settling.wanted:
            headers = {name.lower(): value for name, value in response.headers}
            self._settle(Response(response.status_code, headers, self._error))
        return response

    def failed(self, error: BaseException) -> None:
        """There may be no response: in debug mode the server sees the exception itself."""
        self._error = error
        self._settle(Response(500, {}, error))

    def _settle(self, response: Response) -> None:
        self._settling.settle(response, client_absent(self._environ))


def pending_of_request() -> Pending:
    environ = flask.request.environ
    pending: Pending | None = environ.get(PENDING)
    if pending is None:
        pending = environ[PENDING] = []
        teller = environ[_TELLER] = _Teller(pending, environ)
        flask.after_this_request(teller.tell)
    return pending


def unhandled(sender: flask.Flask, exception: BaseException, **extra: Any) -> None:
    teller: _Teller | None = flask.request.environ.get(_TELLER)
    if teller is not None:
        teller.failed(exception)
