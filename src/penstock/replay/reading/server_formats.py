"""Formats in the languages of servers: nginx's log_format, Apache's LogFormat, Envoy's text.

>>> from_nginx('$remote_addr [$time_local] "$request" $status').fields
['peer', 'time_clf', 'request', 'status']
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.replay.reading.formats import (
    COMBINED,
    DURATIONS,
    JSON,
    TIMES,
    LogError,
    LogFormat,
    from_pieces,
)

_NGINX = {
    "remote_addr": "peer",
    "remote_user": "user",
    "time_local": "time_clf",
    "time_iso8601": "time_iso",
    "msec": "time_s",
    "request": "request",
    "request_method": "method",
    "request_uri": "target",
    "uri": "target",
    "document_uri": "target",
    "status": "status",
    "body_bytes_sent": "bytes",
    "bytes_sent": "bytes",
    "request_time": "duration_s",
    "host": "host",
    "http_host": "host",
    "server_name": None,
}
_NGINX_NAME = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_APACHE_NAME = re.compile(r"%(?:[!<>]|\d{3},?)*(?:\{([^}]*)\})?(\^?[A-Za-z%])")
_ENVOY_NAME = re.compile(r"%([A-Z_0-9]+)(?:\(([^)]*)\))?(?::(\d+))?%")
# One token of a configuration: a text in quotes, a word, or a sign. Comments are no tokens.
_TOKEN = re.compile(
    r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|#[^\n]*|([;{}])|([^\s;{}'"#]+)""", re.S
)
_NGINX_PAIR = re.compile(r'"([^"]+)"\s*:\s*"?\$(?:\{)?(\w+)')
# What may be written in several ways.
_SEVERAL_WAYS = {*TIMES, *DURATIONS, "peer", "peer_port"}
_EXACTNESS = ["time_clf", "time_iso", "time_s", "time_ms", "time_us", "time_ns"]

ENVOY_DEFAULT = (
    '[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%"'
    " %RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION%"
    ' %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%"'
    ' "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%"'
)


def from_nginx(text: str, name: str = "nginx") -> LogFormat:
    """The string of a ``log_format``: ``$remote_addr - $remote_user [$time_local] ...``."""

    def what(match: re.Match[str]) -> str | None:
        variable = match[1] or match[2]
        if variable in _NGINX:
            return _NGINX[variable]
        if variable.startswith("http_"):
            return "header:" + variable[5:].replace("_", "-")
        if variable.startswith("cookie_"):
            return "cookie:" + variable[7:]
        return None

    return _format(text, _NGINX_NAME, what, name, at_end=True)


def from_apache(text: str, name: str = "apache") -> LogFormat:
    """A ``LogFormat``, with or without the quotes of the configuration file."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == '"' and '\\"' in text:
        text = text[1:-1]
    text = text.replace('\\"', '"').replace("\\t", "\t").replace("\\n", "")
    # The query comes after the path, with nothing between them: together they are the target.
    text = text.replace("%U%q", "%U")
    # %t writes its own brackets.
    text = re.sub(r"%(?:[<>])?t", "[%t]", text)
    return _format(text, _APACHE_NAME, _apache_field, name, at_end=False)


def _apache_field(match: re.Match[str]) -> str | None:
    argument, letter = match[1] or "", match[2]
    simple = {
        "h": "peer", "a": "peer", "u": "user", "r": "request", "m": "method", "U": "target",
        "s": "status", "b": "bytes", "B": "bytes", "O": "bytes", "v": "host", "V": "host",
        "D": "duration_us",
    }  # fmt: skip
    if letter == "i":
        return "host" if argument.lower() == "host" else f"header:{argument.lower()}"
    if letter == "C":
        return f"cookie:{argument}"
    if letter == "T":
        unit = {"": "duration_s", "s": "duration_s", "ms": "duration_ms", "us": "duration_us"}
        return unit.get(argument)
    if letter == "t":
        return _apache_time(argument)
    return simple.get(letter)


def _apache_time(argument: str) -> str | None:
    argument = argument.removeprefix("begin:")
    if argument == "":
        return "time_clf"
    known = {"sec": "time_s", "msec": "time_ms", "usec": "time_us", "%s": "time_s"}
    if argument in known:
        return known[argument]
    if argument.startswith(("%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%FT%T", "%F %T")):
        return "time_iso"
    if argument.startswith("%d/%b/%Y:%H:%M:%S"):
        return "time_clf"
    if argument in ("msec_frac", "usec_frac"):
        return None
    raise LogError(
        f"the time %{{{argument}}}t cannot be read: use %t, %{{sec}}t, %{{msec}}t, %{{usec}}t or"
        " %{%Y-%m-%dT%H:%M:%S%z}t"
    )


def from_envoy(text: str, name: str = "envoy") -> LogFormat:
    """The text format of an access log: ``[%START_TIME%] "%REQ(:METHOD)% ...``."""
    return _format(text.rstrip("\n").removesuffix("\\n"), _ENVOY_NAME, _envoy_field, name)


