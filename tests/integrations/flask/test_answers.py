"""Flask: refusals, what counts by the response, who is asking, and what is wrong."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import types
from io import BytesIO
from typing import Any

import pytest
from flask import Response, abort, g, jsonify, request
from werkzeug.local import LocalProxy

from integrations.broken import Broken
from integrations.flask.site import new_app, statuses
from penstock import Gate, LimitError
from penstock.integrations import Request, by_header, by_ip, by_user
from penstock.integrations.deciding.refusals import Deferred
from penstock.integrations.flask import Denied, LimitsUnavailable, Penstock, RateLimited, limit

NOW = 1_767_225_600


# Refusals ------------------------------------------------------------------------------------


def test_an_error_handler_can_restyle_a_refusal() -> None:
    app = new_app()
    Penstock(app, "1/minute", name="all")
    app.add_url_rule("/", view_func=lambda: "hello")
    caught: list[RateLimited] = []

    @app.errorhandler(429)
    def slow_down(error: RateLimited) -> tuple[Response, int]:
        caught.append(error)
        return jsonify(message="slow down", wait=dict(error.answer.headers)["Retry-After"]), 429

    client = app.test_client()
    client.get("/")
    answer = client.get("/")
    assert answer.status_code == 429
    assert answer.json == {"message": "slow down", "wait": "60"}
    assert answer.headers["Retry-After"] == "60"
    assert answer.headers.getlist("RateLimit") == ['"all";r=0;t=60']
    assert not caught[0].outcome.allowed


def test_problem_details_by_accept() -> None:
    app = new_app()
    Penstock(app, "1/minute", name="all")
    client = app.test_client()
    for _ in range(2):
        answer = client.get("/", headers={"Accept": "application/problem+json"})
    assert answer.content_type == "application/problem+json"
    assert answer.json is not None
    assert answer.json["violated-policies"] == ["all"]


@pytest.mark.parametrize("restyled", [False, True])
def test_a_deny_list_is_403_and_a_store_that_fails_is_503(restyled: bool) -> None:
    app = new_app()
    if restyled:
        app.register_error_handler(Denied, lambda error: ("no", 403))
        app.register_error_handler(LimitsUnavailable, lambda error: ("later", 503))
    rules = {
        "domain": "web",
        "deny": {"remote_address": ["127.0.0.1"]},
        "descriptors": [{"key": "path", "limits": "9/minute"}],
    }
    app.add_url_rule(
        "/deny", view_func=limit(gate=Gate.from_rules(rules))(lambda: "in"), endpoint="deny"
    )
    closed = limit("1/minute", store=Broken(), on_failure="closed")
    app.add_url_rule("/closed", view_func=closed(lambda: "in"), endpoint="closed")
    opened = limit("1/minute", store=Broken())
    app.add_url_rule("/open", view_func=opened(lambda: "in"), endpoint="open")
    assert statuses(app, "/deny", "/closed", "/open") == [403, 503, 200]
    client = app.test_client()
    assert (client.get("/deny").text == "no") == restyled
    assert (client.get("/closed").text == "later") == restyled
    assert client.get("/closed").headers["Retry-After"] == "1"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_fallback_answers_instead_and_is_marked(asynchronous: bool) -> None:
    app = new_app()

    def cached(word: str) -> tuple[str, int]:
        return f"{word} from a cache", 203

    async def cached_async(word: str) -> tuple[str, int]:
        return cached(word)

    for path, view in (("/a", lambda word: word), ("/b", None)):

        async def view_async(word: str) -> str:
            return word

        chosen = limit("1/minute", fallback=cached_async if asynchronous else cached)
        app.add_url_rule(f"{path}/<word>", path, chosen(view or view_async))
    client = app.test_client()
    for path in ("/a/x", "/b/x"):
        assert client.get(path).text == "x"
        answer = client.get(path)
        assert (answer.status_code, answer.text) == (203, "x from a cache")
        assert answer.headers["X-RateLimit-Fallback"] == "true"
        assert answer.headers["X-RateLimit-Remaining"] == "0"
        assert "Retry-After" not in answer.headers


def test_the_extension_falls_back_too() -> None:
    app = new_app()
    Penstock(app, "1/minute", fallback=lambda: "from a cache")
    app.add_url_rule("/", view_func=lambda: "hello")
    client = app.test_client()
    assert [client.get("/").text for _ in range(2)] == ["hello", "from a cache"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_refused_request_is_deferred(asynchronous: bool) -> None:
    app = new_app()
    kept: list[Deferred] = []

    def put(deferred: Deferred) -> str | None:
        kept.append(deferred)
        return f"/jobs/{len(kept)}" if len(kept) < 2 else None

    async def put_async(deferred: Deferred) -> str | None:
        return put(deferred)

    @app.post("/work")
    @limit("1/minute", defer=put_async if asynchronous else put, defer_body=10)
    def work() -> bytes:
        return request.get_data()

    client = app.test_client()
    assert client.post("/work?a=1", data=b"now").data == b"now"
    answer = client.post("/work?a=1", data=b"later", headers={"X-Mark": "7"})
    assert (answer.status_code, answer.headers["Location"]) == (202, "/jobs/1")
    assert answer.headers["X-RateLimit-Remaining"] == "0"
    deferred = kept[0]
    assert (deferred.method, deferred.path, deferred.query) == ("POST", "/work", "a=1")
    assert (deferred.body, deferred.client) == (b"later", "127.0.0.1")
    assert ("x-mark", "7") in deferred.headers
    assert client.post("/work", data=b"x").status_code == 429, "the queue is full"
    assert client.post("/work", data=b"x" * 11).status_code == 429
    assert len(kept) == 2, "a body that is too long is not even offered"


def test_a_chunked_body_is_deferred_whole() -> None:
    app = new_app()
    kept: list[Deferred] = []

    def put(deferred: Deferred) -> str:
        kept.append(deferred)
        return "/jobs/1"

    app.add_url_rule("/", view_func=limit("1/minute", defer=put, defer_body=10)(lambda: "hello"),
                     methods=["POST"], endpoint="home")  # fmt: skip
    client = app.test_client()
    client.post("/")

    def post(body: bytes) -> int:
        environ = {
            "wsgi.input": BytesIO(body), "wsgi.input_terminated": True,
            "HTTP_TRANSFER_ENCODING": "chunked", "CONTENT_LENGTH": "",
        }  # fmt: skip
        return client.post("/", environ_overrides=environ).status_code

    assert [post(b"0123456789"), post(b"01234567890")] == [202, 429]
    assert [each.body for each in kept] == [b"0123456789"]


def test_shadow_refuses_nobody() -> None:
    app = new_app()
    seen: list[Any] = []
    Penstock(app, "1/minute", shadow=True, hook=seen.append)
    app.add_url_rule("/", view_func=lambda: str(request.environ["penstock.outcome"].shadow))
    client = app.test_client()
    assert [client.get("/").text for _ in range(3)] == ["False", "True", "True"]
    assert len(seen) == 2


# By the response -----------------------------------------------------------------------------


def wrong_password(response: Any) -> bool:
    return response.status == 401


def not_failed(response: Any) -> bool:
    return not response.failed


def test_only_failed_log_ins_count() -> None:
    app = new_app()

    @app.post("/log-in")
    @limit("2/minute", count_when=wrong_password)
    def log_in() -> str:
        if request.form["password"] != "right":
            abort(401)
        return "welcome"

    client = app.test_client()

    def try_(password: str) -> int:
        return client.post("/log-in", data={"password": password}).status_code

    assert [try_("right") for _ in range(5)] == [200] * 5
    assert [try_("wrong") for _ in range(3)] == [401, 401, 429]
    assert try_("right") == 429


@pytest.mark.parametrize("propagate", [False, True])
def test_what_the_server_spoiled_is_given_back(propagate: bool) -> None:
    app = new_app(PROPAGATE_EXCEPTIONS=propagate)
    seen: list[Any] = []

    def count_when(response: Any) -> bool:
        seen.append(response)
        return not_failed(response)

    @app.get("/")
    @limit("2/minute", count_when=count_when)
    def home() -> str:
        if "fail" in request.args:
            raise RuntimeError("broken")
        return "hello"

    client = app.test_client()
    for _ in range(5):
        if propagate:
            with pytest.raises(RuntimeError):
                client.get("/?fail=1")
        else:
            assert client.get("/?fail=1").status_code == 500
    assert seen
    assert all(isinstance(response.error, RuntimeError) for response in seen)
    assert statuses(app, "/", "/", "/") == [200, 200, 429]


@pytest.mark.parametrize("testing", [False, True])
def test_an_error_that_is_handled_is_what_the_handler_makes_of_it(testing: bool) -> None:
    app = new_app(TESTING=testing)
    app.register_error_handler(LookupError, lambda error: ("gone", 404))

    @app.get("/")
    @limit("2/minute", count_when=not_failed)
    def home() -> str:
        raise LookupError

    assert statuses(app, "/", "/", "/") == [404, 404, 429]


def test_the_extension_sees_the_response_and_its_headers() -> None:
    app = new_app()
    Penstock(app, "2/minute", count_when=lambda response: response.headers["x-cache"] == "miss")
    app.add_url_rule("/<cache>", view_func=lambda cache: ("hello", {"X-Cache": cache}))
    assert statuses(app, "/hit", "/hit", "/hit", "/miss", "/miss", "/miss") == [200] * 5 + [429]


# Who is asking -------------------------------------------------------------------------------


class User:
    def __init__(self, id: Any, known: bool = True) -> None:
        self.id, self.is_authenticated = id, known

    def get_id(self) -> str:
        return f"session-{self.id}"


def row() -> Any:
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    try:
        return connection.execute("select 7 as id, 'ada' as name").fetchone()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("ada", "ada"), (7, "7"), (User(7), "7"), (User(7, known=False), None), (None, None),
        ({"id": 7}, "7"), ({"name": "ada"}, None), (row(), "7"),
    ],
)  # fmt: skip
def test_g_user_is_the_user(user: Any, expected: str | None) -> None:
    app = new_app()
    app.before_request(lambda: setattr(g, "user", user))
    seen: list[Any] = []
    Penstock(app, "2/minute", key=lambda request: seen.append(request.user) or by_user(request))
    statuses(app, "/")
    assert seen == [expected]


@pytest.mark.parametrize(("user", "expected"), [(User(7), "session-7"), (User(7, False), None)])
def test_flask_logins_user_is_the_user(
    user: User, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = types.ModuleType("flask_login")  # its two names that matter here
    login.current_user = LocalProxy(lambda: user)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flask_login", login)
    app = new_app()
    app.login_manager = object()  # type: ignore[attr-defined]
    seen: list[Any] = []
    Penstock(app, "2/minute", key=lambda request: seen.append(request.user) or by_user(request))
    statuses(app, "/")
    assert seen == [expected]


def test_keys_find_the_users_headers_cookies_and_flasks_own_request() -> None:
    app = new_app()
    seen: list[Any] = []

    def key(request: Request) -> str:
        seen.append((request.cookies.get("a"), request.native.endpoint, request.header("x-b")))
        return "k"

    Penstock(app, "2/minute", key=key)
    app.add_url_rule("/", "home", lambda: "hello")
    client = app.test_client()
    client.set_cookie("a", "1")
    client.get("/", headers={"X-B": "2"})
    assert seen == [("1", "home", "2")]


def test_a_view_without_a_key_is_counted_by_address() -> None:
    app = new_app()
    app.add_url_rule(
        "/", view_func=limit("1/minute", key=by_header("x-a", otherwise=None))(lambda: "hi"),
        endpoint="home",
    )  # fmt: skip
    assert statuses(app, "/", "/") == [200, 429]
    assert statuses(app, "/", "/", headers={"x-a": "1"}) == [200, 429]


# What is wrong is said at once -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: limit("often"), LimitError, "often"),
        (lambda: limit(), TypeError, "give either limit="),
        (lambda: limit("1/minute", key="ip"), TypeError, "key is a function"),
        (lambda: limit("1/minute", fallback="home"), TypeError, "fallback is a view function"),
        (lambda: limit("1/minute", defer=1), TypeError, "defer is a function"),
        (lambda: limit("1/minute", fallback=print, defer=print), TypeError, "fallback or defer"),
        (lambda: limit("1/minute", often=True), TypeError, "often"),
        (lambda: limit("1/minute")("home"), TypeError, "limit decorates a view function"),
        (lambda: Penstock(new_app(), key=by_ip), TypeError, "give either limit="),
        (lambda: Penstock("shop", "1/minute"), TypeError, "app is a Flask application"),
    ],
)  # fmt: skip
def test_mistakes(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def test_without_flask_there_is_a_hint() -> None:
    code = "import sys; sys.modules['flask'] = None; import penstock.integrations.flask"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (
        "ModuleNotFoundError: Flask is not installed: pip install 'penstock[flask]'" in done.stderr
    )
