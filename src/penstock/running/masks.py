"""Masks: hide the secrets in texts, for logs.

::

    redis://app:hunter2@db/0            redis://app:***@db/0
    Authorization: Bearer abcdefgh      Authorization: ***
    ?token=hunter2&x=1                  ?token=***&x=1
    {"admin_token": "hunter2"}          {"admin_token": ***}
    it has no token: give it one        unchanged: this is a sentence
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MASK = "***"
DEEPEST = 8

_USER = re.compile(r"://[^/:@]*:")
_BEARER = re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/-]{8,}=*")
# Names of secrets, but not `tokens` and `token_bucket`.
_NAMES = r"password|passwd|secret|token(?!s|_bucket)|api[_-]?key|authorization"
_SECRET_NAME = re.compile(f"(?i){_NAMES}")
_QUOTED = (
    r"b?\"(?:[^\"\\]|\\.)*(?:\"|$)",
    r"b?'(?:[^'\\]|\\.)*(?:'|$)",
    r"\\\"[^\"]*(?:\"|$)",  # JSON within JSON
)
_NAMED = re.compile(
    rf"(?i)\b(?P<name>[\w-]{{0,40}}(?:{_NAMES})[\w-]{{0,40}})"
    r"(?P<between>\\?[\"']?\s{0,5}[=:]\s{0,5})(?!\s)"
    rf"(?P<value>{'|'.join(_QUOTED)}|[^\s,;&\"']+)"
)
# In a header, the scheme's name is not a secret, but what follows it is.
_SCHEME = re.compile(r"(?i)(\bauthorization\\?[\"']?\s{0,5}[=:]\s{0,5})[a-z]{1,20} +([^\s,;\"']+)")
_BARE_NAMES = frozenset({"password", "secret", "token", "authorization", "key"})
_PLAIN_WORD = re.compile(r"[a-z]{1,20}")


class Masks:
    """Masks secrets: known ones anywhere in a text, others by what they look like."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: tuple[str, ...] = ()
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        """Mask this secret wherever it appears."""
        # Shorter ones would mask ordinary words.
        if len(secret) >= 4 and secret not in self._secrets:
            self._secrets = tuple(sorted([*self._secrets, secret], key=len, reverse=True))

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        if "://" in text and "@" in text:
            text = re.sub(r"\S+", _without_password, text)
        text = _BEARER.sub(rf"\1\2{MASK}", text)
        if not _SECRET_NAME.search(text):
            return text
        return _NAMED.sub(_masked, _SCHEME.sub(_masked_header, text))

    def value(self, value: Any, depth: int = 0) -> Any:
        """Mask all texts that a value contains. Values that are not JSON become text."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            return value if -1e300 < value < 1e300 else "not a finite number, or too large"
        if isinstance(value, str):
            return self.text(value)
        if depth < DEEPEST and isinstance(value, dict):
            return {
                str(name): MASK if _SECRET_NAME.search(str(name)) else self.value(each, depth + 1)
                for name, each in value.items()
            }
        if depth < DEEPEST and isinstance(value, (list, tuple, set, frozenset)):
            return [self.value(each, depth + 1) for each in value]
        return self.text(str(value))


def _without_password(match: re.Match[str]) -> str:
    """Between spaces: from the first user to the last ``@``, as a password may contain anything."""
    head, at, place = match[0].rpartition("@")
    user = _USER.search(head) if at else None
    return match[0] if user is None else f"{head[: user.end()]}{MASK}@{place}"


def _masked_header(match: re.Match[str]) -> str:
    if _PLAIN_WORD.fullmatch(match[2]) and _is_in_sentence(match):
        return match[0]
    return f"{match[1]}{MASK}"


def _masked(match: re.Match[str]) -> str:
    return match[0] if _is_prose(match) else f"{match['name']}{match['between']}{MASK}"


def _is_prose(match: re.Match[str]) -> bool:
    """Whether it is a sentence such as ``it has no token: give it one``."""
    return (
        match["name"].lower() in _BARE_NAMES
        and re.fullmatch(r": +", match["between"]) is not None
        and _PLAIN_WORD.fullmatch(match["value"]) is not None
        and _is_in_sentence(match)
        and re.match(r" +[a-z]", match.string[match.end() : match.end() + 8]) is not None
    )


def _is_in_sentence(match: re.Match[str]) -> bool:
    before = match.string[max(0, match.start() - 2) : match.start()]
    return re.fullmatch(r"[a-z,] ", before) is not None
