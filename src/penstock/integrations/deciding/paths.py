"""Paths that servers read in more than one way: for middleware, proxy and /v1/auth.

A decision on a path is only reliable if the server behind it reads the path in the same way.
Most paths are plain: all servers read them alike. Of the others

- some have a few *readings*. ``//login`` is ``/login`` to some servers and another path to
  others; so it is with ``%2F``, ``;parameters``, an encoded ``?`` or ``#``, and dots or spaces
  at the end of a segment. Such a path is accepted only if the same rules apply to all its
  readings. It is exempt only if all of them are.
- some have no legitimate use: ``.`` and ``..`` as segments, a backslash, control characters,
  escapes that are escaped again. They are never exempt, and never accepted.

Paths that are not accepted get a 400, if a rule uses the path at all. No path is rewritten: the
server gets it unchanged. Paths that differ in case, or by a slash at the end, are different
here. Whether they are for a server depends on its routes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from penstock.errors import PenstockError

# More readings, and longer paths, than legitimate clients need: each reading takes time.
MOST_READINGS = 8
MOST_CHARACTERS = 2048

# A quick test that most paths pass, and a closer one.
_DOUBTFUL = re.compile(r"[\\;?#%. \x00-\x1f\x7f]")
_NOT_PLAIN = re.compile(
    r"//|/\.{1,2} *(?:[;/?#]|$)|[\\;?#%\x00-\x1f\x7f]|[. ](?:/|$)|^(?!/)", re.DOTALL
)
_DOT_SEGMENT = re.compile(r"/\.{1,2} *(?:[;/?#]|$)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# Characters that nobody has to escape twice: NUL, % . / ; \ and letters, digits.
_ESCAPED_TWICE = re.compile(
    r"%(?:00|2[5def]|3[0-9b]|[46][1-9a-f]|5[0-9acf]|7[0-9ae])", re.IGNORECASE
)
_NO_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ESCAPED_SLASH = re.compile(r"%2f", re.IGNORECASE)
# A slash or a dot in more bytes than necessary, which strict decoders reject.
_OVERLONG = re.compile(rb"[\xc0\xc1][\x80-\xbf]|\xe0[\x80-\x9f]|\xf0[\x80-\x8f]")
_QUERY = re.compile(r"[?#].*", re.DOTALL)
_PARAMETERS = re.compile(r";[^/]*")
_ENDING = re.compile(r"(?<=[^/. ])[. ]+(?=/|$)")


class AmbiguousPath(PenstockError):
    """The path has several readings, and the rules would decide differently on them."""


class AmbiguousText(str):
    """A path that is not plain. The text itself is what is counted: its most normal reading.

    - ``others``: the other readings
    - ``problem``: why it is never accepted; "" if ``others`` has all readings
    """

    others: tuple[str, ...] = ()
    problem: str = ""


def plain(path: str) -> str:
    """A path that was decoded once: as it is if it is plain, or an `AmbiguousText`."""
    if path.startswith("/") and "//" not in path and _DOUBTFUL.search(path) is None:
        return path
    return path if _NOT_PLAIN.search(path) is None else _ambiguous(path, path)


def decoded(raw: str) -> str:
    """A path as it was received (its bytes as Latin-1), decoded to text."""
    if "%" not in raw and raw.isascii():
        return raw
    return unquote_to_bytes(raw.encode("latin-1")).decode("utf-8", "replace")


def plain_raw(raw: str) -> str:
    """`plain` for a path as it was received, with its escapes."""
    path = decoded(raw)
    if path == raw and "%" not in raw:
        return plain(path)
    if _NO_ESCAPE.search(raw):
        return _unreadable(path, "a % that begins no escape")
    if _OVERLONG.search(unquote_to_bytes(raw.encode("latin-1"))):
        return _unreadable(path, "a character that is encoded in too many bytes")
    # Servers that route before decoding see a %2F inside a segment.
    kept = decoded(_ESCAPED_SLASH.sub("%252F", raw))
    return plain(path) if kept == path else _ambiguous(path, kept)


def _ambiguous(path: str, kept: str) -> AmbiguousText:
    problem = _problem(path)
    if problem:
        return _unreadable(path, problem)
    readings = dict.fromkeys((kept, path))
    normal = path
    for step in _STEPS:
        normal = step(normal)
        readings.update(dict.fromkeys([step(each) for each in readings]))
        if len(readings) > MOST_READINGS:
            return _unreadable(path, f"more than {MOST_READINGS} readings")
    text = AmbiguousText(normal)
    text.others = tuple(each for each in readings if each != normal)
    return text


def _unreadable(path: str, problem: str) -> AmbiguousText:
    text = AmbiguousText(path)
    text.problem = problem
    return text


def _problem(path: str) -> str:
    if path == "*":  # of OPTIONS, for the whole server
        return ""
    if len(path) > MOST_CHARACTERS:
        return f"several readings, and more than {MOST_CHARACTERS} characters"
    if not path.startswith("/"):
        return "no / at its beginning"
    if _DOT_SEGMENT.search(path):
        return "a segment . or .."
    if "\\" in path:
        return "a backslash"
    if _CONTROL.search(path):
        return "a control character"
    if _ESCAPED_TWICE.search(path):
        return "a character that is escaped twice"
    return ""


# What some servers do to a path and others do not, in this order.
_STEPS: tuple[Callable[[str], str], ...] = (
    lambda path: _QUERY.sub("", path),
    lambda path: _PARAMETERS.sub("", path),
    lambda path: _ENDING.sub("", path),
    lambda path: "/" + path.lstrip("/") if path.startswith("//") else path,
    lambda path: re.sub("//+", "/", path),
)
