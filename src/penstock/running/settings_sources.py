"""Where settings come from: flags, the environment and a file, all named after their fields.

::

    --max-keys 1000           PENSTOCK_MAX_KEYS=1000           max_keys: 1000

A flag takes precedence over the environment, the environment over the file, and the file over
the default.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from penstock.running.settings import OFF, Settings, SettingsError

PREFIX = "PENSTOCK_"
_SWITCH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def flag_of(each: Field[Any]) -> str:
    return "--" + each.name.replace("_", "-")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Every option as a flag. Flags that are not used are left out of the result."""
    for each in fields(Settings):
        kind, help_text = each.metadata["kind"], _help(each)
        options: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
        if kind != "switch":
            options = {name: each.metadata.get(name) for name in ("choices", "metavar")}
            options["action"] = "append" if kind == "list" else "store"
        parser.add_argument(flag_of(each), default=argparse.SUPPRESS, help=help_text, **options)
    parser.add_argument("--config", metavar="FILE", help="a YAML file with any of these options")


def load(flags: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """From flags, the environment and a file, in this order of precedence."""
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
        options = yaml.safe_load(Path(path).read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: {error}") from None
    if not isinstance(options, dict):
        raise SettingsError(f"{path}: expected a mapping of options, such as 'workers: 2'")
    values = {}
    for name, value in options.items():
        key = str(name).replace("-", "_")
        if key not in known:
            raise SettingsError(f"{path}: unknown option {name!r}; known are {', '.join(known)}")
        values[key] = _read(known[key], value, f"{path}: {name}")
    return values


def _read(each: Field[Any], value: Any, where: str) -> Any:
    """Convert a value to the type of its field; flags and environment variables are strings."""
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
        lines.append(f"| `{flag_of(each)}` | `{PREFIX}{each.name.upper()}` | {_help(each)} |")
    return "\n".join(lines) + "\n"
