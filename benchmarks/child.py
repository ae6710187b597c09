"""Runs a function in a fresh process, so that nothing measured before is in its way."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from typing import Any

from benchmarks.settings import Unavailable


def environment(pure: bool = False) -> dict[str, str]:
    return {**os.environ, "PENSTOCK_PURE": "1" if pure else "0", "PYTHONWARNINGS": "ignore"}


def ask(target: str, *args: Any, pure: bool = False) -> Any:
    """``ask("benchmarks.memory:measure", 5)`` returns what ``measure(5)`` says there."""
    command = [sys.executable, "-m", "benchmarks.child", target, json.dumps(args)]
    done = subprocess.run(
        command, env=environment(pure), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{target}{args} failed:\n{done.stderr}")
    answer = json.loads(done.stdout.splitlines()[-1])
    if "unavailable" in answer:
        raise Unavailable(answer["unavailable"])
    return answer["value"]


def _main() -> None:
    target, args = sys.argv[1:]
    module, _, function = target.partition(":")
    try:
        answer = {"value": getattr(importlib.import_module(module), function)(*json.loads(args))}
    except (Unavailable, ModuleNotFoundError) as reason:
        answer = {"unavailable": str(reason)}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _main()
