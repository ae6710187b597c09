"""How the requests of a log are read by rules: dimensions, trusted proxies, and cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.gate import Gate
from penstock.integrations.deciding.descriptors import Descriptors, Dimension
from penstock.integrations.deciding.dimension_sources import SOURCES, parse_dimensions
from penstock.integrations.deciding.dimensions import DIMENSIONS, family
from penstock.integrations.deciding.identity import NOBODY_TRUSTED, Trust
from penstock.integrations.deciding.request import Request
from penstock.replay.deciding.log_request import LogRequest
from penstock.rules.aliases import ADDRESSES
from penstock.rules.model import RuleSet, without_quotas
from penstock.stores.memory import MOST_KEYS, MemoryStore

# A log does not know the routes of an application.
LOG_DIMENSIONS: Mapping[str, Dimension[Request]] = {
    name: dimension for name, dimension in DIMENSIONS.items() if name != "route"
}
_FIELDS_OF = {
    "remote_address": ("peer",),
    "ip": ("peer",),
    "method": ("method",),
    "path": ("target",),
    "host": ("host", "header:host"),
    "user": ("user",),
    "api_key": ("header:x-api-key",),
}


class ReplayClock:
    """A clock that the log sets."""

    def __init__(self, now: int = 0) -> None:
        self.time = now

    def now(self) -> int:
        return self.time

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing waits in a replay")

    async def sleep_async(self, seconds: float) -> None:
        raise AssertionError("nothing waits in a replay")


@dataclass(frozen=True, slots=True)
class Settings:
    """``dimensions``: functions of a request or texts as for ``--dimension``, by name; ``cost``:
    a number of the log by which a request counts, such as ``bytes``."""

    trust: Trust = NOBODY_TRUSTED
    dimensions: Mapping[str, Dimension[Request]] = field(default_factory=dict)
    domain: str | None = None
    cost: str | None = None

    def reading(self, fields: Iterable[str]) -> Settings:
        """For a log with these fields.

        If it does not name the peer, it was written by a proxy: where proxies are trusted, its
        ``X-Forwarded-For`` is what an application behind it would have read.
        """
        if self.trust.nobody or "peer" in fields:
            return self
        return replace(self, trust=self.trust.also_unknown())

    def gate(self, rules: RuleSet, clock: ReplayClock) -> Gate:
        """A gate over rules, on the clock of the replay. A log knows no balances: no quotas."""
        gate = Gate(without_quotas(rules), MemoryStore(MOST_KEYS, clock), clock=clock)
        for name in ADDRESSES:
            gate.group(name)  # as middleware does
        return gate

    def descriptors(self, gate: Gate) -> Descriptors[Request]:
        dimensions = {**LOG_DIMENSIONS, **self.dimensions}
        return Descriptors(gate, dimensions, _family, self.domain)

    def is_own(self, name: str) -> bool:
        """Whether a name means what it means everywhere."""
        return name not in self.dimensions

    def fields(self, names: Iterable[str]) -> list[str] | None:
        """The fields of a log that these dimensions read; None if that is not known."""
        fields: list[str] = []
        for name in names:
            if not self.is_own(name):
                return None
            if name in _FIELDS_OF:
                fields += _FIELDS_OF[name]
            elif name.startswith("header:"):
                fields.append(f"header:{name[7:].strip().lower()}")
            elif name.startswith("cookie:"):
                fields += [name, f"cookie:{name[7:].strip()}", "header:cookie"]
            elif name.startswith("field:"):
                fields.append(name)
            else:
                return None
        if not self.trust.nobody:
            fields += ["header:x-forwarded-for", "header:forwarded"]
        return fields


def _family(name: str) -> Dimension[Request] | None:
    kind, _, argument = name.partition(":")
    if kind == "field" and argument:
        return _field(argument)
    return family(name)


def _field(name: str) -> Dimension[Request]:
    def read(request: Request) -> str | None:
        return request.field(name) if isinstance(request, LogRequest) else None

    return read


def read_dimensions(texts: Iterable[str]) -> dict[str, Dimension[Request]]:
    """``NAME=SOURCE`` as the service reads it, and ``NAME=field:FIELD`` for fields of a log."""
    out: dict[str, Dimension[Request]] = {}
    others: list[str] = []
    for text in texts:
        name, _, source = text.partition("=")
        kind, _, argument = source.partition(":")
        if name and kind == "field" and argument:
            out[name] = _field(argument)
        elif kind not in SOURCES:
            known = ", ".join(f"{each}:..." for each in ("field", *SOURCES))
            raise ValueError(
                f"dimension is NAME=SOURCE, such as user=field:account, not {text!r:.100};"
                f" a SOURCE is one of {known}"
            )
        else:
            others.append(text)
    return {**parse_dimensions(others), **out}
