"""What to do about a server's error: send it in another way, or follow the failure policy."""

from __future__ import annotations

import logging
import re
from enum import Enum

logger = logging.getLogger("penstock.redis")

# Keys that are remembered as warned about.
MOST_WARNED = 1_000


class ServerError(Enum):
    """The kinds of errors, by what to do about them."""

    NO_SCRIPT = "send the script itself"
    MOVED = "send it to another node, from now on"
    ASK = "send it to another node, this once"
    TRY_AGAIN = "a slot is moving: send it again, key by key"
    LOST_MASTER = "this server cannot decide, another may: reconnect"
    UNAVAILABLE = "the server cannot decide now: follow the failure policy"
    FOREIGN = "the key holds another program's value: follow the failure policy, for this key only"
    DAMAGED = "the key's row was invalid and was deleted: send it again"
    WRONG = "unexpected: follow the failure policy, and log it"


_BY_CODE = {
    "NOSCRIPT": ServerError.NO_SCRIPT,
    "MOVED": ServerError.MOVED,
    "ASK": ServerError.ASK,
    "TRYAGAIN": ServerError.TRY_AGAIN,
    "LOADING": ServerError.LOST_MASTER,
    "MASTERDOWN": ServerError.LOST_MASTER,
    "READONLY": ServerError.LOST_MASTER,
    "BUSY": ServerError.UNAVAILABLE,
    "CLUSTERDOWN": ServerError.UNAVAILABLE,
    "MISCONF": ServerError.UNAVAILABLE,
    "NOAUTH": ServerError.UNAVAILABLE,
    "NOPERM": ServerError.UNAVAILABLE,
    "NOREPLICAS": ServerError.UNAVAILABLE,
    "OOM": ServerError.UNAVAILABLE,
    "WRONGPASS": ServerError.UNAVAILABLE,
    "WRONGTYPE": ServerError.FOREIGN,
    "PENSTOCK": ServerError.FOREIGN,
    "DAMAGED": ServerError.DAMAGED,
}
# Older servers wrap the errors of commands in a script: "ERR Error running script (...):
# @user_script: 7: -READONLY You can't write against a read only replica."
_INSIDE = re.compile(rf"\b({'|'.join(_BY_CODE)})\b")


def server_error(error: Exception) -> ServerError:
    """The kind of an error reply."""
    text = str(error)
    code = text.partition(" ")[0]
    kind = _BY_CODE.get(code)
    if kind is None and code == "ERR" and "script" in text:
        inside = _INSIDE.search(text)
        kind = _BY_CODE[inside[1]] if inside else None
    return kind or ServerError.WRONG


def redirection(error: Exception) -> tuple[int, str, int]:
    """Slot, host ('' for the same host) and port of a MOVED or ASK."""
    _, slot, place, *_ = str(error).split(" ")
    host, _, port = place.rpartition(":")
    return int(slot), host.strip("[]"), int(port)


class KeyWarnings:
    """Warns once, not at each decision, of a key whose value in Redis is not valid."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._warned: set[bytes] = set()

    def warn(self, key: bytes, problem: str) -> None:
        if key not in self._warned:
            if len(self._warned) >= MOST_WARNED:
                self._warned.clear()
            self._warned.add(key)
            logger.warning("the value of %r in %s %s", key[:300], self._node, problem)
