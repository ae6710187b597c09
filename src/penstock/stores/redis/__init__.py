"""The store that a fleet shares: Redis or Valkey. Needs the extra ``penstock[redis]``."""

try:
    import hiredis as _hiredis  # noqa: F401  # asked for here, to say what is missing
    import redis as _redis  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"RedisStore needs {error.name}: pip install 'penstock[redis]'", name=error.name
    ) from None

from penstock.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
