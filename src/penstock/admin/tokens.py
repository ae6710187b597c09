"""Tokens: the secrets for the admin API, each with a name for the audit log.

A file has one token on each line, with a name before it if there are several. To rotate a
token, keep the old and the new one for a while. A token may change everything, unless ``read``
stands after its name::

    # created with: openssl rand -hex 32
    ops: 8c1f...
    deploy: 52e0...
    wallboard read: 90ab...
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError

SHORTEST = 16
LONGEST = 1_024
MOST_TOKENS = 100
UNNAMED = "token"
ADMIN, READ = ROLES = ("admin", "read")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_HOW = "create one with: openssl rand -hex 32"


class TokenError(PenstockError, ValueError):
    """An invalid token. The message never shows it."""


@dataclass(frozen=True, slots=True)
class Token:
    """``digest`` is the start of its digest, which the audit log shows."""

    name: str
    digest: str
    role: str = ADMIN


class Tokens:
    """Secrets by name: ``{"ops": token, "wallboard read": token}``. Only their digests are kept."""

    def __init__(self, tokens: Mapping[str, str] | None = None) -> None:
        self._digests: list[tuple[Token, bytes]] = []
        for title, secret in (tokens or {}).items():
            name, role = check_name(title)
            hashed = digest(check_token(secret, name))
            self._digests.append((Token(name, hashed.hex()[:8], role), hashed))
        if len(self._digests) > MOST_TOKENS:
            raise TokenError(f"at most {MOST_TOKENS} tokens are allowed, not {len(self._digests)}")

    @classmethod
    def from_file(cls, path: str | Path) -> Tokens:
        """One token a line, or ``name: token``; # starts a comment."""
        return cls(read_file(path))

    def __bool__(self) -> bool:
        return bool(self._digests)

    def __len__(self) -> int:
        return len(self._digests)

    def find(self, token: str) -> Token | None:
        """The token with this secret; None if there is none.

        It always compares with all of them, so the time says nothing about which matched.
        """
        candidate = digest(token)
        match = None
        for known, hashed in self._digests:
            if hmac.compare_digest(candidate, hashed):
                match = known
        return match

    def __repr__(self) -> str:
        return f"<Tokens {', '.join(token.name for token, _ in self._digests)}>"


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def read_file(path: str | Path) -> dict[str, str]:
    """The tokens of a file, by name."""
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise TokenError(f"cannot read the tokens of {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TokenError(f"{path}: tokens must be plain ASCII; {_HOW}") from None
    tokens: dict[str, str] = {}
    names: set[str] = set()
    for number, title, token in _lines(text):
        try:
            name, role = check_name(title)
            check_token(token, name)
        except TokenError as error:
            raise TokenError(f"{path}:{number}: {error}") from None
        if name in names:
            raise TokenError(f"{path}:{number}: two tokens are named {name!r:.70}; rename one")
        names.add(name)
        tokens[f"{name} {role}"] = token
    if not tokens:
        raise TokenError(f"{path} has no token; {_HOW}")
    return tokens


def _lines(text: str) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, colon, token = line.rpartition(":")
        yield number, name.strip() if colon else UNNAMED, token.strip()


def check_name(title: object) -> tuple[str, str]:
    """The name and the role of ``ops``, ``ops admin`` or ``wallboard read``."""
    name, _, role = title.partition(" ") if isinstance(title, str) else ("", "", "")
    role = role.strip() or ADMIN
    if not _NAME.fullmatch(name):
        raise TokenError("a token's name is up to 64 letters, digits, dots, dashes and underscores")
    if role not in ROLES:
        raise TokenError(f"after a token's name comes its role, admin or read, not {role!r:.50}")
    return name, role


def check_token(token: object, name: str) -> str:
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise TokenError(f"the token {name} has characters not allowed in a header; {_HOW}")
    if not SHORTEST <= len(token) <= LONGEST:
        raise TokenError(
            f"the token {name} has {len(token)} characters, not {SHORTEST} to {LONGEST}; {_HOW}"
        )
    return token
