"""Small sites with the code of a row, and the status codes that they answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from flask import Blueprint, Flask
from starlette.testclient import TestClient

from migrating.tables import as_statements, run

Names = dict[str, Any]
_METHODS = ["GET", "POST"]
STEPS = [
    *[("GET", "/a", "x")] * 7,
    *[("GET", "/a", "y")] * 3,
    *[("GET", "/a", "staff")] * 2,
    *[("POST", "/a", "x")] * 7,
    *[("POST", "/b", "x")] * 2,
    *[("GET", "/b", "x")] * 7,
]


def views(spans: tuple[str, ...], names: Names, argument: str, answer: str) -> Any:
    """Runs the code of a row. If it ends in a decorator, two views called a and b get it."""
    before = list(spans)
    decorators: list[str] = []
    while before and before[-1].startswith("@"):
        decorators.insert(0, before.pop())
    value = run(as_statements(tuple(before), "def ignored(): ..."), names)
    for name in "ab":
        function = f"def {name}({argument}):\n    return {answer}"
        run("\n".join((*decorators, function)), names)
    return value


def fastapi_statuses(
    spans: tuple[str, ...],
    names: Names,
    argument: str,
    wire: Callable[[FastAPI, Any], None],
) -> list[int]:
    app = FastAPI()
    names = {**names, "app": app}
    value = views(spans, names, argument, "'done'")
    wire(app, value)
    for name in "ab":
        app.add_api_route(f"/{name}", names[name], methods=_METHODS)
    with TestClient(app) as client:
        return [
            client.request(method, path, headers={"x-tenant": tenant}).status_code
            for method, path, tenant in STEPS
        ]


def flask_statuses(
    spans: tuple[str, ...], names: Names, settings: Callable[[Flask, Names], None]
) -> list[int]:
    """The view a is the application's, b is a blueprint's."""
    app, blueprint = Flask("site"), Blueprint("shop", "shop")
    names = {**names, "app": app, "blueprint": blueprint}
    settings(app, names)
    views(spans, names, "", "'done'")
    app.add_url_rule("/a", "a", names["a"], methods=_METHODS)
    blueprint.add_url_rule("/b", "b", names["b"], methods=_METHODS)
    app.register_blueprint(blueprint)
    client = app.test_client()
    return [
        client.open(path, method=method, headers={"x-tenant": tenant}).status_code
        for method, path, tenant in STEPS
    ]
