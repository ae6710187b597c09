"""A fleet: instances of two workers each, one Valkey, and an operator with the command line."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from penstock.cli import main
from running.e2e.running import PATIENCE, Penstock
from stores.redis_server import Server, wait_until


class Fleet:
    def __init__(self, valkey: Server, folder: Path) -> None:
        self.valkey = valkey
        self.folder = folder
        self.rules = folder / "api.yaml"
        self.instances: list[Penstock] = []

    def start(self, count: int = 3) -> None:
        started = [self._new(number) for number in range(count)]
        self.instances += started
        for each in started:
            each.wait()

    def start_one(self, number: int) -> Penstock:
        instance = self._new(number)
        self.instances.insert(number, instance)
        return instance.wait()

    def _new(self, number: int) -> Penstock:
        return Penstock(
            None, "--workers", "2", "--control", self.valkey.url, "--instance", f"i{number}",
            "--control-cache", str(self.folder / f"cache-{number}.db"),
        )  # fmt: skip

    def end(self) -> None:
        while self.instances:
            self.instances.pop().end()

    def penstock(self, *words: str, code: int = 0) -> str:
        """Run a command in this process, as a new one takes long to start; what it prints."""
        os.environ["PENSTOCK_CONTROL"] = self.valkey.url
        out, errors = io.StringIO(), io.StringIO()
        try:
            with redirect_stdout(out), redirect_stderr(errors):
                ended = main(words)
        finally:
            del os.environ["PENSTOCK_CONTROL"]
        printed = out.getvalue() + errors.getvalue()
        assert ended == code, f"{words}: {ended}\n{printed}"
        return printed

    def ask(self, *words: str) -> Any:
        """What a command answers from the store, as JSON."""
        return json.loads(self.penstock(*words, "--control", self.valkey.url, "--json"))

    def admin(self, at: int, *words: str, code: int = 0) -> str:
        return self.penstock("admin", *words, "--admin", self.instances[at].admin, code=code)

    def push(self, text: str, *words: str, code: int = 0) -> str:
        self.rules.write_text(text)
        return self.penstock("rules", "push", str(self.rules), *words, code=code)

    def everywhere(self, met: Callable[[Penstock], bool], what: str) -> float:
        return wait_until(lambda: all(map(met, self.instances)), what, PATIENCE)

    def numbers(self) -> list[Any]:
        return [each.told("/v1/health")["rules"]["number"] for each in self.instances]
