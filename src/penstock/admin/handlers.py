"""The handlers of changes, beside those of queries: made in all processes, or in none.

A handler of a change returns a `Change`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partialmethod
from typing import Any

from penstock.admin.commands import Command, check_switch
from penstock.admin.errors import RequestRejected
from penstock.admin.queries import Parameters, Queries, Sources, call, result_of, texts_in
from penstock.errors import PenstockError
from penstock.rules.deciding.switches import LOG_LASTS
from penstock.rules.model import ENFORCE, SHADOW
from penstock.rules.problems import nearest

__all__ = ["Change", "Handlers", "Parameters", "Sources"]

# The most overrides, entries of each list, and switched rules: a change copies them all.
MOST_SWITCHED = 10_000
# Each decision is compared with all of them.
MOST_LOGGED = 20
_SHADOWED = "is in shadow mode by its file: no switch changes that, set shadow_mode: false there"
_NAMES = {
    "mode": "switches of rules",
    "override": "overrides",
    "list": "entries of the {which} list",
    "log": "pairs whose decisions are logged",
}


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


class Handlers(Queries):
    """One method for each ``does`` in the table of endpoints."""

    async def put_rule_files(self, parameters: Parameters) -> Change:
        why, expect = parameters.get("why", ""), parameters.get("expect")
        texts = texts_in(parameters["files"])
        return Change(**result_of(await self._editor().put_files(texts, expect, why)))

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
        if name is not None:
            modes = await self._modes_of(name)
            if parameters["mode"] == ENFORCE and modes["file"] == SHADOW:
                raise RequestRejected(409, f"{name} {_SHADOWED}")
        change = await self._switch({"do": "mode", "name": name, **parameters})
        return await self._with_mode(change, name)

    async def clear_mode(self, parameters: Parameters) -> Change:
        name = parameters.get("name")
        if name is None:
            command = {"do": "mode", "mode": ENFORCE, "name": None, **parameters}
            return await self._with_mode(await self._switch(command), None)
        command = {"do": "clear_mode", **parameters}
        if (await self._switched(command))["state"] is None:
            if (await self._modes_of(name))["file"] == SHADOW:
                raise RequestRejected(404, f"{name} is not switched: it {_SHADOWED}")
            raise RequestRejected(404, f"{name} is not switched: there is nothing to remove")
        return await self._with_mode(await self._switch(command), name)

    async def _modes_of(self, name: str) -> dict[str, str]:
        modes: dict[str, str] | None = await self._ask({"do": "modes_of", "name": name})
        if modes is None:
            hint = nearest(name, await self._ask({"do": "names"}))
            raise RequestRejected(
                404, f"there is no rule or limit {name!r:.200}{hint}: see /v1/rules"
            )
        return modes

    async def _with_mode(self, change: Change, name: str | None) -> Change:
        """With the mode that is in force now, from its file and all switches."""
        mode = change.after
        if name is not None:
            modes = await self._ask({"do": "modes_of", "name": name})
            mode = ENFORCE if modes is None else modes["force"]
        return Change(change.before, change.after, {**change.more, "in_force": mode})

    async def set_override(self, parameters: Parameters) -> Change:
        return await self._switch({"do": "override", **parameters})

    async def clear_override(self, parameters: Parameters) -> Change:
        return await self._clear({"do": "clear_override", **parameters})

    async def set_log(self, parameters: Parameters) -> Change:
        lasts = parameters.get("lasts") or LOG_LASTS
        return await self._switch({"do": "log", **parameters, "lasts": lasts})

    async def clear_log(self, parameters: Parameters) -> Change:
        return await self._clear({"do": "clear_log", **parameters})

    async def _set_entry(self, which: str, parameters: Parameters) -> Change:
        return await self._switch({"do": "list", "which": which, **parameters})

    async def _clear_entry(self, which: str, parameters: Parameters) -> Change:
        return await self._clear({"do": "clear_list", "which": which, **parameters})

    set_allow, set_deny = partialmethod(_set_entry, "allow"), partialmethod(_set_entry, "deny")
    clear_allow = partialmethod(_clear_entry, "allow")
    clear_deny = partialmethod(_clear_entry, "deny")

    async def undo(self, parameters: Parameters) -> Change:
        answer = await call(self._sources.undo, parameters["number"], parameters.get("why", ""))
        return Change(**result_of(answer))

    async def set_level(self, parameters: Parameters) -> Change:
        before = await self._ask({"do": "level"})
        workers = await self._apply({"do": "log_level", "level": parameters["level"]})
        return Change(before, await self._ask({"do": "level"}), {"workers": workers})

    # Through the control -------------------------------------------------------------------

    async def _switch(self, command: Command) -> Change:
        """Check the command here, then execute it everywhere."""
        try:
            check_switch(command)
        except (PenstockError, ValueError, TypeError) as error:
            raise RequestRejected(400, str(error)) from None
        do = command["do"]
        if do in ("override", "list", "log"):
            await self._ask({**command, "do": f"check_{do}"})
        now = await self._switched(command)
        most = MOST_LOGGED if do == "log" else MOST_SWITCHED
        if do in _NAMES and now["state"] is None and now["count"] >= most:
            raise RequestRejected(
                409, f"{now['count']} {_NAMES[do].format(**command)} are in force, the maximum is"
                f" {most}: remove some, or let them expire",
            )  # fmt: skip
        workers = await self._apply(command)
        after = (await self._switched(command))["state"]
        return Change(now["state"], after, {"workers": workers})

    async def _clear(self, command: Command) -> Change:
        if (await self._switched(command))["state"] is None:
            raise RequestRejected(404, "there is nothing to remove: see /v1/switches")
        return await self._switch(command)

    async def _switched(self, command: Command) -> Any:
        """What is in force of the kind that a command changes."""
        return await self._ask({**command, "do": "switched", "do_what": command["do"]})

    async def _apply(self, command: Command) -> int:
        """Execute in all processes; returns how many there are."""
        answers = await self._control.apply(command)
        failed = [answer for answer in answers if not answer["ok"]]
        if not failed and answers:
            return len(answers)
        if len(failed) == len(answers) and len({answer["status"] for answer in failed}) == 1:
            result_of(failed[0])
        error = failed[0]["error"] if failed else "no worker is running"
        message = f"{len(failed)} of {len(answers)} workers failed: {error}"
        raise RequestRejected(500, message, more={"workers": answers})
