"""PenstockWSGI by itself: call by call, and checked by wsgiref's own validator."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from wsgiref.util import FileWrapper, setup_testing_defaults
from wsgiref.validate import validator

import pytest

from integrations.broken import Broken
from penstock import AsyncGate, Gate, Limiter, MemoryStore, StoreError
from penstock.events import Refused
from penstock.integrations import Request, Response, by_header, by_route, by_user
from penstock.integrations.deciding.refusals import Deferred
from penstock.integrations.wsgi import PenstockWSGI
from penstock.testing import FakeClock

NOW = 1_767_225_600


class Answer:
    """What a server would have sent."""

    def __init__(self) -> None:
        self.started: list[tuple[str, list[tuple[str, str]], Any]] = []
        self.written: list[bytes] = []
        self.body: Any = None

    def start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        self.started.append((status, headers, exc_info))
        return self.written.append

    @property
    def status(self) -> int:
        return int(self.started[-1][0][:3])

    def all(self, name: str) -> list[str]:
        return [v for n, v in self.started[-1][1] if n.lower() == name.lower()]

    def __getitem__(self, name: str) -> str | None:
        found = self.all(name)
        assert len(found) < 2, found
        return found[0] if found else None

    def read(self) -> bytes:
        try:
            return b"".join(self.written) + b"".join(self.body)
        finally:
            if hasattr(self.body, "close"):
                self.body.close()


def environ(path: str = "/", method: str = "GET", **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"PATH_INFO": path, "SCRIPT_NAME": "", "QUERY_STRING": ""}
    made |= {"REQUEST_METHOD": method, "REMOTE_ADDR": "203.0.113.7", **more}
    setup_testing_defaults(made)
    return made


def call(app: Any, path: str = "/", method: str = "GET", **more: Any) -> Answer:
    answer = Answer()
    answer.body = app(environ(path, method, **more), answer.start)
    return answer


def statuses(app: Any, *paths: str, **more: Any) -> list[int]:
    answers = [call(app, path, **more) for path in paths]
    for answer in answers:
        answer.read()
    return [answer.status for answer in answers]


def hello(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain"), ("A", "b")])
    return [b"hello"]


def saying(status: str) -> Callable[..., list[bytes]]:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response(status, [])
        return [b""]

    return app


# What passes through -------------------------------------------------------------------------


def test_headers_are_added_and_the_rest_is_left_alone() -> None:
    clock = FakeClock(start=NOW * 10**9)
    app = PenstockWSGI(hello, limit="2/minute", store=MemoryStore(clock=clock), clock=clock)
    answer = call(app)
    assert answer.started[0][0] == "200 OK"
    assert answer.started[0][1][:2] == [("Content-Type", "text/plain"), ("A", "b")]
    assert answer["RateLimit-Policy"] == '"default";q=2;w=60'
    assert answer["RateLimit"] == '"default";r=1;t=30'
    assert answer["X-RateLimit-Limit"] == "2"
    assert answer["X-RateLimit-Remaining"] == "1"
    assert answer["X-RateLimit-Reset"] == str(NOW + 30)
    assert answer.read() == b"hello"
    call(app)
    refused = call(app)
    assert refused.started[0][0] == "429 Too Many Requests"
    assert refused["Retry-After"] == "30"
    assert refused["Content-Length"] == str(len(refused.read()))
    assert json.loads(refused.read()) == {"error": "Rate limit exceeded", "retry_after": 30}
    assert not hasattr(refused.body, "close")


def test_what_the_application_returns_is_handed_on_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"contents")
    made: list[Any] = []

    def app(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [])
        made.append(environ["wsgi.file_wrapper"]((tmp_path / "file").open("rb")))
        return made[0]

    limited = PenstockWSGI(app, limit="2/minute", count_when=lambda response: True)
    answer = call(limited, **{"wsgi.file_wrapper": FileWrapper})
    assert answer.body is made[0], "a server would not know the file any more"
    assert answer.read() == b"contents"


def test_a_stream_streams_and_is_closed() -> None:
    seen: list[str] = []

    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        try:
            for piece in (b"first", b"second"):
                seen.append(piece.decode())
                yield piece
        finally:
            seen.append("closed")

    answer = call(PenstockWSGI(app, limit="2/minute"))
    chunks = iter(answer.body)
    assert next(chunks) == b"first"
    assert seen == ["first"]
    assert answer["X-RateLimit-Remaining"] == "1"
    answer.body.close()
    assert seen == ["first", "closed"]


def test_the_write_callable_still_writes() -> None:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        write = start_response("200 OK", [])
        write(b"written ")
        return [b"and returned"]

    assert call(PenstockWSGI(app, limit="2/minute")).read() == b"written and returned"


def test_head_is_refused_without_a_body() -> None:
    app = PenstockWSGI(hello, limit="1/minute")
    call(app, method="HEAD")
    refused = call(app, method="HEAD")
    assert refused.status == 429
    assert int(refused["Content-Length"] or 0) > 20, "as a GET would have it"
    assert refused.read() == b""


@pytest.mark.parametrize("count_when", [None, lambda response: True])
def test_it_keeps_to_the_rules_of_pep_3333(count_when: Any) -> None:
    def late(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        yield b"hello"

    limited = validator(PenstockWSGI(validator(late), limit="1/minute", count_when=count_when))
    assert statuses(limited, "/", "/") == [200, 429]


# Restarts and failures -----------------------------------------------------------------------


def restarting(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("A", "1")])
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        start_response("500 Oh No", [("B", "2")], sys.exc_info())
    return [b"sorry"]


def test_a_response_that_starts_anew_tells_once() -> None:
    answer = call(PenstockWSGI(restarting, limit="2/minute"))
    assert [status for status, _, _ in answer.started] == ["200 OK", "500 Oh No"]
    assert isinstance(answer.started[1][2][1], RuntimeError)
    assert answer["B"] == "2"
    assert answer["A"] is None
    assert answer["X-RateLimit-Remaining"] == "1"


def failing(environ: Any, start_response: Any) -> list[bytes]:
    raise RuntimeError("broken")


def failing_late(environ: Any, start_response: Any) -> Iterator[bytes]:
    if environ["PATH_INFO"] == "/fail":
        raise RuntimeError("broken")
    start_response("200 OK", [])
    yield b"hello"


def failing_midway(environ: Any, start_response: Any) -> Iterator[bytes]:
    start_response("200 OK", [])
    yield b"hello"
    raise RuntimeError("broken")


SPOILED = saying("503 Later")


def not_failed(response: Response) -> bool:
    return not response.failed


@pytest.mark.parametrize(
    ("app", "raises", "given_back"),
    [
        (failing, True, True),
        (failing_late, True, True),
        (restarting, False, True),
        (SPOILED, False, True),
        (saying("404 Not Found"), False, False),
        # The status was sent: it is what counts.
        (failing_midway, True, False),
    ],
    ids=["fails", "fails late", "starts anew", "says so", "is not to blame", "fails midway"],
)
def test_what_the_server_spoiled_is_given_back(app: Any, raises: bool, given_back: bool) -> None:
    seen: list[Any] = []

    def count_when(response: Response) -> bool:
        seen.append(response)
        return not_failed(response)

    store = MemoryStore()
    limited = PenstockWSGI(
        app, limit="2/minute", store=store, key=lambda request: "k", count_when=count_when
    )
    for _ in range(2):
        if raises:
            with pytest.raises(RuntimeError):
                call(limited, "/fail").read()
        else:
            call(limited, "/fail").read()
    assert Limiter("2/minute", store=store).peek("k").remaining == (2 if given_back else 0)
    if given_back and app is not SPOILED:
        assert isinstance(seen[-1].error, RuntimeError)


def failing_twice(environ: Any, start_response: Any) -> list[bytes]:
    if environ["PATH_INFO"] == "/fail":
        start_response("503 Later", [])
        start_response("500 Oh No", [], (RuntimeError, RuntimeError(), None))
    else:
        start_response("200 OK", [])
    return []


@pytest.mark.parametrize("outer", [False, True])
def test_what_was_given_back_is_not_given_back_again(outer: bool) -> None:
    store = MemoryStore()
    app = PenstockWSGI(
        failing_twice, limit="3/minute", store=store, key=lambda request: "k", count_when=not_failed
    )
    if outer:
        app = PenstockWSGI(app, limit="9/minute")
    assert statuses(app, "/", "/fail") == [200, 500]
    assert Limiter("3/minute", store=store).peek("k").remaining == 2


def test_a_late_application_is_closed() -> None:
    closed: list[bool] = []

    class Late:
        def __init__(self, environ: Any, start_response: Any) -> None:
            self.start_response = start_response

        def __iter__(self) -> Iterator[bytes]:
            self.start_response("200 OK", [])
            yield b"hello"

        def close(self) -> None:
            closed.append(True)

    answer = call(PenstockWSGI(Late, limit="2/minute", count_when=not_failed))
    assert answer.read() == b"hello"
    assert closed == [True]


def test_only_failed_log_ins_count() -> None:
    def log_in(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK" if environ["PATH_INFO"] == "/right" else "401 No", [("X", "1")])
        return []

    limited = PenstockWSGI(
        log_in, limit="2/minute",
        count_when=lambda response: response.status == 401 and response.headers["x"] == "1",
    )  # fmt: skip
    assert statuses(limited, "/right", "/right", "/right") == [200] * 3
    assert statuses(limited, "/wrong", "/wrong", "/right") == [401, 401, 429]


# Options -------------------------------------------------------------------------------------


def test_exempt_paths_and_preflights_are_not_counted() -> None:
    app = PenstockWSGI(hello, limit="1/minute", exempt=["/health", "/static/*"])
    free = call(app, "/health")
    assert free["RateLimit"] is None
    assert statuses(app, "/health", "/static/a", "/static/b") == [200] * 3
    asked = {"HTTP_ORIGIN": "https://a.example", "HTTP_ACCESS_CONTROL_REQUEST_METHOD": "PUT"}
    assert statuses(app, "/", "/", method="OPTIONS", **asked) == [200, 200]
    assert statuses(app, "/", "/", method="OPTIONS") == [200, 429]
    counting = PenstockWSGI(hello, limit="1/minute", count_preflight=True)
    assert statuses(counting, "/", "/", method="OPTIONS", **asked) == [200, 429]


def test_an_exempt_path_under_a_mount_is_the_whole_path() -> None:
    app = PenstockWSGI(hello, limit="1/minute", exempt=["/shop/health"])
    assert statuses(app, "/health", "/health", SCRIPT_NAME="/shop") == [200, 200]
    assert statuses(app, "/health", "/health") == [200, 429]


def test_shadow_refuses_nobody_and_tells_the_hook() -> None:
    seen: list[Refused] = []

    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [str(environ["penstock.outcome"].shadow).encode()]

    limited = PenstockWSGI(app, limit="1/minute", shadow=True, hook=seen.append)
    assert [call(limited).read() for _ in range(2)] == [b"False", b"True"]
    assert [(event.key, event.shadow) for event in seen] == [("ip:203.0.113.7/32", True)]


def test_a_fallback_answers_instead_and_is_marked() -> None:
    def cached(environ: Any, start_response: Any) -> list[bytes]:
        start_response("203 Cached", [("A", "b")])
        return [b"from a cache"]

    app = PenstockWSGI(hello, limit="1/minute", fallback=cached)
    assert call(app)["X-RateLimit-Fallback"] is None
    answer = call(app)
    assert (answer.status, answer.read()) == (203, b"from a cache")
    assert answer["X-RateLimit-Fallback"] == "true"
    assert answer["X-RateLimit-Remaining"] == "0"
    assert answer["A"] == "b"


def test_a_fallback_may_have_a_limit_of_its_own() -> None:
    inner = PenstockWSGI(hello, limit="1/minute", name="cache")
    app = PenstockWSGI(hello, limit="1/hour", name="all", fallback=inner)
    call(app)
    for status in (200, 429):
        answer = call(app)
        assert answer.status == status
        assert answer["RateLimit-Policy"] is not None
        assert '"all"' in answer["RateLimit-Policy"]
        assert '"cache"' in answer["RateLimit-Policy"]


@pytest.mark.parametrize(
    ("body", "more", "kept"),
    [
        (b"later", {"CONTENT_LENGTH": "5"}, b"later"),
        (b"later and more", {"CONTENT_LENGTH": "5"}, b"later"),
        (b"", {"CONTENT_LENGTH": ""}, b""),
        (b"0123456789", {"CONTENT_LENGTH": "10"}, b"0123456789"),
        (b"01234567890", {"CONTENT_LENGTH": "11"}, None),
        (b"lat", {"CONTENT_LENGTH": "5"}, None),
        (b"later", {"CONTENT_LENGTH": "-5"}, None),
        (b"later", {"CONTENT_LENGTH": "five"}, None),
        (b"later", {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}, b"later"),
        (b"01234567890", {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True},
         None),
        (b"later", {"HTTP_TRANSFER_ENCODING": "chunked"}, None),
    ],
)  # fmt: skip
def test_a_refused_request_is_deferred_whole_or_not_at_all(
    body: bytes, more: dict[str, Any], kept: bytes | None
) -> None:
    queue: list[Deferred] = []

    def put(deferred: Deferred) -> str:
        queue.append(deferred)
        return "/jobs/1"

    app = PenstockWSGI(hello, limit="1/minute", defer=put, defer_body=10)
    call(app)
    answer = call(
        app, "/work", "POST", QUERY_STRING="a=1", HTTP_X_MARK="7",
        **{"wsgi.input": BytesIO(body), **more},
    )  # fmt: skip
    if kept is None:
        assert (answer.status, queue) == (429, [])
        return
    assert (answer.status, answer["Location"]) == (202, "/jobs/1")
    assert json.loads(answer.read())["status"] == "deferred"
    deferred = queue[0]
    assert (deferred.method, deferred.path, deferred.query) == ("POST", "/work", "a=1")
    assert (deferred.body, deferred.client) == (kept, "203.0.113.7")
    assert ("x-mark", "7") in deferred.headers


def test_a_full_queue_is_a_refusal() -> None:
    app = PenstockWSGI(hello, limit="1/minute", defer=lambda deferred: None)
    assert statuses(app, "/", "/") == [200, 429]


def test_two_of_them_tell_in_one_set_of_fields() -> None:
    inner = PenstockWSGI(hello, limit="1/minute", name="inner")
    app = PenstockWSGI(inner, limit="5/minute", name="outer")
    for status in (200, 429):
        answer = call(app)
        assert answer.status == status
        assert answer["RateLimit-Policy"] == '"inner";q=1;w=60, "outer";q=5;w=60'
        assert answer["X-RateLimit-Limit"] == "1"


def test_the_outer_one_settles_for_the_inner_one() -> None:
    inner = PenstockWSGI(saying("503 Later"), limit="1/minute", count_when=not_failed)
    app = PenstockWSGI(inner, limit="9/minute")
    assert statuses(app, "/", "/", "/") == [503, 503, 503]


def test_a_store_that_fails() -> None:
    assert call(PenstockWSGI(hello, limit="1/minute", store=Broken())).status == 200
    closed = PenstockWSGI(hello, limit="1/minute", store=Broken(), on_failure="closed")
    answer = call(closed)
    assert (answer.status, answer["Retry-After"]) == (503, "1")


def test_rules() -> None:
    rules = {
        "domain": "web",
        "descriptors": [{"key": "path", "value": "/a", "limits": "1/minute"}],
    }
    app = PenstockWSGI(hello, gate=Gate.from_rules(rules))
    assert statuses(app, "/a", "/a", "/b", "/b") == [200, 429, 200, 200]


# The request ---------------------------------------------------------------------------------


def test_what_a_request_knows() -> None:
    seen: list[Request] = []

    def key(request: Request) -> str:
        seen.append(request)
        return "k"

    call(
        PenstockWSGI(hello, limit="1/minute", key=key, trusted=["203.0.113.0/24"]),
        "/caf\xc3\xa9", "POST", SCRIPT_NAME="/shop", CONTENT_TYPE="text/plain", REMOTE_USER="ada",
        HTTP_X_FORWARDED_FOR="198.51.100.1", HTTP_COOKIE="a=1; b=2", HTTP_HOST="example.org",
    )  # fmt: skip
    request = seen[0]
    assert (request.method, request.path) == ("POST", "/shop/café")
    assert (request.peer, request.client) == ("203.0.113.7", "198.51.100.1")
    assert request.header("content-type") == "text/plain"
    assert request.header("x-nothing") is None
    assert request.cookies == {"a": "1", "b": "2"}
    assert (request.user, request.route, request.host) == ("ada", None, "example.org")
    assert request.native["PATH_INFO"] == "/caf\xc3\xa9"


@pytest.mark.parametrize(
    ("key", "more", "expected"),
    [
        (by_user, {"REMOTE_USER": "ada"}, "user:ada"),
        (by_user, {"REMOTE_USER": ""}, "ip:203.0.113.7/32"),
        (by_header("x-tenant"), {"HTTP_X_TENANT": "acme"}, "header:x-tenant:acme"),
        (by_route, {}, "route:GET -"),
    ],
)
def test_keys(key: Any, more: dict[str, str], expected: str) -> None:
    kept: list[Any] = []

    def app(environ: Any, start_response: Any) -> list[bytes]:
        kept.append(environ["penstock.outcome"].key)
        return hello(environ, start_response)

    call(PenstockWSGI(app, limit="1/minute", key=key), **more)
    assert kept == [expected]


# What is wrong is said at once -----------------------------------------------------------------


async def coroutine(request: Any) -> str:
    return "k"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, TypeError, "give either limit="),
        ({"limit": "1/minute", "fallback": 1}, TypeError, "fallback is a WSGI application"),
        ({"limit": "1/minute", "fallback": hello, "defer": print}, TypeError, "fallback or defer"),
        ({"limit": "1/minute", "defer": 1}, TypeError, "defer is a function"),
        ({"limit": "1/minute", "defer_body": -1}, ValueError, "defer_body is a whole number"),
        ({"gate": AsyncGate.from_rules({"domain": "w", "descriptors": [{"key": "path",
          "limits": "1/s"}]})}, TypeError, "gate is a Gate"),
    ],
)  # fmt: skip
def test_mistakes(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        PenstockWSGI(hello, **options)


@pytest.mark.parametrize("options", [{"key": coroutine}, {"cost": coroutine}])
def test_a_coroutine_function_is_refused_in_words(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="coroutine is a coroutine function"):
        call(PenstockWSGI(hello, limit="1/minute", **options))


def test_a_coroutine_function_as_defer_is_refused_in_words() -> None:
    app = PenstockWSGI(hello, limit="1/minute", defer=coroutine)
    call(app)
    with pytest.raises(TypeError, match="coroutine is a coroutine function"):
        call(app)


@pytest.mark.parametrize(
    ("said", "limits", "of_store", "status"),
    [
        (None, ["1/minute"], None, 200),
        (None, ["1/minute"], "closed", 503),
        (None, ["1/minute on_failure open"], "closed", 200),
        (None, ["1/minute on_failure closed"], None, 503),
        (None, ["1/minute", "9/hour on_failure closed"], None, 503),
        ("open", ["1/minute"], "closed", 200),
        ("open", ["1/minute on_failure closed"], None, 503),
        ("closed", ["1/minute on_failure open"], None, 200),
    ],
)
def test_who_decides_for_a_store_that_fails(
    said: str | None, limits: list[str], of_store: str | None, status: int
) -> None:
    """A limit's own policy, else the middleware's, else the store's."""

    class Failing(Broken):
        on_failure = of_store

        def hit_each(self, wanted: Any, attempt: bool = False) -> Any:
            raise StoreError("10.0.0.7:6379 has lost user:42")

    app = PenstockWSGI(hello, limit=limits, store=Failing(), on_failure=said)
    answer = call(app)
    assert answer.status == status
    assert "10.0.0.7" not in repr((answer.started, answer.body))
    rules = {"domain": "api", "descriptors": [{"key": "remote_address", "limits": limits}]}
    app = PenstockWSGI(hello, gate=Gate.from_rules(rules, Failing()), on_failure=said)
    assert call(app).status == status
