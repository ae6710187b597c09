"""Shared by the tests of frameworks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """Two users of a Django site, in a database that is made once."""
    from integrations.django.site import database  # not before it is needed

    with database(tmp_path_factory.mktemp("users")) as made:
        yield made
