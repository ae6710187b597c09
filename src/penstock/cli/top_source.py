"""The data of ``penstock top``: read from the admin API and turned into rates.

The service counts from its start. A rate is the difference between two readings, divided by the
time between them on the service's clock. A count that decreased means a restart.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

# Rules and keys to request: more than fit on a screen, as the busiest now may not be the
# busiest since the start.
MOST = 200
TIMEOUT = 5.0
TOKEN = "PENSTOCK_ADMIN_TOKEN"
ADMIN = "http://127.0.0.1:6070"
LONGEST = 16_000_000
_JSON = {"Content-Type": "application/json"}
# The outcomes of decisions that allowed a request.
_PASSED = ("allowed", "near_limit", "overrun", "shadowed")


class AdminUnavailable(Exception):
    """The admin API cannot be used; says why, and what to do about it."""


@dataclass(frozen=True, slots=True)
class HolderRow:
    """What one process of the fleet holds of a key. ``demand`` is in units a second."""

    instance: str
    units: int
    demand: int


@dataclass(frozen=True, slots=True)
class LeasedKeyRow:
    """A key that is leased, and who holds how much of it."""

    key: str
    limit: str
    units: int
    demand: int
    holders: Sequence[HolderRow]


@dataclass(frozen=True, slots=True)
class Look:
    """One reading of the service. Counts are since its start."""

    at: float
    rules: Mapping[str, Mapping[str, int]]
    keys: Mapping[str, tuple[int, int]]  # refusals, and by how much they may be too high
    about: Mapping[str, Any] = field(default_factory=dict)
    components: Mapping[str, str] = field(default_factory=dict)
    leases: Mapping[str, int] = field(default_factory=dict)  # empty if the store does not lease
    leased_keys: Sequence[LeasedKeyRow] = ()


@dataclass(frozen=True, slots=True)
class RuleRow:
    """Decisions of a rule: a second, and since the start."""

    rule: str
    allowed: float
    refused: float
    near: float
    total_allowed: int
    total_refused: int

    @property
    def rate(self) -> float:
        return self.allowed + self.refused

    @property
    def total(self) -> int:
        return self.total_allowed + self.total_refused


@dataclass(frozen=True, slots=True)
class KeyRow:
    key: str
    refused: float
    total: int
    error: int


def token_of(arguments: argparse.Namespace) -> str:
    """From the options, or from the environment."""
    if arguments.token:
        return str(arguments.token)
    if arguments.token_file:
        from penstock.admin.tokens import read_file

        return next(iter(read_file(arguments.token_file).values()))
    return os.environ.get(TOKEN, "").strip()


class AdminClient:
    """Asks the admin API of a service."""

    def __init__(self, admin: str, token: str = "") -> None:
        text = admin if "://" in admin else f"http://{admin}"
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(f"admin must be like http://127.0.0.1:6070, not {admin!r:.100}")
        if "\n" in token or "\r" in token:
            raise ValueError("a token must be one line")
        self.base = text.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        # On our own network: do not use a proxy from the environment.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def look(self) -> Look:
        top = self._get(f"/v1/top?n={MOST}")
        about = self._get("/v1/version")
        health = self._get("/v1/health")
        try:
            store = str(about.get("store", ""))
            if not (store.endswith(", leased") or store.startswith("leased+")):
                return look_of(top, about, health)
            figures, leases = self._get("/v1/store"), self._get("/v1/leases")
            return look_of(top, about, health, figures, leases)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise AdminUnavailable(f"{self.base} sent an unexpected answer: {error!r}") from None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer; `AdminUnavailable` if the request is refused."""
        return self._get(path, method, None if body is None else json.dumps(body).encode())

    def text(self, path: str) -> str:
        """An answer that is not JSON, or JSON as it is."""
        return self._send(path).decode("utf-8", "replace")

    def _get(self, path: str, method: str = "GET", body: bytes | None = None) -> Any:
        answer = self._send(path, method, body)
        try:
            return json.loads(answer)
        except ValueError as error:
            raise AdminUnavailable(f"no answer from {self.base}: {error}") from None

    def _send(self, path: str, method: str = "GET", body: bytes | None = None) -> bytes:
        request = urllib.request.Request(
            self.base + path, body, {**self._headers, **_JSON}, method=method
        )
        try:
            try:
                with self._opener.open(request, timeout=TIMEOUT) as answer:
                    body = answer.read(LONGEST)
            except urllib.error.HTTPError as error:
                body = error.read(LONGEST)
                # The only answer with this status that is no error: something is down.
                if error.code != 503 or path != "/v1/health":
                    raise AdminUnavailable(_why(self.base, error.code, body)) from None
            return body
        except urllib.error.URLError as error:
            reason = getattr(error.reason, "strerror", None) or error.reason
            raise AdminUnavailable(
                f"cannot reach {self.base}: {reason}. Is penstock serve running there?"
            ) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise AdminUnavailable(f"no answer from {self.base}: {error or error!r}") from None


