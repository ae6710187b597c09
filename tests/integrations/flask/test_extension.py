"""Flask: the extension and the decorator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from inspect import iscoroutinefunction
from typing import Any

import pytest
from flask import Blueprint, Response, g, request
from flask.views import MethodView

from integrations.flask.site import new_app, statuses
from penstock import Gate, MemoryStore
from penstock.integrations import Request, by_ip, by_route
from penstock.integrations.flask import Penstock, limit
from penstock.integrations.wsgi import PenstockWSGI
from penstock.testing import FakeClock

NOW = 1_767_225_600


# The extension -------------------------------------------------------------------------------


def test_an_application_has_a_limit() -> None:
    app = new_app()
    clock = FakeClock(start=NOW * 10**9)
    Penstock(app, "2/minute", exempt=["/health"], store=MemoryStore(clock=clock), clock=clock)
    app.add_url_rule("/", view_func=lambda: "hello", endpoint="home")
    app.add_url_rule("/health", view_func=lambda: "fine", endpoint="health")
    client = app.test_client()
    first = client.get("/")
    assert first.status_code == 200
    assert first.headers["RateLimit"] == '"default";r=1;t=30'
    assert first.headers["RateLimit-Policy"] == '"default";q=2;w=60'
    assert first.headers["X-RateLimit-Reset"] == str(NOW + 30)
    client.get("/")
    refused = client.get("/")
    assert refused.status_code == 429
    assert refused.headers["Retry-After"] == "30"
    assert refused.headers["Cache-Control"] == "no-store"
    assert refused.json == {"error": "Rate limit exceeded", "retry_after": 30}
    assert refused.headers.getlist("RateLimit") == ['"default";r=0;t=30']
    healthy = client.get("/health")
    assert healthy.status_code == 200
    assert "RateLimit" not in healthy.headers
    clock.advance(30)
    assert client.get("/").status_code == 200


def test_a_path_that_leads_nowhere_is_counted() -> None:
    app = new_app()
    Penstock(app, "2/minute", key=by_route)
    assert statuses(app, "/a", "/b", "/c") == [404, 404, 429]


def test_a_factory_comes_later() -> None:
    penstock = Penstock(limit="1/minute")
    for _ in range(2):  # one limit for both applications
        app = new_app()
        penstock.init_app(app)
        app.add_url_rule("/", view_func=lambda: "hello")
    assert statuses(app, "/", "/") == [200, 429]


def test_blueprints_have_limits_of_their_own() -> None:
    app, store = new_app(), MemoryStore()
    for name in ("one", "two"):
        blueprint = Blueprint(name, name, url_prefix=f"/{name}")
        blueprint.add_url_rule("/", view_func=lambda: "hello", endpoint="home")
        Penstock(blueprint, "2/minute", store=store)
        app.register_blueprint(blueprint)
    app.add_url_rule("/", view_func=lambda: "hello", endpoint="home")
    assert statuses(app, "/one/", "/one/", "/one/", "/two/", "/two/", "/two/", "/") == [
        200, 200, 429, 200, 200, 429, 200,
    ]  # fmt: skip


def test_the_route_is_the_rule_with_its_prefix() -> None:
    app = new_app()
    seen: list[Any] = []
    blueprint = Blueprint("users", "users", url_prefix="/users")
    blueprint.add_url_rule("/<int:id>", view_func=lambda id: "hello", endpoint="one")
    app.register_blueprint(blueprint)

    def key(request: Request) -> str:
        seen.append(request.route)
        return by_route(request)

    Penstock(app, "2/minute", key=key)
    assert statuses(app, "/users/1", "/users/2", "/users/3", "/else") == [200, 200, 429, 404]
    assert seen == ["/users/<int:id>"] * 3 + [None]


def test_rules_are_asked_about_routes_and_users() -> None:
    app = new_app()
    rules = """
    domain: web
    descriptors:
      - key: route
        value: /users/<id>
        descriptors:
          - {key: user, limits: 1/minute}
    """

    @app.before_request
    def log_in() -> None:
        g.user = request.headers.get("x-user")

    Penstock(app, gate=Gate.from_rules(rules))
    app.add_url_rule("/users/<id>", view_func=lambda id: id)
    app.add_url_rule("/", view_func=lambda: "hello", endpoint="home")
    ada, bob = {"x-user": "ada"}, {"x-user": "bob"}
    assert statuses(app, "/users/1", "/users/2", "/", "/", headers=ada) == [200, 429, 200, 200]
    assert statuses(app, "/users/1", "/users/2", headers=bob) == [200, 429]
    assert statuses(app, "/users/1", "/users/2") == [200, 200]


def test_an_extension_can_be_there_for_its_decorators_alone() -> None:
    app, store = new_app(), MemoryStore()
    penstock = Penstock(app, store=store, trusted=["127.0.0.0/8"], fields="ietf")

    @app.get("/one")
    @penstock.limit("1/minute")
    def one() -> str:
        return "one"

    @app.get("/two")
    @penstock.limit("1/minute")
    def two() -> str:
        return "two"

    @app.get("/free")
    def free() -> str:
        return "free"

    near, far = {"X-Forwarded-For": "203.0.113.7"}, {"X-Forwarded-For": "203.0.113.8"}
    assert statuses(app, "/one", "/one", "/two", "/two", "/free", headers=near) == [
        200, 429, 200, 429, 200,
    ]  # fmt: skip
    assert statuses(app, "/one", headers=far) == [200]
    answer = app.test_client().get("/one")
    assert answer.headers["RateLimit-Policy"] == '"1/minute";q=1;w=60'
    assert "X-RateLimit-Limit" not in answer.headers


def test_a_gate_of_a_view_keeps_its_store_beside_the_sites() -> None:
    app = new_app()
    penstock = Penstock(app, store=MemoryStore())
    rules = {"domain": "web", "descriptors": [{"key": "path", "limits": "1/hour"}]}

    @app.get("/")
    @penstock.limit(gate=Gate.from_rules(rules))
    def home() -> str:
        return "hello"

    assert statuses(app, "/", "/") == [200, 429]


def test_a_view_can_trust_others_than_the_site_does() -> None:
    app = new_app()
    penstock = Penstock(app, trusted=["10.0.0.0/8"])

    @app.get("/")
    @penstock.limit("1/minute", hops=1)
    def home() -> str:
        return "hello"

    for address in ("203.0.113.7", "203.0.113.8"):
        assert statuses(app, "/", "/", headers={"X-Forwarded-For": address}) == [200, 429]


# The decorator -------------------------------------------------------------------------------


def test_a_view_has_a_limit_and_asks_for_no_request() -> None:
    app = new_app()

    @app.get("/search/<word>")
    @limit("2/minute", key=by_ip)
    def search(word: str) -> str:
        """Finds."""
        return word

    @app.get("/")
    def home() -> str:
        return "hello"

    assert (search.__name__, search.__doc__) == ("search", "Finds.")
    assert statuses(app, "/search/a", "/search/b", "/search/c", "/") == [200, 200, 429, 200]
    assert "RateLimit" not in app.test_client().get("/").headers


def test_an_argument_of_a_view_may_have_any_name() -> None:
    app = new_app()

    @app.get("/<scope>/<request>/<applied>")
    @limit("1/minute", fallback=lambda **names: "-".join(names.values()))
    def view(**names: str) -> str:
        return "".join(names.values())

    client = app.test_client()
    assert [client.get("/a/b/c").text for _ in range(2)] == ["abc", "a-b-c"]


def test_views_are_counted_each_for_itself_even_in_one_store() -> None:
    app, store = new_app(), MemoryStore()
    for path in ("/a", "/b"):

        def view() -> str:
            return "hello"

        view.__name__ = path[1:]
        app.add_url_rule(path, view_func=limit("1/minute", store=store)(view))
    assert statuses(app, "/a", "/a", "/b", "/b") == [200, 429, 200, 429]


@pytest.mark.parametrize("store", [MemoryStore(), None], ids=["one store", "no store"])
def test_views_share_a_limit_that_has_a_name(store: MemoryStore | None) -> None:
    app = new_app()
    searches = limit("2/minute", name="searches", store=store)
    app.add_url_rule("/a", view_func=searches(lambda: "a"), endpoint="a")
    app.add_url_rule("/b", view_func=searches(lambda: "b"), endpoint="b")
    assert statuses(app, "/a", "/b", "/a") == [200, 200, 429]
    assert 'RateLimit-Policy: "searches"' in str(app.test_client().get("/a").headers)


def test_several_limits_in_a_list_are_one_question() -> None:
    app = new_app()
    clock = FakeClock()

    @app.get("/")
    @limit(["2/second", "3/hour"], store=MemoryStore(clock=clock))
    def home() -> str:
        return "hello"

    assert statuses(app, "/", "/", "/", "/") == [200, 200, 429, 429]
    clock.advance(1)
    assert statuses(app, "/", "/") == [200, 429]


def test_several_decorators_and_the_extension_tell_in_one_set_of_fields() -> None:
    app = new_app()
    Penstock(app, "10/minute", name="all")

    @app.get("/")
    @limit("5/minute", name="page")
    @limit("1/minute", name="slow")
    def home() -> str:
        return "hello"

    client = app.test_client()
    for status in (200, 429):
        answer = client.get("/")
        assert answer.status_code == status
        assert len(answer.headers.getlist("RateLimit")) == 1
        policies = answer.headers["RateLimit-Policy"]
        assert policies == '"slow";q=1;w=60, "page";q=5;w=60, "all";q=10;w=60'
        assert answer.headers.getlist("X-RateLimit-Limit") == ["1"]


def test_the_wsgi_middleware_outside_tells_for_all() -> None:
    app = new_app()

    @app.get("/")
    @limit("1/minute", name="page")
    def home() -> str:
        return "hello"

    app.wsgi_app = PenstockWSGI(app.wsgi_app, limit="10/minute", name="all")  # type: ignore[method-assign]
    client = app.test_client()
    for status in (200, 429):
        answer = client.get("/")
        assert answer.status_code == status
        assert answer.headers.getlist("RateLimit-Policy") == ['"page";q=1;w=60, "all";q=10;w=60']
    assert answer.headers.getlist("Retry-After") == ["60"]


def test_class_based_views() -> None:
    app, store = new_app(), MemoryStore()

    class Item(MethodView):
        decorators = [limit("2/minute", store=store)]  # noqa: RUF012 - as Flask's own pages write it

        def get(self, id: int) -> str:
            return f"item {id}"

    class Thing(MethodView):
        @limit("1/minute", store=store)
        def get(self) -> str:
            return "thing"

        @limit("1/minute", store=store)
        def post(self) -> str:
            return "made"

    app.add_url_rule("/items/<int:id>", view_func=Item.as_view("item"))
    app.add_url_rule("/other/<int:id>", view_func=Item.as_view("other"))
    app.add_url_rule("/things", view_func=Thing.as_view("thing"))
    assert statuses(app, "/items/1", "/items/2", "/items/3") == [200, 200, 429]
    assert statuses(app, "/things", "/things") == [200, 429]
    client = app.test_client()
    assert [client.post("/things").status_code for _ in range(2)] == [200, 429]


def test_an_async_view_stays_one_and_keys_may_be_awaited() -> None:
    app = new_app()

    async def key(request: Request) -> str:
        await asyncio.sleep(0)
        return by_ip(request)

    @app.get("/async")
    @limit("2/minute", key=key)
    async def asynchronous() -> str:
        await asyncio.sleep(0)
        return "hello"

    @app.get("/sync")
    @limit("2/minute", key=key)
    def synchronous() -> str:
        return "hello"

    assert iscoroutinefunction(asynchronous)
    assert not iscoroutinefunction(synchronous)
    for path in ("/async", "/sync"):
        client = app.test_client()
        answers = [client.get(path) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert [answer.headers["X-RateLimit-Remaining"] for answer in answers] == ["1", "0", "0"]


def test_an_async_key_that_fails_is_an_error_of_the_view() -> None:
    app = new_app()

    async def key(request: Request) -> str:
        raise LookupError("no such tenant")

    app.add_url_rule("/", view_func=limit("2/minute", key=key)(lambda: "hello"), endpoint="home")
    app.register_error_handler(LookupError, lambda error: (str(error), 400))
    assert app.test_client().get("/").text == "no such tenant"


def test_a_stream_streams() -> None:
    app = new_app()
    seen: list[str] = []

    @app.get("/")
    @limit("2/minute")
    def stream() -> Response:
        def pieces() -> Iterator[str]:
            for piece in ("first", "second"):
                seen.append(piece)
                yield piece

        return Response(pieces())

    answer = app.test_client().get("/", buffered=False)
    chunks = iter(answer.response)
    assert next(chunks) == b"first"
    assert seen == ["first"], "the whole body was read ahead"
    assert answer.headers["X-RateLimit-Remaining"] == "1"
    assert list(chunks) == [b"second"]
    answer.close()


def test_head_has_no_body_and_options_is_answered() -> None:
    app = new_app()
    Penstock(app, "2/minute")
    app.add_url_rule("/", view_func=lambda: "hello")
    client = app.test_client()
    preflight = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    for _ in range(3):
        assert client.options("/", headers=preflight).status_code == 200
    assert [client.head("/").status_code for _ in range(3)] == [200, 200, 429]
    refused = client.head("/")
    assert refused.data == b""
    assert refused.headers["Retry-After"] == "30"
