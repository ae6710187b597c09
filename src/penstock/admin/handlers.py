"""What each endpoint does: questions to one process, changes in all of them.

A handler gets what was asked, checked, and gives JSON, a whole answer, or a `Change`.
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
from penstock.admin.errors import Refused
from penstock.admin.openapi import document
from penstock.admin.reading import MOST_DESCRIPTORS, pairs_in
from penstock.admin.stats import stats_text
from penstock.clock import MONOTONIC, SECOND, Clock
from penstock.errors import PenstockError
from penstock.metrics.snapshot import Snapshot
from penstock.rules.model import ENFORCE
from penstock.wires.http.messages import HttpAnswer, as_json, as_text

Asked = dict[str, Any]

# Overrides, entries of each list, and rules that are switched: a change copies them all.
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
    """What others know. Each may answer at once or be awaited; None where there is nothing.

    - ``health``: components by name, and whether each is up
    - ``about``: what ``/v1/version`` tells beside the version: wire, store, workers
    - ``metrics``: what ``/metrics`` shows
    - ``snapshot``: what ``/stats`` is made from
    - ``top``: for ``/v1/top``, the first so many
    """

    health: Callable[[], Mapping[str, bool] | Awaitable[Mapping[str, bool]]] = dict
    about: Callable[[], Mapping[str, Any] | Awaitable[Mapping[str, Any]]] = dict
    metrics: Callable[[], bytes | Awaitable[bytes]] | None = None
    snapshot: Callable[[], Snapshot | Awaitable[Snapshot]] | None = None
    top: Callable[[int], Any] | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What was, what is, and what else the answer tells."""

    before: Any
    after: Any
    more: dict[str, Any] = field(default_factory=dict)

    def answer(self) -> dict[str, Any]:
        return {"before": self.before, "after": self.after, **self.more}


@dataclass(frozen=True, slots=True)
class Reloaded(Change):
    def answer(self) -> dict[str, Any]:
        return {**self.after, **self.more}


