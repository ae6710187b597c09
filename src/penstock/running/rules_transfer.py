"""Rules on their way from the supervisor to a worker: pickled, in a file without a name.

They may be too large for the channel, so a descriptor of the file is sent over a socket of
its own (SCM_RIGHTS), both when a worker starts and when rules are reloaded.
"""

from __future__ import annotations

import os
import pickle
import socket
import tempfile

from penstock.rules.deciding.lineage import Lineage
from penstock.rules.model import RuleSet


def send_rules(pickled: bytes, to: socket.socket) -> None:
    """`OSError` if the worker is gone."""
    with tempfile.TemporaryFile() as file:
        file.write(pickled)
        file.flush()
        socket.send_fds(to, [b"r"], [file.fileno()])


def receive_rules(from_: socket.socket) -> tuple[RuleSet, Lineage]:
    """The next ones that the supervisor has sent. Only it has the other end of the socket."""
    _, descriptors, _, _ = socket.recv_fds(from_, 1, 1)
    with os.fdopen(descriptors[0], "rb") as file:
        file.seek(0)
        rules, lineage = pickle.load(file)
    return rules, lineage
