"""Stores: where the state of limits lives. A store owns atomicity and time.

`base.py` is what a store is. `MemoryStore` (`memory.py`) keeps rows in one process,
`SharedMemoryStore` (`shared.py`) in a file that processes map, `RedisStore` (``redis/``) on a
server: its connection writes commands to the socket in `redis/connection.py`.

A hit goes from a limiter to the counters of its limit, which apply the algorithm to the key's
row::

    MemoryStore        `_memory.pyx` over the key table, `_table.pyx`; uncompiled `_dict.py`
    SharedMemoryStore  `_mapped.pyx` over a mapped file, `layout.py`; uncompiled `_mapped_pure.py`
    RedisStore         see the docstring of ``redis/``
    LeasedStore        leases from a RedisStore, ``leased/``
    RegionStore        sites that share limits, each with a RedisStore, ``regions/``

`levels.py` says which key is evicted when a store is full. May import the algorithms and the
modules below them, never a limiter.
"""
