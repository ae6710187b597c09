"""The handlers of the endpoints: queries of one process, changes in all of them.

A handler gets checked parameters and returns JSON, an `HttpResponse`, or a `Change`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any

from penstock import _mode
from penstock._version import __version__
from penstock.admin.commands import Answer, Command, check_switch
from penstock.admin.control import Control
from penstock.admin.endpoints import ENDPOINTS
from penstock.admin.errors import RequestRejected
from penstock.admin.openapi import document
from penstock.admin.reading import MOST_DESCRIPTORS, pairs_in
from penstock.admin.stats import stats_text
from penstock.clock import MONOTONIC, SECOND, Clock
from penstock.errors import PenstockError
from penstock.metrics.snapshot import Snapshot
from penstock.rules.model import ENFORCE
from penstock.wires.http.messages import HttpResponse, as_json, as_text

Parameters = dict[str, Any]

# The most overrides, entries of each list, and switched rules: a change copies them all.
MOST_SWITCHED = 10_000
MOST_TOP = 1_000
_WHAT_GROWS = {
    "modes": "switches of rules",
    "overrides": "overrides",
    "allow": "entries of the allow list",
    "deny": "entries of the deny list",
}
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sources:
    """Where handlers get data from. Each may return or be awaited; None if there is none.

    - ``health``: components by name, and whether each is up
    - ``about``: what ``/v1/version`` shows in addition to the version: wire, store, workers
    - ``metrics``: the body of ``/metrics``
    - ``snapshot``: the source of ``/stats``
    - ``top``: the first n, for ``/v1/top``
    """

    health: Callable[[], Mapping[str, bool] | Awaitable[Mapping[str, bool]]] = dict
    about: Callable[[], Mapping[str, Any] | Awaitable[Mapping[str, Any]]] = dict
    metrics: Callable[[], bytes | Awaitable[bytes]] | None = None
    snapshot: Callable[[], Snapshot | Awaitable[Snapshot]] | None = None
    top: Callable[[int], Any] | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """The state before and after, and what else the response contains."""

    before: Any
    after: Any
    more: dict[str, Any] = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        return {"before": self.before, "after": self.after, **self.more}


@dataclass(frozen=True, slots=True)
class Reloaded(Change):
    def content(self) -> dict[str, Any]:
        return {**self.after, **self.more}


class Handlers:
    """One method for each ``does`` in the table of endpoints."""

    def __init__(self, control: Control, sources: Sources, clock: Clock = MONOTONIC) -> None:
        self._control = control
        self._sources = sources
        self._clock = clock
        self._start = clock.now()

    # Queries -------------------------------------------------------------------------------

    async def index(self, parameters: Parameters) -> HttpResponse:
        lines = [f"{each.method:6} {each.path:20} {each.summary}" for each in ENDPOINTS]
        return as_text("\n".join(lines) + "\n")

    async def openapi(self, parameters: Parameters) -> dict[str, Any]:
        return document()

    async def rlconfig(self, parameters: Parameters) -> HttpResponse:
        rules = await self._ask({"do": "rules"})
        lines = [rule["line"] for domain in rules["domains"] for rule in domain["rules"]]
        return as_text("".join(f"{line}\n" for line in lines))

    async def stats(self, parameters: Parameters) -> HttpResponse:
        return as_text(stats_text(await _call(self._sources.snapshot)))

    async def metrics(self, parameters: Parameters) -> HttpResponse:
        return HttpResponse(200, await _call(self._sources.metrics), content_type=EXPOSITION)

    async def healthcheck(self, parameters: Parameters) -> HttpResponse:
        down = [name for name, up in (await _call(self._sources.health)).items() if not up]
        return as_text("OK") if not down else as_text(f"down: {', '.join(down)}", 500)

    async def health(self, parameters: Parameters) -> HttpResponse:
        health = await _call(self._sources.health)
        healthy = all(health.values())
        components = {name: "up" if up else "down" for name, up in health.items()}
        content = {"healthy": healthy, "components": components}
        return as_json(content, 200 if healthy else 503)

    async def version(self, parameters: Parameters) -> dict[str, Any]:
        summary = await self._ask({"do": "summary"})
        return {
            **(await _call(self._sources.about)),
            "version": __version__,
            "core": _mode.describe(),
            "uptime": (self._clock.now() - self._start) / SECOND,
            **summary,
        }

    async def rules(self, parameters: Parameters) -> Any:
        return await self._ask({"do": "rules"})

    async def counters(self, parameters: Parameters) -> dict[str, Any]:
        if len(parameters["descriptor"]) > MOST_DESCRIPTORS:
            raise RequestRejected(400, f"at most {MOST_DESCRIPTORS} descriptors at once")
        command = {
            "do": "counters",
            "domain": parameters.get("domain"),
            "limit": parameters.get("limit"),
            "descriptors": [pairs_in(text) for text in parameters["descriptor"]],
        }
        return {"counters": await self._ask(command)}

    async def switches(self, parameters: Parameters) -> Any:
        return await self._ask({"do": "switches"})

    async def overrides(self, parameters: Parameters) -> dict[str, Any]:
        return {"overrides": (await self._ask({"do": "switches"}))["overrides"]}

    async def allow(self, parameters: Parameters) -> dict[str, Any]:
        return {"entries": (await self._ask({"do": "switches"}))["allow"]}

    async def deny(self, parameters: Parameters) -> dict[str, Any]:
        return {"entries": (await self._ask({"do": "switches"}))["deny"]}

    async def level(self, parameters: Parameters) -> dict[str, Any]:
        return {"level": await self._ask({"do": "level"})}

    async def top(self, parameters: Parameters) -> Any:
        n = parameters.get("n", 10)
        if not 1 <= n <= MOST_TOP:
            raise RequestRejected(400, f"n must be from 1 to {MOST_TOP}, not {n}")
        return await _call(self._sources.top, n)

    # Changes -------------------------------------------------------------------------------

    async def reload(self, parameters: Parameters) -> Change:
        before = await self._ask({"do": "summary"})
        workers = await self._apply({"do": "reload"})
        return Reloaded(before, await self._ask({"do": "summary"}), {"workers": workers})

    async def reset(self, parameters: Parameters) -> Change:
        return Change(**await self._ask({"do": "reset", **parameters}))

    async def refund(self, parameters: Parameters) -> Change:
        return Change(**await self._ask({"do": "refund", **parameters}))

    async def set_mode(self, parameters: Parameters) -> Change:
        name = parameters.get("name")
        if name is not None and not await self._ask({"do": "knows", "name": name}):
            raise RequestRejected(404, f"there is no rule or limit {name!r:.200}: see /v1/rules")
        return await self._switch(
            {"do": "mode", "mode": parameters["mode"], "name": name},
            lambda found: found["mode"] if name is None else found["modes"].get(name),
            "modes",
        )

    async def clear_mode(self, parameters: Parameters) -> Change:
        name = parameters.get("name")
        if name is None:
            command = {"do": "mode", "mode": ENFORCE, "name": None}
            return await self._switch(command, lambda found: found["mode"])
        return await self._clear(
            {"do": "clear_mode", "name": name}, lambda found: found["modes"].get(name)
        )

    async def set_override(self, parameters: Parameters) -> Change:
        find = _finder("overrides", key=parameters["key"], value=parameters["value"])
        return await self._switch({"do": "override", **parameters}, find, "overrides")

    async def clear_override(self, parameters: Parameters) -> Change:
        return await self._clear(
            {"do": "clear_override", **parameters}, _finder("overrides", **parameters)
        )

    async def set_allow(self, parameters: Parameters) -> Change:
        return await self._set_entry("allow", parameters)

    async def set_deny(self, parameters: Parameters) -> Change:
        return await self._set_entry("deny", parameters)

    async def clear_allow(self, parameters: Parameters) -> Change:
        command = {"do": "clear_list", "which": "allow", **parameters}
        return await self._clear(command, _finder("allow", **parameters))

    async def clear_deny(self, parameters: Parameters) -> Change:
        command = {"do": "clear_list", "which": "deny", **parameters}
        return await self._clear(command, _finder("deny", **parameters))

    async def _set_entry(self, which: str, parameters: Parameters) -> Change:
        find = _finder(which, key=parameters["key"], entry=parameters["entry"])
        return await self._switch({"do": "list", "which": which, **parameters}, find, which)

    async def set_level(self, parameters: Parameters) -> Change:
        before = await self._ask({"do": "level"})
        workers = await self._apply({"do": "log_level", "level": parameters["level"]})
        return Change(before, await self._ask({"do": "level"}), {"workers": workers})

    # Through the control -------------------------------------------------------------------

    async def _switch(
        self, command: Command, find: Callable[[Any], Any], grows: str | None = None
    ) -> Change:
        """Check the command here, then execute it everywhere; ``grows`` may gain an entry."""
        try:
            check_switch(command)
        except (PenstockError, ValueError, TypeError) as error:
            raise RequestRejected(400, str(error)) from None
        now = await self._ask({"do": "switches"})
        before = find(now)
        if grows is not None and before is None and len(now[grows]) >= MOST_SWITCHED:
            what = _WHAT_GROWS[grows]
            raise RequestRejected(
                409,
                f"{len(now[grows])} {what} are in force, the maximum is {MOST_SWITCHED}: remove"
                " some, or let them expire",
            )
        workers = await self._apply(command)
        return Change(before, find(await self._ask({"do": "switches"})), {"workers": workers})

    async def _clear(self, command: Command, find: Callable[[Any], Any]) -> Change:
        if find(await self._ask({"do": "switches"})) is None:
            raise RequestRejected(404, "there is nothing to remove: see /v1/switches")
        return await self._switch(command, find)

    async def _ask(self, command: Command) -> Any:
        return _result(await self._control.ask(command))

    async def _apply(self, command: Command) -> int:
        """Execute in all processes; returns how many there are."""
        answers = await self._control.apply(command)
        failed = [answer for answer in answers if not answer["ok"]]
        if not failed and answers:
            return len(answers)
        if len(failed) == len(answers) and len({answer["status"] for answer in failed}) == 1:
            _result(failed[0])
        error = failed[0]["error"] if failed else "no worker is running"
        raise RequestRejected(
            500,
            f"{len(failed)} of {len(answers)} workers failed: {error}",
            more={"workers": answers},
        )


def _result(answer: Answer) -> Any:
    if answer["ok"]:
        return answer["result"]
    more = {"problems": answer["problems"]} if "problems" in answer else {}
    raise RequestRejected(answer["status"], answer["error"], more=more)


async def _call(source: Callable[..., Any] | None, *arguments: Any) -> Any:
    if source is None:
        raise RequestRejected(501, "this service was started without this feature")
    result = source(*arguments)
    return await result if isawaitable(result) else result


def _finder(which: str, **wanted: str) -> Callable[[Any], Any]:
    """A function that finds the entry with these values in a list of switches."""
    return lambda switches: next(
        (each for each in switches[which] if all(each[name] == v for name, v in wanted.items())),
        None,
    )
