"""The quota service (RLQS) of a worker: which bank it has follows from the store.

::

    Redis          RedisBank    all servers of a domain divide a limit together
    shared:PATH    FileBank     PATH.rlqs, for the workers; it outlives the service
    shared         FileBank     a temporary file that the supervisor creates and removes
    memory         MemoryBank   one worker
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from penstock.async_gate import AsyncGate
from penstock.quota.quota_store import QuotaStore
from penstock.running.settings import OFF, Settings
from penstock.running.stores import inherited_fd
from penstock.service.rlqs.bank import Bank, MemoryBank
from penstock.service.rlqs.service import RlqsService
from penstock.stores.base import Store
from penstock.stores.url import SHARED


@contextlib.contextmanager
def quota_file(where: str) -> Iterator[str]:
    """The file of the bank, for all workers; "" if they need none."""
    scheme, _, path = where.partition(":")
    if scheme == SHARED and path:
        yield f"{path}.rlqs"
    elif inherited_fd(where) is not None:
        with tempfile.TemporaryDirectory(prefix="penstock-", ignore_cleanup_errors=True) as folder:
            yield str(Path(folder) / "quotas.rlqs")
    else:
        yield ""


def quota_service(settings: Settings, gate: AsyncGate, file: str) -> RlqsService | None:
    """None if gRPC is not served."""
    if settings.grpc == OFF:
        return None
    return RlqsService(gate, open_bank(gate.store, file))


def open_bank(store: Store, file: str) -> Bank:
    if file:
        from penstock.service.rlqs.file_bank import FileBank

        return FileBank(file)
    if isinstance(store, QuotaStore):
        store = store.inner
    if not store.waits:
        return MemoryBank()
    from penstock.service.rlqs.redis_bank import RedisBank  # needs the extra for Redis
    from penstock.stores.leased import LeasedStore
    from penstock.stores.redis import RedisStore

    if isinstance(store, LeasedStore):
        store = store.redis
    assert isinstance(store, RedisStore), "the only other store that waits"
    return RedisBank(store)
