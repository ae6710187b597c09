"""What a server's error means: try otherwise, or follow the failure policy."""

from __future__ import annotations

import re
from enum import Enum


class Trouble(Enum):
    """What is to be done about an error."""

    NO_SCRIPT = "send the script itself"
    MOVED = "ask another node, from now on"
    ASK = "ask another node, this once"
    TRY_AGAIN = "a slot on the move: ask again, key by key"
    LOST_MASTER = "this server cannot decide, another may: connect anew"
    UNAVAILABLE = "the server cannot do it now: follow the failure policy"
    FOREIGN = "the key holds something that is not ours: follow the failure policy, for it alone"
    DAMAGED = "the key's row made no sense and was forgotten: ask again"
    WRONG = "nobody foresaw it: follow the failure policy, and tell"


_BY_WORD = {
    "NOSCRIPT": Trouble.NO_SCRIPT,
    "MOVED": Trouble.MOVED,
    "ASK": Trouble.ASK,
    "TRYAGAIN": Trouble.TRY_AGAIN,
    "LOADING": Trouble.LOST_MASTER,
    "MASTERDOWN": Trouble.LOST_MASTER,
    "READONLY": Trouble.LOST_MASTER,
    "BUSY": Trouble.UNAVAILABLE,
    "CLUSTERDOWN": Trouble.UNAVAILABLE,
    "MISCONF": Trouble.UNAVAILABLE,
    "NOAUTH": Trouble.UNAVAILABLE,
    "NOPERM": Trouble.UNAVAILABLE,
    "NOREPLICAS": Trouble.UNAVAILABLE,
    "OOM": Trouble.UNAVAILABLE,
    "WRONGPASS": Trouble.UNAVAILABLE,
    "WRONGTYPE": Trouble.FOREIGN,
    "PENSTOCK": Trouble.FOREIGN,
    "DAMAGED": Trouble.DAMAGED,
}
# Older servers wrap what a command in a script answered: "ERR Error running script (...):
# @user_script: 7: -READONLY You can't write against a read only replica."
_INSIDE = re.compile(rf"\b({'|'.join(_BY_WORD)})\b")


def trouble(error: Exception) -> Trouble:
    """What to do about an error that the server answered."""
    text = str(error)
    word = text.partition(" ")[0]
    found = _BY_WORD.get(word)
    if found is None and word == "ERR" and "script" in text:
        inside = _INSIDE.search(text)
        found = _BY_WORD[inside[1]] if inside else None
    return found or Trouble.WRONG


def redirection(error: Exception) -> tuple[int, str, int]:
    """Slot, host ('' if it is the same one) and port of a MOVED or ASK."""
    _, slot, place, *_ = str(error).split(" ")
    host, _, port = place.rpartition(":")
    return int(slot), host.strip("[]"), int(port)
