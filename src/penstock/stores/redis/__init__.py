"""The store that a fleet shares: Redis or Valkey. Needs the extra ``penstock[redis]``.

It imports the algorithms, `penstock.circuit` and the modules below it (limit, decision, keys,
events, clock), never the limiters. ``await AsyncLimiter.hit(key)`` goes to the socket and back::

    RedisCounters.submit      checks key and cost; creates a TaskCall with one KeyOperation
      Engines.put             finds the engine of the running event loop
        Engine.put            sets the deadline; its timer degrades calls that are late
          Node.put            queues the call (in a cluster: first ClusterRouter.put, by slot)
    ------------------------- the end of this turn of the loop
          Node.flush          takes up to 32 decisions from the queue
          wire.encode         one EVALSHA for all of them
          Connection.send     writes to the socket
    ------------------------- the server runs the script of script.py
          Connection.data_received    parses the reply (hiredis)
          Node._received              passes each call its answer
          wire.decode                 a Decision for each operation
          PendingCall.settle          sets the future
      Engines.answer          awaits the future; if it is cancelled, the hit takes nothing

`Limiter.hit` creates a ThreadCall and drives the same engine by itself: see thread_loop.py. Where
there is no decision, `Node` sends the call again, in another way or to another node
(server_errors.py says when), or the failure policy answers it (fallback.py). The breaker keeps
calls away from a server that is down, while reconnect.py tries to reach it; server.py checks a
new connection. groups.py splits and joins the keys of ``hit_all``.
"""

try:
    import hiredis as _hiredis  # noqa: F401  # imported here to say what is missing
    import redis as _redis  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"RedisStore needs {error.name}: pip install 'penstock[redis]'", name=error.name
    ) from None

from penstock.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
