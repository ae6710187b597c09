"""A real Redis or Valkey server, as the tests of the stores have it."""

from __future__ import annotations

from stores.conftest import cluster, own_server, prefix, redis_url, server_binary

__all__ = ["cluster", "own_server", "prefix", "redis_url", "server_binary"]
