"""Settings: every option of the service, once.

Flags (``--grpc``), the environment (``PENSTOCK_GRPC``), a file (``grpc:``) and the reference
page are made from the fields of this class. A flag goes before the environment, that before
the file, and that before the default.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from penstock.durations import SECOND, parse_duration
from penstock.errors import PenstockError
from penstock.integrations.identity import FORWARDED, X_FORWARDED_FOR, Trust
from penstock.limit import FAILURE_POLICIES
from penstock.stores.layout import LEAST_ROW, MOST_KEYS, MOST_ROW

PREFIX = "PENSTOCK_"
OFF = "off"
_SWITCH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


class SettingsError(PenstockError, ValueError):
    """An option that makes no sense; says which, and where it came from."""


def _option(default: Any, help: str, kind: str = "text", **more: Any) -> Any:
    metadata = {"help": help, "kind": kind, **more}
    if isinstance(default, (tuple, list)):
        return field(default_factory=lambda: tuple(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Settings:
    """What `penstock serve` was told."""

    rules: tuple[str, ...] = _option(
        (), "a file of rules, or a folder of them; may be given again", "list", metavar="PATH"
    )
    store: str = _option(
        "auto",
        "memory, shared (one file for all workers), shared:PATH, or a redis:// URL;"
        " auto is memory for one worker and shared for several",
        metavar="STORE",
    )
    max_keys: int | None = _option(
        None,
        "how many keys are held in memory or in shared memory; above, keys give way"
        " (default: 1000000)",
        "number",
        metavar="N",
    )
    bytes_per_key: int | None = _option(
        None,
        "room for one key in shared memory; more than the rules need leaves room for"
        " others to be loaded (default: what the rules need, at least 128)",
        "number",
        metavar="N",
    )
    grpc: str = _option(
        "127.0.0.1:8081", "where gRPC listens: HOST:PORT, unix:PATH or off", metavar="ADDRESS"
    )
    http: str = _option(
        "127.0.0.1:8080", "where HTTP listens: HOST:PORT, unix:PATH or off", metavar="ADDRESS"
    )
    http_refunds: bool = _option(
        False, "let whoever can ask over HTTP give hits back (hits below 0)", "switch"
    )
    admin: str = _option(
        "127.0.0.1:6070",
        "where the admin API listens: HOST:PORT or off; not loopback needs a token",
        metavar="ADDRESS",
    )
    admin_token_file: str = _option("", "a file with the admin API's token", metavar="FILE")
    admin_token_always: bool = _option(False, "ask for the token on this machine, too", "switch")
    admin_names: tuple[str, ...] = _option(
        (), "another name of this machine, by which the admin API may be asked; may be given again",
        "list", metavar="NAME",
    )  # fmt: skip
    audit_log: str = _option(
        "", "where changes are written, as JSON lines; default: the log", metavar="FILE"
    )
    audit_sync: bool = _option(False, "wait until each line of it is on the disk", "switch")
    workers: int = _option(1, "processes on the same ports", "number", metavar="N")
    wire: str = _option(
        "auto", "what speaks gRPC: nghttp2, grpcio, or auto for the first that is there",
        choices=("auto", "nghttp2", "grpcio"),
    )  # fmt: skip
    watch: bool = _option(True, "reload rules when their files change", "switch")
    merge_domains: bool = _option(False, "let several files have rules for one domain", "switch")
    headers: bool = _option(False, "add RateLimit headers to answers over gRPC", "switch")
    shadow: bool = _option(False, "decide and tell, and refuse nobody", "switch")
    trusted: tuple[str, ...] = _option(
        ("127.0.0.0/8", "::1", "unix"),
        "a network of proxies whose word is taken for a client's address, and whose"
        " questions /v1/auth answers; may be given again",
        "list",
        metavar="CIDR",
    )
    forwarded: str = _option(
        X_FORWARDED_FOR, "the header that they write", choices=(X_FORWARDED_FOR, FORWARDED)
    )
    deadline: str = _option("10ms", "the longest that a decision waits for Redis", "duration")
    on_failure: str = _option(
        "open", "what is decided while Redis cannot be asked", choices=FAILURE_POLICIES
    )
    share: float = _option(
        1.0, "with --on-failure local: this instance's part of every limit", "fraction"
    )
    tls_cert: str = _option(
        "", "a certificate for gRPC, PEM; reread when it changes", metavar="FILE"
    )
    tls_key: str = _option("", "its key", metavar="FILE")
    tls_client_ca: str = _option(
        "", "clients must show a certificate of this authority", metavar="FILE"
    )
    drain: str = _option("10s", "the longest that open requests are waited for", "duration")
    log_level: str = _option("info", "", choices=("debug", "info", "warning", "error"))
    log_format: str = _option("text", "", choices=("text", "json"))
    access_log: str = _option(
        "off", "which decisions are logged, a line each", choices=("off", "refused", "all")
    )
    access_sample: float = _option(1.0, "which part of them, from 0 to 1", "fraction")
    hash_keys: bool = _option(False, "show keys in logs and metrics as hashes only", "switch")
    webhook: str = _option("", "a URL that is told of anomalies, by POST", metavar="URL")

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
            raise SettingsError("memory is not shared between workers: take --store shared")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise SettingsError("tls_cert and tls_key go together")
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


def flag_of(each: Field[Any]) -> str:
    return "--" + each.name.replace("_", "-")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Every option as a flag. What is not given is left out, for the others to say."""
    for each in fields(Settings):
        kind, help_text = each.metadata["kind"], _help(each)
        if kind == "switch":
            parser.add_argument(
                flag_of(each), action=argparse.BooleanOptionalAction,
                default=argparse.SUPPRESS, help=help_text,
            )  # fmt: skip
            continue
        parser.add_argument(
            flag_of(each), default=argparse.SUPPRESS, help=help_text,
            action="append" if kind == "list" else "store",
            choices=each.metadata.get("choices"), metavar=each.metadata.get("metavar"),
        )  # fmt: skip
    parser.add_argument("--config", metavar="FILE", help="a YAML file with these options")


