"""What a line of a log looks like: its fields, and the text between them.

The fields have one name each, whatever a server calls them:

====================== ==================================================================
``peer``               the other end of the connection; ``peer_port`` with a port after it
``user``               who is logged in
``request``            method, target and protocol: ``GET /a?b HTTP/1.1``
``method``, ``target`` two of these
``host``               the host that was asked for
``status``, ``bytes``  of the response
``header:NAME``        a header of the request, by its name in lower case
``cookie:NAME``        a cookie
``field:NAME``         any other field of JSON lines or CSV
``time_...``           clf, iso, s, ms, us or ns: how the time is written
``duration_...``       s, ms, us or ns
====================== ==================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.errors import PenstockError

TIMES = ("time_clf", "time_iso", "time_s", "time_ms", "time_us", "time_ns")
DURATIONS = {
    "duration_s": 1_000_000_000,
    "duration_ms": 1_000_000,
    "duration_us": 1_000,
    "duration_ns": 1,
}
TEXT, JSON, CSV = "text", "json", "csv"


class LogError(PenstockError):
    """A log, or the description of its format, cannot be read."""


@dataclass(frozen=True, slots=True)
class Part:
    """A field, and the text after it. The last of a line has none."""

    field: str | None  # None: it is skipped
    until: bytes


@dataclass(frozen=True, slots=True)
class LogFormat:
    """How to read a line.

    ``head`` and ``parts`` describe lines of text. JSON lines and CSV have ``names``: from their
    own names to the fields. ``logged_at_end`` says that the time is that of the response, so
    that a request began as long before as it took.
    """

    name: str
    kind: str = TEXT
    head: bytes = b""
    parts: tuple[Part, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    separator: bytes = b","
    header: bool = True  # of CSV: whether its first line has the names
    columns: tuple[str, ...] = ()  # of CSV, in their order
    logged_at_end: bool = False

    @property
    def fields(self) -> list[str]:
        """What a line says, by the names above."""
        if self.kind == TEXT:
            return [part.field for part in self.parts if part.field is not None]
        return list(self.names.values())

    @property
    def time(self) -> str:
        return next((name for name in self.fields if name in TIMES), "")

    @property
    def duration(self) -> str:
        return next((name for name in self.fields if name in DURATIONS), "")

    def checked(self) -> LogFormat:
        """Itself, if a replay can use it; else `LogError`."""
        if not self.time and self.kind != TEXT:
            raise LogError(
                f"none of the fields {', '.join(self.names)} is known to be the time: say which,"
                " such as --field time=created_at"
            )
        if not self.time:
            raise LogError(
                f"the format {self.name} has no time: a replay needs to know when each request"
                " came; known are $time_local, $msec (nginx), %t (Apache), %START_TIME% (Envoy)"
            )
        empty = [
            part.field
            for part, after in zip(self.parts, self.parts[1:], strict=False)
            if part.until == b"" and after
        ]
        if self.kind == TEXT and empty:
            raise LogError(
                f"the format {self.name} has nothing between {empty[0] or 'a field'} and the field"
                " after it: nobody can tell where the one ends"
            )
        return self

    def describe(self) -> str:
        """For people: the name, and the fields that were recognised."""
        known = ", ".join(dict.fromkeys(self.fields))
        return f"{self.name} ({known})"


def from_pieces(
    name: str, pieces: Sequence[tuple[str | None, str]], head: str = "", *, at_end: bool = False
) -> LogFormat:
    """A format of text from (field, text after it)."""
    parts = tuple(Part(what, until.encode()) for what, until in pieces)
    while parts and parts[-1].field is None and parts[-1].until == b"" and len(parts) > 1:
        if parts[-2].until == b"":
            parts = parts[:-1]
        else:
            break
    return LogFormat(name, TEXT, head.encode(), parts, logged_at_end=at_end)


COMMON = from_pieces(
    "common",
    [
        ("peer", " "),
        (None, " "),
        ("user", " ["),
        ("time_clf", '] "'),
        ("request", '" '),
        ("status", " "),
        ("bytes", ""),
    ],
)
COMBINED = from_pieces(
    "combined",
    [
        ("peer", " "),
        (None, " "),
        ("user", " ["),
        ("time_clf", '] "'),
        ("request", '" '),
        ("status", " "),
        ("bytes", ' "'),
        ("header:referer", '" "'),
        ("header:user-agent", '"'),
        (None, ""),
    ],
)
# https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-access-logs.html
ALB = from_pieces(
    "alb",
    [
        (None, " "),  # type
        (None, " "),  # time of the response
        (None, " "),  # name of the balancer
        ("peer_port", " "),
        (None, " "),  # target
        (None, " "),  # request_processing_time
        (None, " "),  # target_processing_time
        (None, " "),  # response_processing_time
        ("status", " "),
        (None, " "),  # status of the target
        (None, " "),  # received bytes
        ("bytes", ' "'),
        ("request", '" "'),
        ("header:user-agent", '" '),
        (None, " "),  # ssl_cipher
        (None, " "),  # ssl_protocol
        (None, ' "'),  # target_group_arn
        (None, '" "'),  # trace id
        (None, '" "'),  # domain name
        (None, '" '),  # certificate
        (None, " "),  # priority of the rule
        ("time_iso", " "),  # request_creation_time
        (None, ""),
    ],
)
# `option httplog`, as it stands in a container's output; and after what syslog puts before it.
HAPROXY_RAW = from_pieces(
    "haproxy",
    [
        ("peer_port", " ["),
        ("time_clf", "] "),
        (None, " "),  # frontend
        (None, " "),  # backend/server
        (None, "/"),  # TR
        (None, "/"),  # Tw
        (None, "/"),  # Tc
        (None, "/"),  # Tr
        ("duration_ms", " "),
        ("status", " "),
        ("bytes", " "),
        (None, ' "'),
        ("request", '"'),
        (None, ""),
    ],
)
HAPROXY = LogFormat("haproxy", parts=(Part(None, b"]: "), *HAPROXY_RAW.parts))