class Handlers:
    """By the names in the table of endpoints."""

    def __init__(self, control: Control, sources: Sources, clock: Clock = MONOTONIC) -> None:
        self._control = control
        self._sources = sources
        self._clock = clock
        self._start = clock.now()

    # Looking -------------------------------------------------------------------------------

    async def index(self, asked: Asked) -> HttpAnswer:
        lines = [f"{each.method:6} {each.path:20} {each.summary}" for each in ENDPOINTS]
        return as_text("\n".join(lines) + "\n")

    async def openapi(self, asked: Asked) -> dict[str, Any]:
        return document()

    async def rlconfig(self, asked: Asked) -> HttpAnswer:
        found = await self._ask({"do": "rules"})
        lines = [rule["line"] for domain in found["domains"] for rule in domain["rules"]]
        return as_text("".join(f"{line}\n" for line in lines))

    async def stats(self, asked: Asked) -> HttpAnswer:
        return as_text(stats_text(await _told(self._sources.snapshot)))

    async def metrics(self, asked: Asked) -> HttpAnswer:
        return HttpAnswer(200, await _told(self._sources.metrics), content_type=EXPOSITION)

    async def healthcheck(self, asked: Asked) -> HttpAnswer:
        down = [name for name, up in (await _told(self._sources.health)).items() if not up]
        return as_text("OK") if not down else as_text(f"down: {', '.join(down)}", 500)

    async def health(self, asked: Asked) -> HttpAnswer:
        found = await _told(self._sources.health)
        healthy = all(found.values())
        components = {name: "up" if up else "down" for name, up in found.items()}
        content = {"healthy": healthy, "components": components}
        return as_json(content, 200 if healthy else 503)

    async def version(self, asked: Asked) -> dict[str, Any]:
        summary = await self._ask({"do": "summary"})
        return {
            **(await _told(self._sources.about)),
            "version": __version__,
            "core": _mode.describe(),
            "uptime": (self._clock.now() - self._start) / SECOND,
            **summary,
        }

    async def rules(self, asked: Asked) -> Any:
        return await self._ask({"do": "rules"})

    async def counters(self, asked: Asked) -> dict[str, Any]:
        if len(asked["descriptor"]) > MOST_DESCRIPTORS:
            raise Refused(400, f"at most {MOST_DESCRIPTORS} descriptors at once")
        command = {
            "do": "counters",
            "domain": asked.get("domain"),
            "limit": asked.get("limit"),
            "descriptors": [pairs_in(text) for text in asked["descriptor"]],
        }
        return {"counters": await self._ask(command)}

    async def switches(self, asked: Asked) -> Any:
        return await self._ask({"do": "switches"})

    async def overrides(self, asked: Asked) -> dict[str, Any]:
        return {"overrides": (await self._ask({"do": "switches"}))["overrides"]}

    async def allow(self, asked: Asked) -> dict[str, Any]:
        return {"entries": (await self._ask({"do": "switches"}))["allow"]}

    async def deny(self, asked: Asked) -> dict[str, Any]:
        return {"entries": (await self._ask({"do": "switches"}))["deny"]}

    async def level(self, asked: Asked) -> dict[str, Any]:
        return {"level": await self._ask({"do": "level"})}

    async def top(self, asked: Asked) -> Any:
        n = asked.get("n", 10)
        if not 1 <= n <= MOST_TOP:
            raise Refused(400, f"n is from 1 to {MOST_TOP}, not {n}")
        return await _told(self._sources.top, n)

    # Changing ------------------------------------------------------------------------------

    async def reload(self, asked: Asked) -> Change:
        before = await self._ask({"do": "summary"})
        workers = await self._apply({"do": "reload"})
        return Reloaded(before, await self._ask({"do": "summary"}), {"workers": workers})

    async def reset(self, asked: Asked) -> Change:
        return Change(**await self._ask({"do": "reset", **asked}))

    async def refund(self, asked: Asked) -> Change:
        return Change(**await self._ask({"do": "refund", **asked}))

    async def set_mode(self, asked: Asked) -> Change:
        name = asked.get("name")
        if name is not None and not await self._ask({"do": "knows", "name": name}):
            raise Refused(404, f"no rule or limit is called {name!r:.200}: see /v1/rules")
        return await self._switch(
            {"do": "mode", "mode": asked["mode"], "name": name},
            lambda found: found["mode"] if name is None else found["modes"].get(name),
            "modes",
        )

    async def clear_mode(self, asked: Asked) -> Change:
        name = asked.get("name")
        if name is None:
            command = {"do": "mode", "mode": ENFORCE, "name": None}
            return await self._switch(command, lambda found: found["mode"])
        return await self._clear(
            {"do": "clear_mode", "name": name}, lambda found: found["modes"].get(name)
        )

    async def set_override(self, asked: Asked) -> Change:
        find = _finder("overrides", key=asked["key"], value=asked["value"])
        return await self._switch({"do": "override", **asked}, find, "overrides")

    async def clear_override(self, asked: Asked) -> Change:
        return await self._clear({"do": "clear_override", **asked}, _finder("overrides", **asked))

    async def set_allow(self, asked: Asked) -> Change:
        return await self._set_entry("allow", asked)

    async def set_deny(self, asked: Asked) -> Change:
        return await self._set_entry("deny", asked)

    async def clear_allow(self, asked: Asked) -> Change:
        command = {"do": "clear_list", "which": "allow", **asked}
        return await self._clear(command, _finder("allow", **asked))

    async def clear_deny(self, asked: Asked) -> Change:
        command = {"do": "clear_list", "which": "deny", **asked}
        return await self._clear(command, _finder("deny", **asked))

    async def _set_entry(self, which: str, asked: Asked) -> Change:
        find = _finder(which, key=asked["key"], entry=asked["entry"])
        return await self._switch({"do": "list", "which": which, **asked}, find, which)

    async def set_level(self, asked: Asked) -> Change:
        before = await self._ask({"do": "level"})
        workers = await self._apply({"do": "log_level", "level": asked["level"]})
        return Change(before, await self._ask({"do": "level"}), {"workers": workers})

    # Through the control -------------------------------------------------------------------

    async def _switch(
        self, command: Command, find: Callable[[Any], Any], grows: str | None = None
    ) -> Change:
        """Checked here, then done everywhere; ``grows`` is what may get one more by it."""
        try:
            check_switch(command)
        except (PenstockError, ValueError, TypeError) as error:
            raise Refused(400, str(error)) from None
        now = await self._ask({"do": "switches"})
        before = find(now)
        if grows is not None and before is None and len(now[grows]) >= MOST_SWITCHED:
            what = _WHAT_GROWS[grows]
            raise Refused(
                409,
                f"{len(now[grows])} {what} are in force, and {MOST_SWITCHED} is the most: take"
                " some back, or let them run out",
            )
        workers = await self._apply(command)
        return Change(before, find(await self._ask({"do": "switches"})), {"workers": workers})

    async def _clear(self, command: Command, find: Callable[[Any], Any]) -> Change:
        if find(await self._ask({"do": "switches"})) is None:
            raise Refused(404, "there is nothing to take back: see /v1/switches")
        return await self._switch(command, find)

    async def _ask(self, command: Command) -> Any:
        return _result(await self._control.ask(command))

    async def _apply(self, command: Command) -> int:
        """In all processes; how many they are."""
        answers = await self._control.apply(command)
        failed = [answer for answer in answers if not answer["ok"]]
        if not failed and answers:
            return len(answers)
        if len(failed) == len(answers) and len({answer["status"] for answer in failed}) == 1:
            _result(failed[0])
        error = failed[0]["error"] if failed else "there is no worker"
        raise Refused(
            500,
            f"{len(failed)} of {len(answers)} workers did not take it: {error}",
            more={"workers": answers},
        )


def _result(answer: Answer) -> Any:
    if answer["ok"]:
        return answer["result"]
    more = {"problems": answer["problems"]} if "problems" in answer else {}
    raise Refused(answer["status"], answer["error"], more=more)


async def _told(source: Callable[..., Any] | None, *given: Any) -> Any:
    if source is None:
        raise Refused(501, "this service was started without it")
    found = source(*given)
    return await found if isawaitable(found) else found


def _finder(which: str, **wanted: str) -> Callable[[Any], Any]:
    """Finds the entry of a list of switches that has these values."""
    return lambda found: next(
        (each for each in found[which] if all(each[name] == v for name, v in wanted.items())), None
    )