def load(flags: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """From flags, the environment and a file, in this order."""
    known = {each.name: each for each in fields(Settings)}
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    config = flags.get("config") or environment.get(PREFIX + "CONFIG")
    if config:
        values.update(_from_file(config, known))
    for name, each in known.items():
        text = environment.get(PREFIX + name.upper())
        if text is not None:
            values[name] = _read(each, text, PREFIX + name.upper())
    for name, value in flags.items():
        if name in known and value is not None:
            values[name] = _read(known[name], value, flag_of(known[name]))
    return Settings(**values)


def _from_file(path: str, known: Mapping[str, Field[Any]]) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(Path(path).read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise SettingsError(f"{path}: a mapping of options, such as 'workers: 2'")
    values = {}
    for name, value in found.items():
        key = str(name).replace("-", "_")
        if key not in known:
            raise SettingsError(f"{path}: no option {name!r}; there are {', '.join(known)}")
        values[key] = _read(known[key], value, f"{path}: {name}")
    return values


def _read(each: Field[Any], value: Any, where: str) -> Any:
    """A value as its field wants it; texts come from flags and the environment."""
    kind = each.metadata["kind"]
    try:
        if kind == "list":
            parts = value.split(",") if isinstance(value, str) else value
            return tuple(part.strip() if isinstance(part, str) else part for part in parts if part)
        if kind == "switch" and isinstance(value, str):
            return _SWITCH[value.lower()]
        if kind == "number":
            return int(value)
        if kind == "fraction":
            return float(value)
    except (KeyError, ValueError, TypeError):
        raise SettingsError(f"{where}: not a {kind}: {value!r:.100}") from None
    # YAML 1.1 reads a bare `off` as false, which is what it means here.
    return OFF if value is False and kind == "text" else value


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


def _help(each: Field[Any]) -> str:
    parts = [each.metadata["help"] or each.name.replace("_", " ")]
    default = getattr(Settings(), each.name)
    if default not in ("", (), None):
        shown = ", ".join(default) if isinstance(default, tuple) else default
        parts.append(f"(default: {str(shown).lower() if isinstance(shown, bool) else shown})")
    return " ".join(parts).replace("%", "%%")


def reference() -> str:
    """The table of all options, for the reference page."""
    lines = ["| flag | in the environment | |", "|---|---|---|"]
    for each in fields(Settings):
        name = each.name
        lines.append(f"| `{flag_of(each)}` | `{PREFIX}{name.upper()}` | {_help(each)} |")
    return "\n".join(lines) + "\n"
