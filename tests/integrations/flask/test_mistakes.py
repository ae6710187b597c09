"""Mistakes with the decorator and the extension, and what their errors tell to write."""

from __future__ import annotations

import logging

import pytest
from flask import Blueprint
from flask.views import MethodView

from integrations.flask.site import new_app, statuses
from penstock.integrations import Request
from penstock.integrations.flask import Penstock, limit


def test_above_the_route() -> None:
    app = new_app()
    with pytest.raises(TypeError, match=r"home has its route already.* below @app\.route"):

        @limit("1/hour")
        @app.get("/")
        def home() -> str:
            return "ok"


def test_above_the_route_of_a_blueprint() -> None:
    blueprint = Blueprint("shop", __name__)
    with pytest.raises(TypeError, match="home has its route already"):

        @limit("1/hour")
        @blueprint.get("/")
        def home() -> str:
            return "ok"


def plain() -> str:
    return "ok"


def test_a_view_with_two_routes_of_which_one_is_limited() -> None:
    app = new_app()
    app.get("/free")(plain)
    app.get("/limited", endpoint="limited")(limit("1/hour")(plain))
    assert statuses(app, "/free", "/free", "/limited", "/limited") == [200, 200, 200, 429]


def test_without_a_limit() -> None:
    app = new_app()
    with pytest.raises(TypeError, match=r'@limit has no limit: write @limit\("10/second"\)'):

        @app.get("/")
        @limit  # type: ignore[arg-type]
        def home() -> str:
            return "ok"


def test_without_a_limit_on_a_view_that_could_be_a_function_of_the_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = new_app()

    @app.get("/<word>")
    @limit  # type: ignore[arg-type]
    def search(word):  # type: ignore[no-untyped-def]
        return word

    with caplog.at_level(logging.ERROR):
        assert statuses(app, "/penstock") == [500]
    assert '@limit has no limit: write @limit("10/second")' in caplog.text


def test_a_function_of_the_request_is_a_limit() -> None:
    app = new_app()

    def by_plan(request: Request) -> str:
        return "1/hour"

    @app.get("/")
    @limit(by_plan)
    def home() -> str:
        return "ok"

    assert statuses(app, "/", "/") == [200, 429]


def test_on_a_class() -> None:
    with pytest.raises(TypeError, match=r"not the class Home: write decorators = \[limit\("):

        @limit("1/hour")
        class Home(MethodView):
            pass


def test_the_same_application_twice() -> None:
    app = new_app()
    penstock = Penstock(app, "1/hour")
    with pytest.raises(ValueError, match="would count every request twice"):
        penstock.init_app(app)
    penstock.init_app(new_app())


def test_exempt_of_the_extension() -> None:
    app = new_app()
    penstock = Penstock(app, "1/hour")

    @app.get("/")
    @penstock.exempt
    def home() -> str:
        return "ok"

    assert statuses(app, "/", "/") == [200, 200]
