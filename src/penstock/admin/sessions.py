"""Sessions: what a browser has instead of a token.

A page cannot keep a token safely: scripts could read it. So the page sends the token once, and
gets a cookie that no script can read and no other site can send::

    POST /v1/session  {"token": ...}
    Set-Cookie: penstock-session=...; HttpOnly; SameSite=Strict

A session is known to this process only, ends after eight hours, and can be revoked. Only the
digests of session ids are kept.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections import OrderedDict
from dataclasses import dataclass

from penstock.admin.tokens import Token
from penstock.clock import MONOTONIC, SECOND, Clock

COOKIE = "penstock-session"
LASTS = 8 * 3600  # seconds
MOST = 1_000
_ID = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Session:
    """``until`` is by the clock of its `Sessions`."""

    token: Token
    until: int


class Sessions:
    """``clock`` is monotonic: a step of the time of day neither ends nor prolongs a session."""

    def __init__(self, clock: Clock = MONOTONIC) -> None:
        self._clock = clock
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()  # the oldest first

    def begin(self, token: Token) -> str:
        """A new session; returns its id. Beyond `MOST`, the oldest one ends."""
        self._drop_ended()
        if len(self._sessions) >= MOST:
            self._sessions.popitem(last=False)
        session_id = secrets.token_urlsafe(32)
        until = self._clock.now() + LASTS * SECOND
        self._sessions[_digest(session_id)] = Session(token, until)
        return session_id

    def find(self, session_id: str) -> Session | None:
        """The session with this id, unless it has ended."""
        if not _ID.fullmatch(session_id):
            return None
        session = self._sessions.get(_digest(session_id))
        if session is None or session.until <= self._clock.now():
            return None
        return session

    def end(self, session_id: str) -> None:
        """Revoke it."""
        self._sessions.pop(_digest(session_id), None)

    def left(self, session: Session) -> float:
        """Seconds until it ends."""
        return max(0, session.until - self._clock.now()) / SECOND

    def _drop_ended(self) -> None:
        now = self._clock.now()
        while self._sessions and next(iter(self._sessions.values())).until <= now:
            self._sessions.popitem(last=False)


def cookie_of(header: str | None) -> str | None:
    """The session id in a Cookie header; None if there is none, or more than one.

    Two of them are ambiguous: somebody may have planted the other one.
    """
    pairs = [pair.strip().partition("=") for pair in (header or "").replace(",", ";").split(";")]
    ids = [value for name, _, value in pairs if name == COOKIE]
    return ids[0] if len(ids) == 1 else None


def set_cookie(session_id: str, secure: bool) -> tuple[str, str]:
    """The header that gives a browser its session; without an id, that takes it away."""
    age = LASTS if session_id else 0
    flags = "; Secure" if secure else ""
    value = f"{COOKIE}={session_id}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{flags}"
    return "Set-Cookie", value


def _digest(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).digest()
