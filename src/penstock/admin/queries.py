"""The handlers of queries: they ask one process, or all of them, and change nothing.

A handler gets checked parameters and returns JSON or an `HttpResponse`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partialmethod
from inspect import isawaitable
from typing import Any, Protocol

from penstock import _mode
from penstock._version import __version__
from penstock.admin.commands import Answer, Command
from penstock.admin.control import Control
from penstock.admin.dumps import lease_figures, stats_text
from penstock.admin.endpoints import ENDPOINTS
from penstock.admin.errors import RequestRejected
from penstock.admin.leases import merged
from penstock.admin.openapi import document
from penstock.admin.overview import history_of, overview
from penstock.admin.reading import MOST_DESCRIPTORS, numbers_in, pairs_in
from penstock.clock import MONOTONIC, SECOND, Clock
from penstock.control.switch_entries import key_of
from penstock.metrics import refusals
from penstock.metrics.history import History
from penstock.metrics.snapshot import Snapshot
from penstock.wires.http.messages import HttpResponse, as_json, as_text

Parameters = dict[str, Any]

MOST_TOP = 1_000
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
    - ``notes``: who made a switch, when and why; by its key in the store
    - ``instances``: those that share the control store
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
    notes: Callable[[], Mapping[str, Mapping[str, Any]]] = dict
    instances: Callable[[], Awaitable[Answer]] | None = None
    history: Callable[[], History] | None = None
    editor: Editor | None = None


class Queries:
    """One method for each ``does`` in the table of endpoints that changes nothing."""

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
        return as_text(stats_text(await call(self._sources.snapshot)))

    async def metrics(self, parameters: Parameters) -> HttpResponse:
        return HttpResponse(200, await call(self._sources.metrics), content_type=EXPOSITION)

    async def healthcheck(self, parameters: Parameters) -> HttpResponse:
        down = [name for name, up in (await call(self._sources.health)).items() if not up]
        return as_text("OK") if not down else as_text(f"down: {', '.join(down)}", 500)

    async def health(self, parameters: Parameters) -> HttpResponse:
        health = await call(self._sources.health)
        healthy = all(health.values())
        components = {name: "up" if up else "down" for name, up in health.items()}
        content: dict[str, Any] = {"healthy": healthy, "components": components}
        if self._sources.rules is not None:
            content["rules"] = await call(self._sources.rules)
        return as_json(content, 200 if healthy else 503)

    async def version(self, parameters: Parameters) -> dict[str, Any]:
        return {
            **(await call(self._sources.about)),
            "version": __version__,
            "core": _mode.describe(),
            "uptime": (self._clock.now() - self._start) / SECOND,
            **(await self._ask({"do": "summary"})),
        }

    async def store(self, parameters: Parameters) -> dict[str, Any]:
        snapshot = await call(self._sources.snapshot)
        about = await call(self._sources.about)
        return {"store": about.get("store"), "leases": lease_figures(snapshot)}

    async def overview(self, parameters: Parameters) -> dict[str, Any]:
        history = await call(self._sources.history)
        snapshot = await call(self._sources.snapshot)
        rules = await self._ask({"do": "rules"})
        return overview(history, rules, snapshot, parameters.get("after"))

    async def history(self, parameters: Parameters) -> dict[str, Any]:
        history = await call(self._sources.history)
        return history_of(history, parameters.get("rule"), parameters.get("span", "15m"))

    async def rule_files(self, parameters: Parameters) -> Any:
        return result_of(await self._editor().files())

    async def try_rules(self, parameters: Parameters) -> Any:
        return result_of(await self._editor().try_files(texts_in(parameters["files"])))

    def _editor(self) -> Editor:
        if self._sources.editor is None:
            raise RequestRejected(501, "this service was started without this feature")
        return self._sources.editor

    async def balance(self, parameters: Parameters) -> Any:
        return await self._ask({"do": "balance", "account": parameters["account"]})

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
        """Each worker has refused requests of its own, and all have the same counters."""
        pair = {"key": parameters["key"], "value": parameters["value"]}
        answers = await self._control.apply({"do": "refusals", **pair})
        lately = refusals.merge(
            row for answer in answers if answer["ok"] for row in answer["result"] or ()
        )
        if not lately:
            await self._ask({"do": "check_key", **pair})
        others = pairs_in(parameters["others"]) if "others" in parameters else []
        command = {"do": "who", **pair, "others": others, "refusals": lately}
        return {"rules": await self._ask(command)}

    async def instances(self, parameters: Parameters) -> dict[str, Any]:
        return {"instances": result_of(await call(self._sources.instances))}

    async def changes(self, parameters: Parameters) -> dict[str, Any]:
        limit = parameters.get("limit", 20)
        if not 1 <= limit <= MOST_TOP:
            raise RequestRejected(400, f"limit must be from 1 to {MOST_TOP}, not {limit}")
        return {"changes": result_of(await call(self._sources.changes, limit))}

    async def switches(self, parameters: Parameters) -> Any:
        switches = await self._ask({"do": "switches"})
        notes = self._sources.notes()
        modes = {None: "switch/all"} | {name: _mode_key(name) for name in switches["modes"]}
        switches["notes"] = {
            name or "": notes[key] for name, key in modes.items() if key in notes
        }  # fmt: skip
        for which in ("overrides", "allow", "deny", "logged"):
            switches[which] = self._noted(switches[which], which)
        return switches

    async def overrides(self, parameters: Parameters) -> dict[str, Any]:
        switches = await self._ask({"do": "switches"})
        return {"overrides": self._noted(switches["overrides"], "overrides")}

    async def _entries(self, which: str, parameters: Parameters) -> dict[str, Any]:
        return {"entries": self._noted((await self._ask({"do": "switches"}))[which], which)}

    allow, deny = partialmethod(_entries, "allow"), partialmethod(_entries, "deny")

    def _noted(self, rows: list[dict[str, Any]], which: str) -> list[dict[str, Any]]:
        """With who made each, why and when, if that is known."""
        notes = self._sources.notes()
        do = {"overrides": "override", "logged": "log"}.get(which, "list")
        return [{**row, **notes.get(key_of({"do": do, "which": which, **row}), {})} for row in rows]

    async def log(self, parameters: Parameters) -> dict[str, Any]:
        after = numbers_in(parameters.get("after", ""))
        answers = await self._control.apply({"do": "decisions", "after": after})
        views = [answer["result"] for answer in answers if answer["ok"] and answer["result"]]
        rows = [row for view in views for row in view["rows"]]
        logged = (await self._ask({"do": "switches"}))["logged"]
        return {
            "logged": self._noted(logged, "logged"),
            "left_out": sum(view["left_out"] for view in views),
            "decisions": sorted(rows, key=lambda row: row["number"]),
        }

    async def level(self, parameters: Parameters) -> dict[str, Any]:
        return {"level": await self._ask({"do": "level"})}

    async def top(self, parameters: Parameters) -> Any:
        n = parameters.get("n", 10)
        if not 1 <= n <= MOST_TOP:
            raise RequestRejected(400, f"n must be from 1 to {MOST_TOP}, not {n}")
        return await call(self._sources.top, n)

    async def _ask(self, command: Command) -> Any:
        return result_of(await self._control.ask(command))


def result_of(answer: Answer) -> Any:
    if answer["ok"]:
        return answer["result"]
    more = {"problems": answer["problems"]} if "problems" in answer else {}
    raise RequestRejected(answer["status"], answer["error"], more=more)


async def call(source: Callable[..., Any] | None, *arguments: Any) -> Any:
    if source is None:
        raise RequestRejected(501, "this service was started without this feature")
    result = source(*arguments)
    return await result if isawaitable(result) else result


def _mode_key(name: str) -> str:
    return key_of({"do": "mode", "name": name})


def texts_in(files: Mapping[str, Any]) -> Mapping[str, str]:
    """Files of rules, as a client has sent them."""
    for name, text in files.items():
        if not isinstance(text, str):
            raise RequestRejected(400, f"the file {name!r:.100} must be a string")
    return files
