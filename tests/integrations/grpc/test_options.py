"""Options, each in every stack; and what is wrong with some."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
import pytest

from integrations.grpc.kit import SERVICE, SYNC, Bench
from penstock import AsyncGate, AsyncLimiter, Decision, Gate, Limit, Limiter, LimitError, RulesError
from penstock.errors import InvalidCost, StoreError
from penstock.events import Event, Refused
from penstock.integrations.grpc import EXEMPT, Call, by_metadata
from penstock.integrations.grpc import RateLimitInterceptor as InThreads
from penstock.integrations.grpc.aio import RateLimitInterceptor as InTasks
from penstock.integrations.grpc.options import as_exempt
from penstock.stores.base import Counters, Store
from penstock.stores.memory import MemoryStore

OK, EXHAUSTED = grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED


# Limits and costs --------------------------------------------------------------------------


def test_a_limit_by_method(bench: Bench) -> None:
    limits = {f"/{SERVICE}/unary_unary": "1/minute", f"/{SERVICE}/unary_stream": Limit(2, "hour")}
    limit = bench.function(lambda call: limits.get(call.method))
    client = bench.limited(bench.limiter(), limit=limit)
    passed = {
        kind: [client.call(kind).passed for _ in range(3)]
        for kind in ("unary_unary", "unary_stream", "stream_unary")
    }
    assert passed == {
        "unary_unary": [True, False, False],
        "unary_stream": [True, True, False],
        "stream_unary": [True, True, True],  # None: not limited
    }


def test_a_limit_beside_the_limiters_own(bench: Bench) -> None:
    client = bench.limited(bench.limiter("9/minute"), limit="1/minute")
    assert [client.call().passed for _ in range(2)] == [True, False]


@pytest.mark.parametrize("text", ["1/minute", Limit(1, "minute")])
def test_a_limit_instead_of_a_limiter(bench: Bench, text: Any) -> None:
    client = bench.limited(text)
    assert [client.call().passed for _ in range(2)] == [True, False]


@pytest.mark.parametrize("limit", ["1/minute", Limit(1, "minute"), ["1/minute", "9/hour"]])
def test_a_limit_by_name_needs_no_limiter(bench: Bench, limit: Any) -> None:
    client = bench.limited(None, limit=limit)
    assert [client.call().passed for _ in range(2)] == [True, False]


def test_a_function_by_name_needs_no_limiter_either(bench: Bench) -> None:
    limit = bench.function(lambda call: "1/minute" if call.name == "unary_unary" else None)
    client = bench.limited(None, limit=limit, store=bench.store)
    assert [client.call("unary_unary").passed for _ in range(2)] == [True, False]
    assert [client.call("unary_stream").passed for _ in range(2)] == [True, True]
    assert bench.limiter("1/minute").peek("ip:127.0.0.1/32").remaining == 0


def test_options_from_the_environment(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_LIMIT", "1/minute; 9/hour")
    monkeypatch.setenv("PENSTOCK_EXEMPT", "/health,/static/*")  # paths, which are not for gRPC
    monkeypatch.setenv("PENSTOCK_FIELDS", "ietf")
    monkeypatch.setenv("PENSTOCK_HOPS", "1")
    client = bench.limited(None, from_env=True)
    forwarded = [("x-forwarded-for", "192.0.2.1")]
    assert [client.call(metadata=forwarded).passed for _ in range(2)] == [True, False]
    assert client.call(metadata=[("x-forwarded-for", "192.0.2.2")]).passed


def test_what_is_given_goes_before_the_environment(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_LIMIT", "0/minute")
    monkeypatch.setenv("PENSTOCK_STORE", "shared:/nonexistent/limits")
    for given in (bench.limiter("1/minute"), "1/minute"):
        store = {"store": bench.store} if isinstance(given, str) else {}
        name = type(given).__name__
        client = bench.limited(given, from_env=True, key=lambda call, name=name: name, **store)
        assert [client.call().passed for _ in range(2)] == [True, False]
    with pytest.raises(TypeError, match="give either a limit, such as '100/minute'"):
        bench.limited(None)


def test_a_limit_over_a_store(bench: Bench) -> None:
    client = bench.limited("1/minute", store=bench.store, name="calls")
    assert client.call().trailing["ratelimit"] == '"calls";r=0;t=60'
    assert bench.limiter("1/minute").peek("ip:127.0.0.1/32").remaining == 0


def test_a_limiter_is_shared_with_whoever_else_has_it(bench: Bench) -> None:
    limiter = bench.limiter("2/minute")
    client = bench.limited(limiter)
    limiter.hit("ip:127.0.0.1/32")
    assert [client.call().passed for _ in range(2)] == [True, False]


def test_an_async_limiter(bench: Bench) -> None:
    if not bench.asynchronous:
        with pytest.raises(TypeError, match="limiter is a Limiter, or a limit such as"):
            bench.interceptor(AsyncLimiter("1/minute"))
        return
    client = bench.limited(AsyncLimiter("1/minute", store=bench.store))
    assert [client.call().passed for _ in range(2)] == [True, False]


def test_a_cost_by_call(bench: Bench) -> None:
    cost = bench.function(lambda call: int(call.text("units")))
    client = bench.limited(bench.limiter("9/minute"), cost=cost)
    told = [
        client.call(metadata=(("units", units),)).trailing["ratelimit"] for units in ("4", "5", "1")
    ]
    assert told == ['"default";r=5;t=27', '"default";r=0;t=7', '"default";r=0;t=7']


def test_a_function_that_fails_fails_the_call(bench: Bench) -> None:
    client = bench.limited(bench.limiter("9/minute"), cost=bench.function(lambda call: -1))
    answer = client.call()
    assert answer.code is grpc.StatusCode.UNKNOWN
    assert "cost is at least 1" in answer.details
    assert bench.script.runs == 0


def test_a_call_that_costs_nothing_passes_uncounted(bench: Bench) -> None:
    cost = bench.function(lambda call: int(call.text("units")))
    client = bench.limited(bench.limiter("1/minute"), cost=cost)
    answers = [client.call(metadata=(("units", units),)) for units in "0010"]
    assert [answer.passed for answer in answers] == [True] * 4
    assert ["ratelimit" in answer.trailing for answer in answers] == [False, False, True, False]


def test_a_disabled_interceptor_decides_nothing(bench: Bench) -> None:
    client = bench.limited(bench.limiter("1/minute"), enabled=False)
    answers = [client.call() for _ in range(3)]
    assert [answer.passed for answer in answers] == [True] * 3
    assert "ratelimit" not in answers[0].trailing


# Exempt ------------------------------------------------------------------------------------


def test_health_and_reflection_are_exempt(bench: Bench) -> None:
    for service in ("grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"):
        target = bench.serve(bench.interceptor(bench.limiter("1/minute")), service=service)
        client = bench.connect(target)
        answers = [client.call(service=service) for _ in range(3)]
        assert [answer.passed for answer in answers] == [True] * 3
        assert "ratelimit" not in answers[0].trailing


def test_names_of_ones_own(bench: Bench) -> None:
    client = bench.limited(bench.limiter("1/minute"), exempt=[*EXEMPT, f"/{SERVICE}/unary_stream"])
    assert [client.call("unary_stream").passed for _ in range(3)] == [True] * 3
    assert [client.call("unary_unary").passed for _ in range(2)] == [True, False]


def test_a_function_says_who_is_exempt(bench: Bench, kind: str) -> None:
    exempt = bench.function(lambda call: call.text("who") == "monitor")
    client = bench.limited(bench.limiter("1/minute"), exempt=exempt)
    for _ in range(3):
        assert client.call(kind, metadata=(("who", "monitor"),)).passed
    assert [client.call(kind).passed for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    ("name", "method", "exempt"),
    [
        ("shop.Orders", "/shop.Orders/Place", True),
        ("shop.Orders", "/shop.OrdersToo/Place", False),
        ("shop.*", "/shop.Orders/Place", True),
        ("shop.*", "/shopping.Orders/Place", False),
        ("/shop.Orders/Place", "/shop.Orders/Place", True),
        ("/shop.Orders/Place", "/shop.Orders/PlaceAll", False),
        ("/shop.Orders/*", "/shop.Orders/Place", True),
        ("/shop.Orders/Get*", "/shop.Orders/GetAll", True),
        ("/shop.Orders/Get*", "/shop.Orders/Place", False),
    ],
)
def test_exempt_names(name: str, method: str, exempt: bool) -> None:
    assert as_exempt([name])(Call(method, "unix:")) is exempt


@pytest.mark.parametrize("name", ["", "*", "/", "/a", "a/b", "/a/b/c", "a.*.b", "//", 7, None])
def test_exempt_names_that_are_none(name: Any) -> None:
    with pytest.raises(ValueError, match="an exempt name is a method, '/shop"):
        as_exempt([name])


# Shadow, failures, events ------------------------------------------------------------------


def test_shadow_refuses_nobody_and_tells(bench: Bench, kind: str) -> None:
    events: list[Event] = []
    client = bench.limited(bench.limiter("1/minute"), shadow=True, hook=events.append)
    answers = [client.call(kind) for _ in range(2)]
    assert [answer.replies for answer in answers] == [["hello"], ["hello"]]
    assert [answer.trailing["ratelimit"] for answer in answers] == ['"default";r=0;t=60'] * 2
    assert "retry-after" not in answers[1].trailing
    assert [(type(event), event.key, event.shadow) for event in events] == [
        (Refused, "ip:127.0.0.1/32", True)
    ]


def test_shadow_gives_back_only_what_it_took(bench: Bench) -> None:
    client = bench.limited(
        bench.limiter("1/minute"), shadow=True, count_when=lambda status: status.code is not OK
    )
    bench.limiter("1/minute").hit("ip:127.0.0.1/32")
    assert client.call().passed
    assert bench.limiter("1/minute").peek("ip:127.0.0.1/32").remaining == 0


def test_a_hook_hears_of_refusals(bench: Bench) -> None:
    events: list[Event] = []
    client = bench.limited(bench.limiter("1/minute"), hook=events.append)
    assert [client.call().passed for _ in range(2)] == [True, False]
    assert [(event.key, event.shadow) for event in events] == [("ip:127.0.0.1/32", False)]


class Failing(Counters):
    def hit(self, key: str, cost: int) -> Decision:
        raise StoreError("the disk is full")

    async def submit(self, verb: str, *args: Any) -> Any:
        await asyncio.sleep(0)
        return getattr(self, verb)(*args)


class Broken(Store):
    """A store that is out of order; in one that waits, that comes to light while waiting."""

    def __init__(self, waits: bool) -> None:
        super().__init__()
        self.waits = waits

    def make_counters(self, limit: Limit) -> Counters:
        return Failing(limit, None)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    ("on_failure", "code"),
    [(None, OK), ("open", OK), ("closed", grpc.StatusCode.UNAVAILABLE)],
)
def test_a_store_that_fails(
    bench: Bench, waits: bool, on_failure: str | None, code: Any, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = Limiter("1/minute", store=Broken(waits))
    client = bench.limited(limiter, on_failure=on_failure)
    with caplog.at_level(logging.WARNING, "penstock"):
        answer = client.call("unary_stream")
    assert answer.code is code
    assert bench.script.runs == (code is OK)
    assert "ratelimit" not in answer.trailing
    assert "the disk is full" in caplog.text


@pytest.mark.parametrize("waits", [False, True])
def test_the_policy_of_the_limit_or_the_store_decides_when_it_fails(
    bench: Bench, waits: bool
) -> None:
    store = Broken(waits)
    assert (
        bench.limited(Limiter("1/minute on_failure closed", store=store)).call("unary_stream").code
        is grpc.StatusCode.UNAVAILABLE
    )
    store.on_failure = "closed"
    assert (
        bench.limited(Limiter("1/minute", store=store)).call("unary_stream").code
        is grpc.StatusCode.UNAVAILABLE
    )
    open_ones = Limiter("1/minute on_failure open", store=store)
    assert bench.limited(open_ones).call("unary_stream").code is OK


# What is wrong -----------------------------------------------------------------------------


async def awaited(call: Any) -> Any: ...


RULES = {"domain": "api", "descriptors": [{"key": "service", "limits": "1/minute"}]}


@pytest.mark.parametrize("kind_of", [InThreads, InTasks])
@pytest.mark.parametrize(
    ("args", "options", "error", "message"),
    [
        ([], {}, TypeError, "give either a limit, such as"),
        (["1/minute"], {"gate": "rules.yaml"}, TypeError, "give either a limit"),
        ([7], {}, TypeError, "limiter is a Limiter"),
        (["never"], {}, LimitError, "never"),
        ([Limiter()], {}, LimitError, "no limit"),
        ([Limiter()], {"limit": "often"}, LimitError, "often"),
        ([Limiter()], {"limit": 7}, LimitError, "7 does not say per what time"),
        (["1/minute"], {"key": "ip"}, TypeError, "write key=by_peer"),
        (["1/minute"], {"key": "x-tenant"}, TypeError, r"write key=by_metadata\('x-tenant'\)"),
        (["1/minute"], {"key": by_metadata}, TypeError, "by_metadata returns a key function"),
        (["1/minute"], {"key": 7}, TypeError, "key is a function, such as by_peer"),
        (["1/minute"], {"enabled": "no"}, TypeError, "enabled is True or False"),
        (["1/minute"], {"cost": 0}, InvalidCost, "cost is at least 1"),
        (["1/minute"], {"cost": "1"}, InvalidCost, "cost is a whole number"),
        (["1/minute"], {"exempt": "shop.Orders"}, TypeError, "exempt is a list of names"),
        (["1/minute"], {"exempt": ["a/b"]}, ValueError, "an exempt name is"),
        (["1/minute"], {"count_when": True}, TypeError, "count_when is a function of a Status"),
        (["1/minute"], {"on_failure": "maybe"}, ValueError, "'open' or 'closed', not 'maybe'"),
        (["1/minute"], {"trusted": "10.0.0.0/8"}, TypeError, "trusted is a list"),
        (["1/minute"], {"trusted": ["proxy"]}, ValueError, "trusted names networks"),
        (["1/minute"], {"domain": "api"}, TypeError, "dimensions and watch are for a gate"),
        (
            ["1/minute"],
            {"dimensions": {}},
            TypeError,
            "dimensions and watch are for a gate",
        ),
        (["1/minute"], {"watch": True}, TypeError, "dimensions and watch are for a gate"),
        (["1/minute"], {"name": ""}, TypeError, "name is a non-empty str"),
        ([Limiter("1/minute")], {"store": MemoryStore()}, TypeError, "has its store already"),
        (["1/minute"], {"store": 7}, TypeError, "store is a Store such as"),
        (["1/minute"], {"store": "redis:"}, ValueError, "the store's URL is incomplete"),
        ([], {"gate": RULES}, TypeError, "or the path of a file of rules"),
        ([], {"gate": "rules.yaml", "key": len}, TypeError, "give dimensions, not key or limit"),
        ([], {"gate": "x.yaml", "limit": "1/day"}, TypeError, "give dimensions, not key or limit"),
    ],
)
def test_what_is_wrong_is_said_at_once(
    kind_of: Any, args: list[Any], options: dict[str, Any], error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        kind_of(*args, **options)


@pytest.mark.parametrize("name", ["key", "limit", "cost", "exempt", "count_when"])
def test_a_coroutine_function_is_refused_where_nobody_can_await_it(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} is a coroutine function.*grpc.aio"):
        InThreads("1/minute", **{name: awaited})
    InTasks("1/minute", **{name: awaited})


@pytest.mark.parametrize("bench", [SYNC], indirect=True)
def test_so_is_one_in_disguise_when_it_is_called(bench: Bench) -> None:
    answer = bench.limited("1/minute", key=lambda call: awaited(call)).call()
    assert answer.code is grpc.StatusCode.UNKNOWN
    assert "awaited is a coroutine function" in answer.details


def test_a_gate_of_the_other_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="gate is a Gate, or the path"):
        InThreads(gate=AsyncGate.from_rules(RULES))
    with pytest.raises(TypeError, match="gate is an AsyncGate, or the path"):
        InTasks(gate=Gate.from_rules(RULES))


@pytest.mark.parametrize("option", [{"store": MemoryStore()}, {"watch": True}])
def test_a_gate_has_these_already(option: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"a gate has its store already|a Gate has a watch"):
        InThreads(gate=Gate.from_rules(RULES), **option)


def test_rules_that_ask_what_nobody_knows_are_refused() -> None:
    rules = {"domain": "api", "descriptors": [{"key": "planet", "limits": "1/minute"}]}
    with pytest.raises(RulesError, match="nobody says what 'planet' is"):
        InThreads(gate=Gate.from_rules(rules))
