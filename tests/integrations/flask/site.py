"""Small Flask applications for tests."""

from __future__ import annotations

from typing import Any

from flask import Flask


def new_app(**config: Any) -> Flask:
    app = Flask("shop")
    app.config.update(config)
    return app


def statuses(app: Flask, *paths: str, **options: Any) -> list[int]:
    client = app.test_client()
    return [client.get(path, **options).status_code for path in paths]
