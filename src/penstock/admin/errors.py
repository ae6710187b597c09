"""How an admin request ends that does not end well."""

from __future__ import annotations

from typing import Any

from penstock.errors import PenstockError
from penstock.wires.http.messages import Header, HttpAnswer, as_json


class Refused(PenstockError):
    """Ends a request with this status; ``more`` is added to the answer's body."""

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

    def answer(self) -> HttpAnswer:
        return as_json({"error": self.message, **self.more}, self.status, list(self.headers))
