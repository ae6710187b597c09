"""The handlers of the endpoints: queries of one process, changes in all of them.

A handler gets checked parameters and returns JSON, an `HttpResponse`, or a `Change`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partialmethod
from inspect import isawaitable
from typing import Any, Protocol

from penstock import _mode
from penstock._version import __version__
from penstock.admin.commands import Answer, Command, check_switch
from penstock.admin.control import Control
from penstock.admin.dumps import lease_figures, stats_text
from penstock.admin.endpoints import ENDPOINTS
from penstock.admin.errors import RequestRejected
from penstock.admin.leases import merged
from penstock.admin.openapi import document
from penstock.admin.overview import history_of, overview
from penstock.admin.reading import MOST_DESCRIPTORS, pairs_in
from penstock.clock import MONOTONIC, SECOND, Clock
from penstock.errors import PenstockError
from penstock.metrics.history import History
from penstock.metrics.snapshot import Snapshot
from penstock.rules.model import ENFORCE
from penstock.rules.problems import nearest
from penstock.wires.http.messages import HttpResponse, as_json, as_text

Parameters = dict[str, Any]

# The most overrides, entries of each list, and switched rules: a change copies them all.
MOST_SWITCHED = 10_000
MOST_TOP = 1_000
_NAMES = {
    "modes": "switches of rules",
    "overrides": "overrides",
    "allow": "entries of the allow list",
    "deny": "entries of the deny list",
}
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


class Editor(Protocol):
    """Files of rules are texts by name."""

    async def files(self) -> Answer: ...

    async def try_files(self, texts: Mapping[str, str]) -> Answer: ...

    async def put_files(self, texts: Mapping[str, str], expect: int | None, why: str) -> Answer: ...


@dataclass(frozen=True, slots=True)
class Sources:
    """Where handlers get data from. Each may return or be awaited; None if there is none.

    - ``health``: components by name, and whether each is up
    - ``about``: what ``/v1/version`` shows in addition to the version: wire, store, workers
    - ``metrics``: the body of ``/metrics``
    - ``snapshot``: the source of ``/stats``, and of the leases in ``/v1/store``
    - ``top``: the first n, for ``/v1/top``
    - ``changes``, ``undo``: the history of changes
    - ``rules``: where the rules come from, and why newer ones were rejected, for ``/v1/health``
    - ``editor``: the rules as text, trials of changed ones, and putting them in force
    - ``history``: what each rule decided, by second and by minute
    """

    health: Callable[[], Mapping[str, bool] | Awaitable[Mapping[str, bool]]] = dict
    about: Callable[[], Mapping[str, Any] | Awaitable[Mapping[str, Any]]] = dict
    metrics: Callable[[], bytes | Awaitable[bytes]] | None = None
    snapshot: Callable[[], Snapshot | Awaitable[Snapshot]] | None = None
    top: Callable[[int], Any] | None = None
    rules: Callable[[], Mapping[str, Any] | Awaitable[Mapping[str, Any]]] | None = None
    changes: Callable[[int], Awaitable[Answer]] | None = None
    undo: Callable[[int, str], Awaitable[Answer]] | None = None
    history: Callable[[], History] | None = None
    editor: Editor | None = None


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
        content: dict[str, Any] = {"healthy": healthy, "components": components}
        if self._sources.rules is not None:
            content["rules"] = await _call(self._sources.rules)
        return as_json(content, 200 if healthy else 503)

    async def version(self, parameters: Parameters) -> dict[str, Any]:
        return {
            **(await _call(self._sources.about)),
            "version": __version__,
            "core": _mode.describe(),
            "uptime": (self._clock.now() - self._start) / SECOND,
            **(await self._ask({"do": "summary"})),
        }

    async def store(self, parameters: Parameters) -> dict[str, Any]:
        snapshot = await _call(self._sources.snapshot)
        about = await _call(self._sources.about)
        return {"store": about.get("store"), "leases": lease_figures(snapshot)}

    async def overview(self, parameters: Parameters) -> dict[str, Any]:
        history = await _call(self._sources.history)
        snapshot = await _call(self._sources.snapshot)
        rules = await self._ask({"do": "rules"})
        return overview(history, rules, snapshot, parameters.get("after"))

    async def history(self, parameters: Parameters) -> dict[str, Any]:
        history = await _call(self._sources.history)
        return history_of(history, parameters.get("rule"), parameters.get("span", "15m"))

    async def rule_files(self, parameters: Parameters) -> Any:
        return _result(await self._editor().files())

    async def try_rules(self, parameters: Parameters) -> Any:
        return _result(await self._editor().try_files(_texts(parameters["files"])))

    async def put_rule_files(self, parameters: Parameters) -> Change:
        why, expect = parameters.get("why", ""), parameters.get("expect")
        texts = _texts(parameters["files"])
        return Change(**_result(await self._editor().put_files(texts, expect, why)))

    def _editor(self) -> Editor:
        if self._sources.editor is None:
            raise RequestRejected(501, "this service was started without this feature")
        return self._sources.editor

    async def quotas(self, parameters: Parameters) -> dict[str, Any]:
        """Of all workers: each has the streams that reached it."""
        answers = await self._control.apply({"do": "quotas"})
        views = [answer["result"] for answer in answers if answer["ok"]]
        return {
            "degraded": any(view["degraded"] for view in views),
            "total": sum(view["total"] for view in views),
            "buckets": [bucket for view in views for bucket in view["buckets"]],
        }

    async def leases(self, parameters: Parameters) -> dict[str, Any]:
        answers = await self._control.apply({"do": "leases"})
        return merged(answer["result"] for answer in answers if answer["ok"])

    async def balance(self, parameters: Parameters) -> Any:
        return await self._ask({"do": "balance", "account": parameters["account"]})

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

    async def who(self, parameters: Parameters) -> dict[str, Any]:
        return {"rules": await self._ask({"do": "who", **parameters})}

    async def changes(self, parameters: Parameters) -> dict[str, Any]:
        limit = parameters.get("limit", 20)
        if not 1 <= limit <= MOST_TOP:
            raise RequestRejected(400, f"limit must be from 1 to {MOST_TOP}, not {limit}")
        return {"changes": _result(await _call(self._sources.changes, limit))}

    async def switches(self, parameters: Parameters) -> Any:
        return await self._ask({"do": "switches"})

    async def overrides(self, parameters: Parameters) -> dict[str, Any]:
        return {"overrides": (await self._ask({"do": "switches"}))["overrides"]}

    async def _entries(self, which: str, parameters: Parameters) -> dict[str, Any]:
        return {"entries": (await self._ask({"do": "switches"}))[which]}

    allow, deny = partialmethod(_entries, "allow"), partialmethod(_entries, "deny")

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
            hint = nearest(name, await self._ask({"do": "names"}))
            raise RequestRejected(
                404, f"there is no rule or limit {name!r:.200}{hint}: see /v1/rules"
            )
        return await self._switch(
            {"do": "mode", "name": name, **parameters},
            lambda switches: switches["mode"] if name is None else switches["modes"].get(name),
            "modes",
        )

    async def clear_mode(self, parameters: Parameters) -> Change:
        name = parameters.get("name")
        if name is None:
            command = {"do": "mode", "mode": ENFORCE, "name": None, **parameters}
            return await self._switch(command, lambda switches: switches["mode"])
        return await self._clear(
            {"do": "clear_mode", **parameters}, lambda switches: switches["modes"].get(name)
        )

    async def set_override(self, parameters: Parameters) -> Change:
        find = _finder("overrides", key=parameters["key"], value=parameters["value"])
        return await self._switch({"do": "override", **parameters}, find, "overrides")

    async def clear_override(self, parameters: Parameters) -> Change:
        find = _finder("overrides", key=parameters["key"], value=parameters["value"])
        return await self._clear({"do": "clear_override", **parameters}, find)

    async def _set_entry(self, which: str, parameters: Parameters) -> Change:
        find = _finder(which, key=parameters["key"], entry=parameters["entry"])
        return await self._switch({"do": "list", "which": which, **parameters}, find, which)

    async def _clear_entry(self, which: str, parameters: Parameters) -> Change:
        find = _finder(which, key=parameters["key"], entry=parameters["entry"])
        return await self._clear({"do": "clear_list", "which": which, **parameters}, find)

    set_allow, set_deny = partialmethod(_set_entry, "allow"), partialmethod(_set_entry, "deny")
    clear_allow = partialmethod(_clear_entry, "allow")
    clear_deny = partialmethod(_clear_entry, "deny")

    async def undo(self, parameters: Parameters) -> Change:
        answer = await _call(self._sources.undo, parameters["number"], parameters.get("why", ""))
        return Change(**_result(answer))

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
        if command["do"] in ("override", "list"):
            await self._ask({**command, "do": f"check_{command['do']}"})
        now = await self._ask({"do": "switches"})
        before = find(now)
        if grows is not None and before is None and len(now[grows]) >= MOST_SWITCHED:
            raise RequestRejected(
                409, f"{len(now[grows])} {_NAMES[grows]} are in force, the maximum is"
                f" {MOST_SWITCHED}: remove some, or let them expire",
            )  # fmt: skip
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
        message = f"{len(failed)} of {len(answers)} workers failed: {error}"
        raise RequestRejected(500, message, more={"workers": answers})


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


def _texts(files: Mapping[str, Any]) -> Mapping[str, str]:
    for name, text in files.items():
        if not isinstance(text, str):
            raise RequestRejected(400, f"the file {name!r:.100} must be a string")
    return files


def _finder(which: str, **wanted: str) -> Callable[[Any], Any]:
    """A function that finds the entry with these values in a list of switches."""
    return lambda switches: next(
        (each for each in switches[which] if all(each[name] == v for name, v in wanted.items())),
        None,
    )
