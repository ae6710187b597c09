"""Settings: every option of the service, defined once.

`settings_sources.py` reads them. Flags, environment variables, the configuration file and the
reference page all come from the fields of this class.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from typing import Any

from penstock.durations import SECOND, parse_duration
from penstock.errors import PenstockError
from penstock.integrations.deciding.identity import FORWARDED, X_FORWARDED_FOR, Trust
from penstock.limit import FAILURE_POLICIES
from penstock.stores.layout import LEAST_ROW, MOST_KEYS, MOST_ROW

OFF = "off"


class SettingsError(PenstockError, ValueError):
    """An option is wrong; the message says which, and where it was set."""


def _option(default: Any, help: str, kind: str = "text", **more: Any) -> Any:
    metadata = {"help": help, "kind": kind, **more}
    if isinstance(default, (tuple, list)):
        return field(default_factory=lambda: tuple(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of `penstock serve`."""

    rules: tuple[str, ...] = _option(
        (), "a file of rules, or a folder of such files; may be repeated", "list", metavar="PATH"
    )
    store: str = _option(
        "auto",
        "memory, shared (shared memory for all workers), shared:PATH, or a redis:// URL;"
        " auto is memory for one worker and shared for several",
        metavar="STORE",
    )
    max_keys: int | None = _option(
        None,
        "how many keys the memory or shared store holds before it evicts some (default: 1000000)",
        "number",
        metavar="N",
    )
    bytes_per_key: int | None = _option(
        None,
        "bytes for each key in the shared store; more than the rules need leaves room for"
        " rules that are loaded later (default: what the rules need, at least 128)",
        "number",
        metavar="N",
    )
    grpc: str = _option(
        "127.0.0.1:8081", "the address for gRPC: HOST:PORT, unix:PATH or off", metavar="ADDRESS"
    )
    http: str = _option(
        "127.0.0.1:8080", "the address for HTTP: HOST:PORT, unix:PATH or off", metavar="ADDRESS"
    )
    http_refunds: bool = _option(
        False, "allow clients of the HTTP API to refund hits (hits below 0)", "switch"
    )
    admin: str = _option(
        "127.0.0.1:6070",
        "the address for the admin API: HOST:PORT or off; needs a token unless it is loopback",
        metavar="ADDRESS",
    )
    admin_token_file: str = _option("", "a file with the admin API's token", metavar="FILE")
    admin_token_always: bool = _option(
        False, "require the token on loopback addresses, too", "switch"
    )
    admin_names: tuple[str, ...] = _option(
        (), "another host name that requests to the admin API may use; may be repeated",
        "list", metavar="NAME",
    )  # fmt: skip
    audit_log: str = _option(
        "",
        "a file for changes made by the admin API, as JSON lines (default: the log)",
        metavar="FILE",
    )
    audit_sync: bool = _option(False, "wait until each line of the audit log is on disk", "switch")
    workers: int = _option(1, "how many processes serve the same ports", "number", metavar="N")
    wire: str = _option(
        "auto", "what serves gRPC: nghttp2, grpcio, or auto for the first that is available",
        choices=("auto", "nghttp2", "grpcio"),
    )  # fmt: skip
    watch: bool = _option(True, "reload rules when their files change", "switch")
    merge_domains: bool = _option(
        False, "allow several files to have rules for the same domain", "switch"
    )
    headers: bool = _option(False, "add RateLimit headers to gRPC responses", "switch")
    shadow: bool = _option(False, "shadow mode: decide and report, but refuse nothing", "switch")
    trusted: tuple[str, ...] = _option(
        ("127.0.0.0/8", "::1", "unix"),
        "a network of proxies that are trusted to name the client's address, and that may use"
        " /v1/auth; may be repeated",
        "list",
        metavar="CIDR",
    )
    forwarded: str = _option(
        X_FORWARDED_FOR,
        "the header in which proxies name the client",
        choices=(X_FORWARDED_FOR, FORWARDED),
    )
    deadline: str = _option("10ms", "how long a decision waits for Redis at most", "duration")
    on_failure: str = _option(
        "open", "how to decide while Redis is unavailable", choices=FAILURE_POLICIES
    )
    share: float = _option(
        1.0, "with --on-failure local: this instance's fraction of every limit", "fraction"
    )
    tls_cert: str = _option(
        "", "a certificate for gRPC (PEM); reloaded when it changes", metavar="FILE"
    )
    tls_key: str = _option("", "the key of that certificate (PEM)", metavar="FILE")
    tls_client_ca: str = _option(
        "", "require client certificates signed by this authority (PEM)", metavar="FILE"
    )
    drain: str = _option(
        "10s", "how long to wait for open requests at shutdown at most", "duration"
    )
    log_level: str = _option(
        "info",
        "the least severe level that is logged",
        choices=("debug", "info", "warning", "error"),
    )
    log_format: str = _option("text", "how log lines are written", choices=("text", "json"))
    access_log: str = _option(
        "off", "which decisions are logged, one line for each", choices=("off", "refused", "all")
    )
    access_sample: float = _option(
        1.0, "the fraction of them that is logged, above 0 and at most 1", "fraction"
    )
    hash_keys: bool = _option(False, "show keys in logs and metrics only as hashes", "switch")
    webhook: str = _option("", "a URL to which anomalies are posted", metavar="URL")

    def __post_init__(self) -> None:
        for each in fields(self):
            _check(each, getattr(self, each.name))
        if not 1 <= self.workers <= 512:
            raise SettingsError(f"workers is from 1 to 512, not {self.workers}")
        if self.max_keys is not None and not 1 <= self.max_keys <= MOST_KEYS:
            raise SettingsError(f"max_keys is from 1 to {MOST_KEYS}, not {self.max_keys}")
        row = self.bytes_per_key
        if row is not None and (row % 8 or not LEAST_ROW <= row <= MOST_ROW):
            raise SettingsError(
                f"bytes_per_key is a multiple of 8 from {LEAST_ROW} to {MOST_ROW}, not {row}"
            )
        if self.workers > 1 and self.store == "memory":
            raise SettingsError("memory is not shared between workers: use --store shared")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise SettingsError("tls_cert and tls_key must be set together")
        if self.admin_token_always and not self.admin_token_file:
            raise SettingsError("admin_token_always needs admin_token_file")
        if not 0 < self.access_sample <= 1:
            raise SettingsError(f"access_sample is above 0 and at most 1, not {self.access_sample}")
        if self.tls_client_ca and not self.tls_cert:
            raise SettingsError("tls_client_ca needs tls_cert and tls_key")
        if self.http == OFF and self.grpc == OFF:
            raise SettingsError("both http and grpc are off: there is nothing to serve")
        try:
            Trust(self.trusted, header=self.forwarded)
        except ValueError as error:
            raise SettingsError(str(error)) from None

    @property
    def drain_seconds(self) -> float:
        return parse_duration(self.drain, "drain") / SECOND


