"""Tokens: the secrets for the admin API, each with a name for the audit log.

A file has one token on each line, with a name before it if there are several. To rotate a
token, keep the old and the new one for a while::

    # created with: openssl rand -hex 32
    ops: 8c1f...
    deploy: 52e0...
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from penstock.errors import PenstockError

SHORTEST = 16
LONGEST = 1_024
MOST_TOKENS = 100
UNNAMED = "token"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_HOW = "create one with: openssl rand -hex 32"


class TokenError(PenstockError, ValueError):
    """An invalid token. The message never shows it."""


class Tokens:
    """Secrets by name. Only their digests are kept."""

    def __init__(self, tokens: Mapping[str, str] | None = None) -> None:
        self._digests: list[tuple[str, bytes]] = []
        for name, token in (tokens or {}).items():
            self._digests.append((check_name(name), digest(check_token(token, name))))
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

    def find(self, token: str) -> tuple[str, str] | None:
        """The name of the token and the start of its digest; None if it is unknown.

        All digests are compared, each in constant time: the duration reveals nothing about
        any token, not even which one matched.
        """
        candidate = digest(token)
        match = None
        for name, known in self._digests:
            if hmac.compare_digest(candidate, known):
                match = name, known.hex()[:8]
        return match

    def __repr__(self) -> str:
        return f"<Tokens {', '.join(name for name, _ in self._digests)}>"


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
    for number, name, token in _lines(text):
        if name in tokens:
            raise TokenError(f"{path}:{number}: two tokens are named {name!r:.70}; rename one")
        try:
            tokens[check_name(name)] = check_token(token, name)
        except TokenError as error:
            raise TokenError(f"{path}:{number}: {error}") from None
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


def check_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise TokenError("a token's name is up to 64 letters, digits, dots, dashes and underscores")
    return name


def check_token(token: object, name: str) -> str:
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise TokenError(f"the token {name} has characters not allowed in a header; {_HOW}")
    if not SHORTEST <= len(token) <= LONGEST:
        raise TokenError(
            f"the token {name} has {len(token)} characters, not {SHORTEST} to {LONGEST}; {_HOW}"
        )
    return token