def _envoy_field(match: re.Match[str]) -> str | None:
    operator, argument = match[1], match[2] or ""
    if operator in ("REQ", "REQUEST_HEADER"):
        header = argument.rpartition("?")[2].lower()
        pseudo = {":method": "method", ":path": "target", ":authority": "host", "host": "host"}
        return pseudo.get(header, f"header:{header}")
    if operator == "START_TIME":
        if argument in ("", "%Y-%m-%dT%H:%M:%S.%3fZ") or argument.startswith("%Y-%m-%dT%H:%M:%S"):
            return "time_iso"
        known = {"%s": "time_s", "%s.%3f": "time_s", "%s.%6f": "time_s", "%s.%9f": "time_s"}
        if argument in known:
            return known[argument]
        raise LogError(f"%START_TIME({argument})% cannot be read: use %START_TIME%")
    known = {
        "DURATION": "duration_ms",
        "RESPONSE_CODE": "status",
        "BYTES_SENT": "bytes",
        "DOWNSTREAM_REMOTE_ADDRESS": "peer_port",
        "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT": "peer",
        "DOWNSTREAM_DIRECT_REMOTE_ADDRESS": "peer_port",
        "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT": "peer",
    }
    return known.get(operator)


def _format(
    text: str,
    names: re.Pattern[str],
    what: Callable[[re.Match[str]], str | None],
    name: str,
    *,
    at_end: bool = False,
) -> LogFormat:
    pieces: list[tuple[str | None, str]] = []
    head, at = "", 0
    for match in names.finditer(text):
        between = text[at : match.start()]
        if pieces:
            pieces[-1] = pieces[-1][0], pieces[-1][1] + between
        else:
            head += between
        at = match.end()
        if match[0] == "%%":
            if pieces:
                pieces[-1] = pieces[-1][0], pieces[-1][1] + "%"
            else:
                head += "%"
            continue
        pieces.append((what(match), ""))
    if not pieces:
        raise LogError(f"{text!r:.100} names no field: is it the format, and in whose language?")
    if at < len(text):
        pieces[-1] = pieces[-1][0], pieces[-1][1] + text[at:]
    if pieces[-1][1]:
        pieces.append((None, ""))
    return from_pieces(name, _each_once(pieces), head, at_end=at_end).checked()


def _each_once(pieces: list[tuple[str | None, str]]) -> list[tuple[str | None, str]]:
    """Of two fields that say the same, the first; of two times, the more exact one."""
    times = [field for field, _ in pieces if field in TIMES]
    exact = max(times, key=_EXACTNESS.index, default=None)
    seen: set[str] = set()
    out: list[tuple[str | None, str]] = []
    for field, until in pieces:
        kind = (field or "").partition("_")[0] if field in _SEVERAL_WAYS else field
        if field is None or kind in seen or (field in TIMES and field != exact):
            out.append((None, until))
            continue
        seen.add(kind or "")
        out.append((field, until))
    return out


def in_nginx_conf(text: str, wanted: str = "") -> LogFormat:
    """The ``log_format`` of an nginx.conf: the one named, or the one that an access_log uses."""
    formats: dict[str, str] = {}
    used: list[str] = []
    for words in _statements(text):
        if words[0] == "log_format" and len(words) > 2:
            body = [word for word in words[2:] if not word.startswith("escape=")]
            formats[words[1]] = "".join(body)
        elif words[0] == "access_log" and len(words) > 2 and "=" not in words[2]:
            used.append(words[2])
    name = wanted or next((each for each in used if each in formats), "")
    name = name or next(iter(formats), "")
    if name == "combined" and name not in formats:
        return COMBINED
    if name not in formats:
        known = ", ".join(formats) or "none"
        raise LogError(f"the configuration has no log_format {wanted!r}; it has {known}")
    body_text = formats[name]
    if body_text.lstrip().startswith("{"):
        return from_nginx_json(body_text, f"nginx log_format {name}")
    return from_nginx(body_text, f"nginx log_format {name}")


def _statements(text: str) -> Iterator[list[str]]:
    """The words of each statement."""
    words: list[str] = []
    for match in _TOKEN.finditer(text):
        single, double, sign, bare = match.groups()
        if sign is not None:
            if words:
                yield words
            words = []
        elif bare is not None:
            words.append(bare)
        elif single is not None or double is not None:
            words.append(re.sub(r"\\(['\"\\])", r"\1", single if single is not None else double))


def from_nginx_json(body: str, name: str) -> LogFormat:
    """A ``log_format`` that writes JSON: the variables say what its names mean."""
    names: dict[str, str] = {}
    for key, variable in _NGINX_PAIR.findall(body):
        try:
            fields = from_nginx(f"${variable} $msec").fields
        except LogError:
            continue
        if variable == "msec":
            names[key] = "time_s"
        elif len(fields) > 1:
            names[key] = fields[0]
        else:
            names[key] = f"field:{key}"
    return LogFormat(name, JSON, names=names, logged_at_end=True).checked()


def in_nginx_file(path: Path, wanted: str = "") -> LogFormat:
    try:
        return in_nginx_conf(path.read_text(encoding="utf-8", errors="replace"), wanted)
    except LogError as error:
        raise LogError(f"{path}: {error}") from None