def _check(each: Field[Any], value: Any) -> None:
    name, kind, choices = each.name, each.metadata["kind"], each.metadata.get("choices")
    if kind in ("text", "duration") and not isinstance(value, str):
        raise SettingsError(f"{name} is a text, not {value!r:.100}")
    if kind == "list" and not all(isinstance(part, str) for part in value):
        raise SettingsError(f"{name} is a list of texts, not {value!r:.100}")
    if kind == "switch" and type(value) is not bool:
        raise SettingsError(f"{name} is true or false, not {value!r:.100}")
    if choices and value not in choices:
        raise SettingsError(f"{name} is one of {', '.join(choices)}, not {value!r:.100}")
    if kind == "duration":
        try:
            parse_duration(value, name)
        except PenstockError as error:
            raise SettingsError(str(error)) from None
    if name in ("grpc", "http", "admin"):
        address_of(value, name)


def address_of(text: str, name: str) -> tuple[str, int] | str | None:
    """``(host, port)``, the path of a Unix socket, or None if it is off."""
    if text == OFF:
        return None
    if text.startswith("unix:"):
        return text.removeprefix("unix:").removeprefix("//")
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise SettingsError(f"{name} is HOST:PORT, unix:PATH or off, not {text!r:.100}")
    return host.strip("[]"), int(port)
