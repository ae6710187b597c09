"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from penstock import _mode

PEERS = (
    *("limits", "throttled-py", "pyrate-limiter", "aiolimiter"),
    *("slowapi", "fastapi-limiter", "Flask-Limiter"),
)


def describe() -> dict[str, str]:
    return {
        "CPU": f"{cpu_model()}, {os.cpu_count()} cores",
        "load before the run": ", ".join(f"{load:.2f}" for load in os.getloadavg()),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "Penstock": f"{version('penstock')}, {_mode.describe()}",
        **{peer: version(peer) for peer in PEERS},
    }


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
