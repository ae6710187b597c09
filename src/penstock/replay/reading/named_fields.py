"""JSON lines and CSV: which of their names mean what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from penstock.replay.reading.formats import CSV, DURATIONS, JSON, TIMES, LogError, LogFormat

# By field, the names that servers and people use, most telling first. Compared in lower case,
# without "_", "-", "." and "@".
_NAMES: Mapping[str, tuple[str, ...]] = {
    "time": (
        "starttime", "startutc", "timeiso8601", "msec", "timestamp", "time", "timelocal", "ts",
        "datetime", "date", "eventtime", "requesttimestamp", "at",
    ),
    "peer": (
        "remoteaddr", "remoteaddress", "clientip", "remoteip", "requestremoteip", "ip",
        "clienthost",
        "client", "clientaddress", "clientaddr", "sourceip", "cip", "address",
        "downstreamremoteaddresswithoutport", "httprequestremoteip", "requestclientip", "peer",
        "downstreamremoteaddress", "clientaddrport",
    ),
    "user": ("user", "remoteuser", "userid", "username", "clientusername", "authuser"),
    "request": ("request", "requestline"),
    "method": ("method", "requestmethod", "httpmethod", "verb", "httprequestrequestmethod"),
    "target": (
        "path", "uri", "requesturi", "url", "requestpath", "target", "requesturl", "httppath",
        "httprequestrequesturl",
    ),
    "host": ("host", "httphost", "authority", "requesthost", "domainname", "vhost"),
    "status": (
        "status", "statuscode", "responsecode", "code", "originstatus", "downstreamstatus",
        "httprequeststatus",
    ),
    "bytes": (
        "bytes", "bytessent", "bodybytessent", "size", "responsesize", "sentbytes",
        "downstreamcontentsize",
    ),
    "duration": (
        "duration", "requesttime", "durationms", "latency", "elapsed", "responsetime",
        "durationns", "durations", "durationus", "elapsedms", "latencyms", "took",
    ),
    "header:user-agent": (
        "useragent", "httpuseragent", "agent", "requestuseragent", "ua", "requestheadersuseragent",
    ),
    "header:referer": ("referer", "referrer", "httpreferer", "httpreferrer"),
    "header:x-forwarded-for": ("xforwardedfor", "httpxforwardedfor", "forwardedfor", "xff"),
    "header:x-api-key": ("xapikey", "apikey", "httpxapikey"),
}  # fmt: skip
_NAME_OF = {name: field for field, names in _NAMES.items() for name in names}
_RANK = {name: rank for names in _NAMES.values() for rank, name in enumerate(names)}


def plain_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def guess_names(names: Iterable[str], samples: Mapping[str, object]) -> dict[str, str]:
    """From a log's own names to our fields; other names become ``field:NAME``."""
    best: dict[str, str] = {}
    everything = list(names)
    for name in everything:
        field = _NAME_OF.get(plain_name(name))
        if field is None:
            continue
        if field == "request" and not isinstance(samples.get(name), str):
            continue
        taken = best.get(field)
        if taken is None or _RANK[plain_name(name)] < _RANK[plain_name(taken)]:
            best[field] = name
    out: dict[str, str] = {}
    chosen = {name: field for field, name in best.items()}
    for name in everything:
        field = chosen.get(name, f"field:{name}")
        if field == "time":
            field = time_field(samples.get(name))
        elif field == "duration":
            field = duration_field(name, samples.get(name))
        elif (
            field == "peer"
            and re.search(r"\d:\d{1,5}$", str(samples.get(name)))
            and ("::" not in str(samples.get(name)) or "]" in str(samples.get(name)))
        ):
            field = "peer_port" if str(samples.get(name)).count(":") == 1 else "peer"
        out[name] = field
    return out


def time_field(sample: object) -> str:
    """How a time is written, by an example of it."""
    text = str(sample)
    if re.fullmatch(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d.*", text):
        return "time_iso"
    if re.match(r"\[?\d\d/[A-Z][a-z]{2}/\d{4}:", text):
        return "time_clf"
    if re.fullmatch(r"\d+(\.\d+)?([eE]\+?\d+)?", text):
        whole = len(text.partition(".")[0])
        return {13: "time_ms", 16: "time_us", 19: "time_ns"}.get(whole, "time_s")
    raise LogError(
        f"the time {text!r:.60} cannot be read: it is written as 2026-01-31T12:00:00Z, as"
        " 31/Jan/2026:12:00:00 +0000, or as a number since 1970"
    )


def duration_field(name: str, sample: object) -> str:
    """The unit of a duration, by its name, and else by an example of it."""
    plain = plain_name(name)
    for unit in ("ms", "us", "ns"):
        if plain.endswith(unit):
            return f"duration_{unit}"
    if isinstance(sample, int) and not isinstance(sample, bool):
        # Traefik writes nanoseconds, Envoy milliseconds; nobody writes whole seconds.
        return "duration_ns" if name == "Duration" else "duration_ms"
    return "duration_s"


def named_format(
    kind: str,
    samples: Mapping[str, object],
    given: Mapping[str, str] | None = None,
    *,
    separator: bytes = b",",
) -> LogFormat:
    """A format for these names. ``given`` is from fields to names: ``{"user": "account"}``."""
    names = guess_names(samples, samples)
    for field, name in (given or {}).items():
        if name not in samples and kind == CSV:
            raise LogError(f"there is no column {name!r}; there are {', '.join(samples)}")
        if field == "time" or field in TIMES:
            field = time_field(samples.get(name)) if field == "time" else field
            names = {key: value for key, value in names.items() if value not in TIMES}
        elif field == "duration" or field in DURATIONS:
            unit = duration_field(name, samples.get(name)) if field == "duration" else field
            names = {key: value for key, value in names.items() if value not in DURATIONS}
            field = unit
        else:
            field = {"remote_address": "peer", "ip": "peer", "path": "target"}.get(field, field)
            names = {key: value for key, value in names.items() if value != field}
        names[name] = field
    # nginx calls it request_time, and writes its lines when a request has ended.
    ended = any(plain_name(name) in ("requesttime", "responsetime") for name in names)
    if kind == CSV:
        columns = tuple(samples)
        return LogFormat(
            "CSV", CSV, names=names, separator=separator, columns=columns, logged_at_end=ended
        )
    return LogFormat("JSON lines", JSON, names=names, logged_at_end=ended)


def flat(record: Mapping[str, object], above: str = "", depth: int = 0) -> dict[str, object]:
    """The fields of a JSON object, those of objects in it as ``request.uri``."""
    out: dict[str, object] = {}
    for key, value in record.items():
        name = f"{above}{key}"
        if isinstance(value, dict) and depth < 3:
            out.update(flat(value, f"{name}.", depth + 1))
        elif isinstance(value, list):
            out[name] = value[0] if value else None
        else:
            out[name] = value
    return out
