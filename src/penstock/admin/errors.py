"""The error that ends an admin request."""

from __future__ import annotations

from typing import Any

from penstock.errors import PenstockError
from penstock.wires.http.messages import Header, HttpResponse, as_json


class RequestRejected(PenstockError):
    """Ends a request with this status; ``more`` is added to the response's body."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        headers: list[Header] | None = None,
        more: dict[str, Any] | None = None,
    ) -> None:
        self.status = status
        self.message = message
        self.headers = headers or []
        self.more = more or {}
        super().__init__(message)

    def response(self) -> HttpResponse:
        return as_json({"error": self.message, **self.more}, self.status, list(self.headers))
