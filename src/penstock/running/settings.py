"""Settings: every option of the service, defined once.

`settings_sources.py` reads them. Flags, environment variables, the configuration file and the
reference page all come from the fields of this class.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from typing import Any

from penstock.admin.log_level import LEVELS
from penstock.durations import SECOND, parse_duration
from penstock.errors import PenstockError
from penstock.integrations.deciding.dimension_sources import parse_dimensions
from penstock.integrations.deciding.identity import FORWARDED, X_FORWARDED_FOR, Trust
from penstock.limit_options import FAILURE_POLICIES
from penstock.metrics.statsd import FORMATS, PLAIN, parse_address
from penstock.stores.layout import LEAST_ROW, MOST_KEYS, MOST_ROW
from penstock.stores.url import LEASED

OFF = "off"
# Proxies that are trusted by default.
TRUSTED = ("127.0.0.0/8", "::1", "unix")


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
        "auto", "memory, shared (shared memory for all workers), shared:PATH, or a redis:// URL;"
        " auto is memory for one worker and shared for several", metavar="STORE",
    )  # fmt: skip
    leased: bool = _option(
        False, "decide hot keys in each worker, with units that are leased from the counters in"
        " Redis; needs a redis:// URL as the store", "switch",
    )  # fmt: skip
    lease_replicas: int = _option(
        0, "with --leased, how many replicas of Redis must have a grant before it is spent, so that"
        " a fail-over forgets no lease", "number", metavar="N",
    )  # fmt: skip
    ledger: str = _option(
        "", "the ledger of quotas in the rules: sqlite:///PATH or a postgresql:// URL",
        metavar="URL",
    )  # fmt: skip
    settle: str = _option(
        "10s", "how often the ledger is told what was spent of quotas", "duration"
    )
    journal: str = _option(
        "", "a folder for what was spent of quotas and not settled yet; it must survive the process"
        " (default: /var/tmp/penstock-UID/journal)", metavar="FOLDER",
    )  # fmt: skip
    region: str = _option(
        "", "the name of this site, if limits are shared by several; needs --home, and a redis://"
        " URL of this site's own as the store", metavar="NAME",
    )  # fmt: skip
    home: str = _option(
        "", "the Redis that all regions share, which lends each a share of every limit",
        metavar="URL",
    )  # fmt: skip
    floor: str = _option(
        "0.05", "the part of every limit that is reserved for this region; those of all regions are"
        " at most 1", metavar="PART",
    )  # fmt: skip
    region_lease: str = _option(
        "30s", "how long a region may use a share without hearing from --home; the same in all"
        " regions", "duration",
    )  # fmt: skip
    control: str = _option(
        "memory:", "where rules, overrides and switches are shared with other instances: a"
        " redis:// URL, file:PATH for this host, or memory: for this instance alone",
        metavar="URL",
    )  # fmt: skip
    control_cache: str = _option(
        "", "a file with what --control last knew, for a start while Redis is away",
        metavar="FILE",
    )  # fmt: skip
    instance: str = _option(
        "", "the name under which this instance reports to --control (default: host:pid)",
        metavar="NAME",
    )  # fmt: skip
    max_keys: int | None = _option(
        None, "how many keys the memory or shared store holds before it evicts some"
        " (default: 1000000)", "number", metavar="N",
    )  # fmt: skip
    bytes_per_key: int | None = _option(
        None, "bytes for each key in the shared store; more than the rules need leaves room for"
        " rules that are loaded later (default: what the rules need, at least 128)",
        "number", metavar="N",
    )  # fmt: skip
    grpc: str = _option(
        "127.0.0.1:8081", "the address for gRPC: HOST:PORT, unix:PATH or off", metavar="ADDRESS"
    )
    http: str = _option(
        "127.0.0.1:8080", "the address for HTTP: HOST:PORT, unix:PATH or off", metavar="ADDRESS"
    )
    http_refunds: bool = _option(
        False, "allow clients of the HTTP API to refund hits (hits below 0)", "switch"
    )
    lease_secret_file: str = _option(
        "", "a file with a secret that signs the leases of rules with concurrency; a fleet needs"
        " the same on every host (default: a new one at each start)", metavar="FILE",
    )  # fmt: skip
    admin: str = _option(
        "127.0.0.1:6070", "the address for the admin API: HOST:PORT or off; needs a token unless"
        " it is loopback", metavar="ADDRESS",
    )  # fmt: skip
    admin_token_file: str = _option("", "a file with the admin API's token", metavar="FILE")
    admin_token_always: bool = _option(
        False, "require the token on loopback addresses, too", "switch"
    )
    admin_names: tuple[str, ...] = _option(
        (), "another host name that requests to the admin API may use; may be repeated",
        "list", metavar="NAME",
    )  # fmt: skip
    audit_log: str = _option(
        "", "a file for changes made by the admin API, as JSON lines (default: the log)",
        metavar="FILE",
    )  # fmt: skip
    history: str = _option(
        "", "a file that keeps the charts of the page over restarts (default: they begin anew)",
        metavar="FILE",
    )  # fmt: skip
    flight_recorder: bool = _option(
        True, "keep the last requests of each worker in memory (some 20 MB), to try changed rules"
        " on", "switch",
    )  # fmt: skip
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
    response_dynamic_metadata: bool = _option(
        False, "add dynamic metadata to responses to Envoy: the request, and metadata of rules",
        "switch",
    )  # fmt: skip
    quota_mode: bool = _option(
        False, "treat all rules as if they had quota_mode: refuse a request only if all of its"
        " limits are exhausted", "switch",
    )  # fmt: skip
    shadow: bool = _option(False, "shadow mode: decide and report, but refuse nothing", "switch")
    trusted: tuple[str, ...] = _option(
        TRUSTED,
        "a network of proxies that are trusted to name the client's address, and that may use"
        " /v1/auth; may be repeated", "list", metavar="CIDR",
    )  # fmt: skip
    forwarded: str = _option(
        X_FORWARDED_FOR, "the header in which proxies name the client",
        choices=(X_FORWARDED_FOR, FORWARDED),
    )  # fmt: skip
    dimension: tuple[str, ...] = _option(
        (), "for /v1/auth: what a key of the rules is of a request, such as user=header:x-user-id"
        " (a header that the proxy sets); also client-header:, secret-header:, cookie: and text:;"
        " may be repeated", "list", metavar="NAME=SOURCE",
    )  # fmt: skip
    rlqs_message_bytes: int = _option(
        4 * 2**20, "the largest report of a gateway that gets quotas (RLQS), in bytes; Envoy's have"
        " about 41 for each bucket", "number", metavar="N",
    )  # fmt: skip
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
        "", "require client certificates for gRPC, signed by this authority (PEM)", metavar="FILE"
    )
    http_tls_cert: str = _option(
        "", "a certificate for HTTP (PEM); reloaded when it changes", metavar="FILE"
    )
    http_tls_key: str = _option("", "the key of that certificate (PEM)", metavar="FILE")
    http_tls_client_ca: str = _option(
        "", "require client certificates for HTTP, signed by this authority (PEM)", metavar="FILE"
    )
    admin_tls_cert: str = _option(
        "", "a certificate for the admin API (PEM); reloaded when it changes", metavar="FILE"
    )
    admin_tls_key: str = _option("", "the key of that certificate (PEM)", metavar="FILE")
    admin_tls_client_ca: str = _option(
        "", "require client certificates for the admin API, signed by this authority (PEM)",
        metavar="FILE",
    )  # fmt: skip
    drain: str = _option(
        "10s", "how long to wait for open requests at shutdown at most", "duration"
    )
    log_level: str = _option("info", "the least severe level that is logged", choices=LEVELS)
    log_format: str = _option("text", "how log lines are written", choices=("text", "json"))
    access_log: str = _option(
        "off", "which decisions are logged, one line for each", choices=("off", "refused", "all")
    )
    access_sample: float = _option(
        1.0, "the fraction of them that is logged, above 0 and at most 1", "fraction"
    )
    hash_keys: bool = _option(False, "show keys in logs and metrics only as hashes", "switch")
    webhook: str = _option("", "a URL to which anomalies are posted", metavar="URL")
    statsd: str = _option("", "send metrics to this statsd over UDP", metavar="HOST:PORT")
    statsd_format: str = _option(
        PLAIN, "how statsd gets labels: as parts of names, or as tags of DogStatsD",
        choices=FORMATS,
    )  # fmt: skip
    statsd_interval: str = _option("10s", "how often metrics are sent to statsd", "duration")

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
        least, most = 2**10, 2**28
        if not least <= self.rlqs_message_bytes <= most:
            raise SettingsError(
                f"rlqs_message_bytes is from {least} to {most}, not {self.rlqs_message_bytes}"
            )
        if self.workers > 1 and self.store == "memory":
            raise SettingsError("memory is not shared between workers: use --store shared")
        leased = self.leased or self.store.startswith(LEASED)
        if leased and "://" not in self.store:
            raise SettingsError(
                f"leased needs a store in Redis (--store redis://...), not {self.store!r:.100}"
            )
        if self.lease_replicas < 0:
            raise SettingsError(f"lease_replicas is at least 0, not {self.lease_replicas}")
        if self.lease_replicas and not leased:
            raise SettingsError("lease_replicas is for leases: use it with --leased")
        if bool(self.region) != bool(self.home):
            raise SettingsError(
                "region and home must be set together: --region eu --home redis://..."
            )
        if self.region and "://" not in self.store:
            raise SettingsError(
                f"region needs a store in Redis (--store redis://...), not {self.store!r:.100}"
            )
        for prefix in ("", "http_", "admin_"):
            cert, key, clients = (
                bool(getattr(self, f"{prefix}tls_{name}")) for name in ("cert", "key", "client_ca")
            )
            if cert != key:
                raise SettingsError(f"{prefix}tls_cert and {prefix}tls_key must be set together")
            if clients and not cert:
                raise SettingsError(
                    f"{prefix}tls_client_ca needs {prefix}tls_cert and {prefix}tls_key"
                )
        if self.admin_token_always and not self.admin_token_file:
            raise SettingsError("admin_token_always needs admin_token_file")
        if not 0 < self.access_sample <= 1:
            raise SettingsError(f"access_sample is above 0 and at most 1, not {self.access_sample}")
        if self.http == OFF and self.grpc == OFF:
            raise SettingsError("both http and grpc are off: there is nothing to serve")
        try:
            Trust(self.trusted, header=self.forwarded)
            parse_dimensions(self.dimension)
            if self.statsd:
                parse_address(self.statsd)
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