def _why(base: str, status: int, body: bytes) -> str:
    try:
        error = str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        error = f"HTTP {status}"
    if status in (401, 403):
        return f"{base} denied access: {error}. Use --token-file, or PENSTOCK_ADMIN_TOKEN"
    return f"{base} failed: {error}"


def look_of(top: Any, about: Any, health: Any, store: Any = None, leased: Any = None) -> Look:
    """A reading of /v1/top, /v1/version and /v1/health; and of /v1/store and /v1/leases."""
    leases = (store or {}).get("leases") or {}
    leased = leased or {"keys": []}
    return Look(
        at=float(top["at"]),
        rules={
            str(row["rule"]): {name: int(count) for name, count in row.items() if name != "rule"}
            for row in top["rules"]
        },
        keys={
            str(row["key"]): (int(row["refused"]), int(row.get("error", 0))) for row in top["keys"]
        },
        about=dict(about),
        components={str(n): str(state) for n, state in health.get("components", {}).items()},
        leases={str(name): int(count) for name, count in leases.items()},
        leased_keys=[_leased_key(row) for row in leased["keys"]],
    )


def _leased_key(row: Any) -> LeasedKeyRow:
    holders = [
        HolderRow(str(each["instance"]), int(each["units"]), int(each["demand"]))
        for each in row["holders"]
    ]
    units, demand = int(row["units"]), int(row["demand"])
    return LeasedKeyRow(str(row["key"]), str(row["limit"]), units, demand, holders)


def rule_rows(before: Look, now: Look) -> list[RuleRow]:
    """The busiest first."""
    seconds = now.at - before.at
    rows = []
    for rule, counts in now.rules.items():
        old = before.rules.get(rule, {})
        passed = sum(_rate(counts, old, name, seconds) for name in _PASSED)
        rows.append(
            RuleRow(
                rule,
                passed,
                _rate(counts, old, "refused", seconds),
                _rate(counts, old, "near_limit", seconds),
                sum(counts.get(name, 0) for name in _PASSED),
                counts.get("refused", 0),
            )
        )
    return sorted(rows, key=lambda row: (-row.rate, -row.total, row.rule))


def key_rows(before: Look, now: Look) -> list[KeyRow]:
    """The most refused keys: now, then since the start."""
    seconds = now.at - before.at
    rows = []
    for key, (count, error) in now.keys.items():
        # A key that was not listed before may have been counted already.
        old = before.keys.get(key, (error, 0))[0]
        rows.append(KeyRow(key, _per_second(count, old, seconds), count, error))
    return sorted(rows, key=lambda row: (-row.refused, -row.total, row.key))


def totals(rows: Sequence[RuleRow]) -> tuple[float, float, float]:
    """Decisions a second: allowed, refused and near a limit."""
    return (
        sum(row.allowed for row in rows),
        sum(row.refused for row in rows),
        sum(row.near for row in rows),
    )


def local_share(before: Look, now: Look) -> float | None:
    """The part of the decisions that leases saved a call; None if there were no decisions."""
    here, directly = (
        _rate(now.leases, before.leases, name, 1.0) for name in ("decided_here", "decided_directly")
    )
    return here / (here + directly) if here + directly else None


def _rate(counts: Mapping[str, int], old: Mapping[str, int], name: str, seconds: float) -> float:
    return _per_second(counts.get(name, 0), old.get(name, 0), seconds)


def _per_second(count: int, old: int, seconds: float) -> float:
    if seconds <= 0:
        return 0.0
    return (count - old if count >= old else count) / seconds
