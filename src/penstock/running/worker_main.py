"""A worker in a process of its own: ``python -m penstock.running.worker_main FD FD``.

The supervisor starts it with two sockets: one for a channel, and one over which it sends rules.
Settings come over the channel, not as arguments: every user of the machine can read a command
line, and the store's URL may contain a password.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from typing import Any

from penstock.admin.commands import SWITCHES, done, failed
from penstock.errors import PenstockError
from penstock.metrics import Hashed
from penstock.running import collector, logs
from penstock.running.channel import Channel, Message
from penstock.running.event_loop import run
from penstock.running.listeners import Sockets
from penstock.running.rules_in_force import receive_rules
from penstock.running.settings import Settings
from penstock.running.worker import Worker


class WorkerHost:
    """Answers the supervisor on behalf of the worker in this process."""

    def __init__(self, rules_from: socket.socket) -> None:
        self._rules_from = rules_from
        self._worker: Worker | None = None
        self._started = False
        self.ended = asyncio.Event()

    async def answer(self, message: Message) -> Message:
        verb = message["do"]
        if verb == "start":
            with collector.paused():
                return await self._start(message)
        if not self._started or self._worker is None:
            return failed(503, "not started", away=True)
        if verb == "prepare_rules":
            with collector.paused():
                rules, _ = await asyncio.to_thread(receive_rules, self._rules_from)
            return await self._worker.prepare_rules(rules)
        if verb == "drain":
            await self._worker.drain(message["seconds"])
            self.ended.set()
            return done()
        return await self._worker.apply(message)

    async def _start(self, message: Message) -> Message:
        values: dict[str, Any] = message["settings"]
        try:
            settings = Settings(**{k: _as_tuple(v) for k, v in values.items()})
            salt = None if message["salt"] is None else bytes.fromhex(message["salt"])
            hashed = None if salt is None else Hashed(salt)
            logs.setup(settings.log_level, settings.log_format, hashed=hashed)
            fds = message["descriptors"]
            rules, lineage = receive_rules(self._rules_from)
            secret = bytes.fromhex(message["lease_secret"])
            self._worker = Worker(
                settings, message["store"], message["name"], salt, rules, lineage, secret,
                message["quota_file"],
            )  # fmt: skip
            commands = message["switches"]
            for command in [each for each in commands if each["do"] not in SWITCHES]:
                await self._worker.apply(command)
            switches = [each for each in commands if each["do"] in SWITCHES]
            await self._worker.apply({"do": "batch", "commands": switches})
            await self._worker.start(Sockets(_socket(fds["http"]), _socket(fds["grpc"])))
        except PenstockError as error:
            return failed(422, str(error))
        self._started = True
        return done()


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _socket(descriptor: int | None) -> socket.socket | None:
    return None if descriptor is None else socket.socket(fileno=descriptor)


async def main(channel_fd: int, rules_fd: int) -> None:
    host = WorkerHost(socket.socket(fileno=rules_fd))
    channel = Channel(host.answer)
    await channel.open(socket.socket(fileno=channel_fd))
    loop = asyncio.get_running_loop()
    # A Ctrl-C in a terminal reaches all processes; only the supervisor reacts to it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: None)
    gone = asyncio.create_task(channel.closed.wait())
    ended = asyncio.create_task(host.ended.wait())
    await asyncio.wait([gone, ended], return_when=asyncio.FIRST_COMPLETED)
    if not host.ended.is_set():
        os._exit(1)  # the supervisor was killed: nothing else would stop this process
    await asyncio.sleep(0.05)  # so that the answer is sent
    gone.cancel()
    await channel.close()
    logging.shutdown()
    os._exit(0)  # everything is closed: to free large rules one by one would take seconds


if __name__ == "__main__":
    run(main(int(sys.argv[1]), int(sys.argv[2])))
