"""`reset`: forgets all counts of a site, as between tests."""

from __future__ import annotations

from weakref import WeakSet

from penstock.integrations.deciding.http_checkpoint import HttpCheckpoint

# Django makes the middleware, and nobody has a reference to it.
CHECKPOINTS: WeakSet[HttpCheckpoint] = WeakSet()


def reset() -> None:
    """Forget all counts of the middleware, of ``@limit`` and of throttles, in this process.

    A store that you gave is cleared completely.
    """
    for checkpoint in list(CHECKPOINTS):
        checkpoint.reset()
