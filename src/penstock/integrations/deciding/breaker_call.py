"""What a circuit breaker learns of one request; for the breaker middleware of ASGI and WSGI."""

from __future__ import annotations

from penstock.breaker import CircuitBreaker, Permit
from penstock.integrations.deciding.error_responses import REFUSED


class BreakerCall:
    """Reports to the breaker how a request ended, once.

    ``client_absent``: a failure says nothing about the application, as its client had left.
    """

    def __init__(self, breaker: CircuitBreaker, permit: Permit) -> None:
        self._breaker = breaker
        self._permit = permit
        self.reported = False

    def answered(self, status: int, client_absent: bool) -> None:
        if status < 500:
            self._succeeded()
        else:
            self._failed(f"it answered {status}", client_absent)

    def raised(self, error: Exception, client_absent: bool) -> None:
        if isinstance(error, REFUSED):  # it did not fail: the client came too often
            self._succeeded()
        else:
            self._failed(f"{type(error).__name__}: {error}"[:200], client_absent)

    def gave_up(self) -> None:
        """The request ended, and says nothing about the application."""
        if not self.reported:
            self.reported = True
            self._breaker.gave_up(self._permit)

    def _succeeded(self) -> None:
        if not self.reported:
            self.reported = True
            self._breaker.succeeded(self._permit)

    def _failed(self, why: str, client_absent: bool) -> None:
        if client_absent:
            self.gave_up()
        elif not self.reported:
            self.reported = True
            self._breaker.failed(self._permit, why)
