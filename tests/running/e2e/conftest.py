"""The service, gateways and applications as real processes, ended whatever a test does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from running.e2e.gateways import make_certificates
from running.e2e.running import Penstock, new_folder, remove_folders, running_app

pytest.importorskip("httptools")

Start = Callable[..., Penstock]


@pytest.fixture
def penstock_service(tmp_path: Path) -> Iterator[Start]:
    """``penstock_service(rules, "--workers", "2")``: the real command, ready.

    ``rules`` is the text of a file, or a path.
    """
    with ExitStack() as stack:

        def start(rules: str | Path, *options: str, **environment: str) -> Penstock:
            if isinstance(rules, str):
                path = tmp_path / "rules.yaml"
                path.write_text(rules)
                rules = path
            service = Penstock(rules, *options, **environment)
            stack.callback(service.end)
            return service.wait()

        yield start


@pytest.fixture(scope="module")
def app() -> Iterator[int]:
    """An application that tells what it was asked; its port."""
    with running_app() as port:
        yield port


@pytest.fixture(scope="session")
def certificates() -> Path:
    return make_certificates(new_folder())


@pytest.fixture(scope="session", autouse=True)
def _no_folder_is_left() -> Iterator[None]:
    yield
    remove_folders()
