"""Whether limits are in force: ``PENSTOCK_ENABLED``, and `limits_off` for tests.

Middleware, decorators of views, dependencies and interceptors look at `off` for every request.
Limiters do not, as that would make them slower: the environment and ``enabled=`` decide when they
are made. Gates always decide.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ENABLED = "PENSTOCK_ENABLED"

# How many blocks of `limits_off` are running.
off = 0
_changing = threading.Lock()


@contextmanager
def limits_off() -> Iterator[None]:
    """Inside the block, middleware and decorators of this process limit nothing.

    This applies to all threads, because test clients run applications in threads of their own.
    Blocks may be nested.
    """
    global off
    with _changing:
        off += 1
    try:
        yield
    finally:
        with _changing:
            off -= 1


def is_enabled(enabled: bool | None = None) -> bool:
    """The option ``enabled``; if it is None, ``PENSTOCK_ENABLED``, or else True."""
    if enabled is None:
        text = os.environ.get(ENABLED)
        return True if text is None else read_switch(ENABLED, text)
    if type(enabled) is not bool:  # a text would be true, even "false"
        raise TypeError(f"enabled is True or False, not {enabled!r:.100}")
    return enabled


def read_switch(variable: str, text: str) -> bool:
    """The value of an environment variable that is either on or off."""
    word = text.strip().lower()
    if word not in ("0", "1", "false", "true"):
        raise ValueError(f"{variable} is 1, 0, true or false, not {text!r:.100}")
    return word in ("1", "true")
