"""The servers of the tests of stores serve here, too."""

from __future__ import annotations

from stores.conftest import (  # noqa: F401  # fixtures are found by their names
    cluster,
    own_server,
    prefix,
    redis_url,
    server_binary,
)
