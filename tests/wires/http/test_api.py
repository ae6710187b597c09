"""What port 8080 answers: checks, forward auth, health, its own description."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

import jsonschema
import pytest

from penstock import AsyncGate, MemoryStore
from penstock.integrations.deciding.dimension_sources import parse_dimensions
from penstock.integrations.deciding.identity import Trust
from penstock.metrics import Recorder
from penstock.rules.deciding import pool
from penstock.service.health import Health
from penstock.service.service import Service
from penstock.testing import FakeClock
from penstock.wires.http.api import http_api
from penstock.wires.http.auth import AuthApi
from penstock.wires.http.messages import HttpRequest, HttpResponse
from penstock.wires.http.openapi import DOCUMENT

RULES = """
domain: api
deny: {remote_address: [192.0.2.66]}
descriptors:
  - key: user
    limits: 2/minute
  - key: remote_address
    limits: 3/minute
  - key: path
    value: /login
    descriptors: [{key: remote_address, limits: 1/hour}]
"""
CLOCK = FakeClock(1_767_225_600_000_000_000)


class Later(MemoryStore):
    """Answers later, as Redis does."""

    waits = True


class Site:
    def __init__(self, store: MemoryStore | None = None, refunds: bool = False) -> None:
        store = MemoryStore(clock=CLOCK) if store is None else store
        gate = AsyncGate.from_rules(RULES, store=store)
        assert isinstance(gate, AsyncGate)
        self.health = Health()
        self.service = Service(gate, clock=CLOCK)
        self.routes = http_api(self.service, self.health, Trust(["127.0.0.0/8"]), refunds=refunds)

    def ask(self, path: str, body: Any = None, **headers: str) -> HttpResponse:
        request = HttpRequest("127.0.0.1")
        request.path, _, request.query = path.partition("?")
        request.headers = [(n.replace("_", "-"), v) for n, v in headers.items()]
        if body is not None:
            request.method = "POST"
            request.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        found = self.routes(request)
        if isinstance(found, HttpResponse):
            return found
        return asyncio.run(_awaited(found))


async def _awaited(found: Awaitable[HttpResponse]) -> HttpResponse:
    return await found


@pytest.fixture(params=["at once", "later"])
def site(request: pytest.FixtureRequest) -> Site:
    return Site(None if request.param == "at once" else Later(clock=CLOCK))


def schema(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}


def test_a_check(site: Site) -> None:
    asked = {"domain": "api", "descriptors": [{"user": "42"}]}
    jsonschema.validate(asked, schema("Check"))
    answers = [site.ask("/v1/check", asked) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    for answer in answers:
        jsonschema.validate(json.loads(answer.body), schema("Verdict"))
    assert json.loads(answers[0].body) == {
        "allowed": True,
        "retry_after": 0.0,
        "statuses": [
            {
                "descriptor": [["user", "42"]],
                "allowed": True,
                "reason": "limit",
                "rule": "api/user",
                "limit": {
                    "name": "api/user 2/minute", "text": "2/minute", "amount": 2,
                    "period": 60.0, "burst": 2,
                },
                "remaining": 1,
                "retry_after": 0.0,
                "reset": 30,
            }
        ],
    }  # fmt: skip
    assert dict(answers[2].headers)["Retry-After"] == "30"
    assert dict(answers[0].headers)["X-RateLimit-Remaining"] == "1"


def test_a_repeated_check_is_answered_as_a_new_one() -> None:
    repeated, new = Site(), Site()
    descriptors = [{"user": "\u00e9\ud800"}, {"user": "2"}, {"none": "x"}]
    for count in (1, 2, 3):
        body = json.dumps({"descriptors": descriptors[:count]}).encode()
        for n in range(1, 5):
            kept, read = repeated.ask("/v1/check", body), new.ask("/v1/check", body + b" " * n)
            assert (kept.status, kept.body, kept.headers) == (read.status, read.body, read.headers)


def test_the_domain_may_be_left_out_and_descriptors_written_in_three_ways(site: Site) -> None:
    for descriptor in ({"user": "1"}, [["user", "1"]], {"pairs": {"user": "1"}, "hits": 1}):
        jsonschema.validate(descriptor, schema("Descriptor"))
    assert site.ask("/v1/check", {"descriptors": [{"user": "1"}]}).status == 200
    assert site.ask("/v1/check", {"descriptors": [[["user", "1"]]]}).status == 200
    look = {"descriptors": [{"pairs": {"user": "1"}, "hits": 0}]}
    assert json.loads(site.ask("/v1/check", look).body)["statuses"][0]["remaining"] == 0
    own = {"descriptors": [{"pairs": {"user": "1"}, "limit": "9/hour"}]}
    assert json.loads(site.ask("/v1/check", own).body)["statuses"][0]["remaining"] == 8


GIVING_BACK: list[tuple[str, Any]] = [
    ("/v1/check", {"descriptors": [{"user": "1"}], "hits": -2}),
    ("/v1/check", {"descriptors": [{"pairs": {"user": "1"}, "hits": -2}]}),
    ("/v1/check", {"checks": [{"descriptors": [{"user": "1"}], "hits": -2}]}),
    ("/v1/check", {"checks": [{"descriptors": [{"pairs": {"user": "1"}, "hits": -2}]}]}),
    ("/json", {"domain": "api", "descriptors": [
        {"entries": [{"key": "user", "value": "1"}], "hitsAddend": 2, "isNegativeHits": True}]}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "back"), GIVING_BACK)
def test_hits_are_given_back_only_where_that_is_allowed(path: str, back: Any) -> None:
    take = {"descriptors": [{"user": "1"}], "hits": 2}
    for store in (None, Later(clock=CLOCK)):
        for refunds in (False, True):
            site = Site(store, refunds)
            site.ask("/v1/check", take)
            answer = site.ask(path, back)
            assert answer.status == (200 if refunds else 403)
            assert refunds == (b"--http-refunds" not in answer.body)
            assert site.ask("/v1/check", take).status == (200 if refunds else 429)


def test_a_batch_with_one_refund_counts_nothing(site: Site) -> None:
    check = {"descriptors": [{"user": "1"}]}
    answer = site.ask("/v1/check", {"checks": [check, {**check, "hits": -1}]})
    assert answer.status == 403
    assert b"checks[1]: hits below 0" in answer.body
    assert json.loads(site.ask("/v1/check", check).body)["statuses"][0]["remaining"] == 1


def test_a_batch_is_bounded(site: Site) -> None:
    check = {"descriptors": [{"user": "1"}]}
    for checks, what in (
        ([check] * 1_001, "1001 questions, and 1000 is the most"),
        ([{"descriptors": [{"user": "1"}] * 100}] * 11, "1100 descriptors, and 1000 is the most"),
        ([{"descriptors": [[["user", "1"]] * 10_001]}], "checks[0]: the descriptors have more"),
    ):
        answer = site.ask("/v1/check", {"checks": checks})
        assert (answer.status, what in json.loads(answer.body)["error"]) == (413, True)
    assert json.loads(site.ask("/v1/check", check).body)["statuses"][0]["remaining"] == 1
    answer = site.ask("/v1/check", {"checks": [{"descriptors": [{"user": "2"}] * 100}] * 10})
    assert answer.status == 200
    assert len(json.loads(answer.body)["results"]) == 10


def test_others_have_their_turn_during_a_batch() -> None:
    async def main() -> tuple[int, HttpResponse]:
        site, turns = Site(), 0
        request = HttpRequest("127.0.0.1")
        request.method, request.path = "POST", "/v1/check"
        checks = [{"descriptors": [{"user": str(n)}]} for n in range(1_000)]
        request.body = json.dumps({"checks": checks}).encode()
        waiting = site.routes(request)
        assert not isinstance(waiting, HttpResponse)
        task = asyncio.ensure_future(waiting)
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return turns, task.result()

    turns, answer = asyncio.run(main())
    assert turns >= 20
    assert all(each["allowed"] for each in json.loads(answer.body)["results"])


def test_an_error_in_a_batch_is_told(monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    monkeypatch.setattr(pool, "MOST_BROUGHT", 2)
    checks = [
        {"descriptors": [{"pairs": {"user": "1"}, "limit": f"{n}/hour"}]} for n in range(1, 100)
    ]
    answer = site.ask("/v1/check", {"checks": checks})
    assert answer.status == 200
    first, *_, last = json.loads(answer.body)["results"]
    assert first["allowed"]
    assert (last["allowed"], "2 different limits" in last["error"]) == (False, True)


def test_many_at_once(site: Site) -> None:
    check = {"descriptors": [{"user": "7"}]}
    answer = site.ask("/v1/check", {"checks": [check, check, check]})
    found = json.loads(answer.body)
    jsonschema.validate(found, schema("Verdicts"))
    assert answer.status == 200
    assert [each["allowed"] for each in found["results"]] == [True, True, False]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "a check is an object"),
        (b"{", "the body is not JSON"),
        (b"\xff", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        ([], "a check is an object"),
        ({}, "descriptors is a list of 1 to 100"),
        ({"descriptors": []}, "descriptors is a list"),
        ({"descriptors": [{}]}, r"descriptors\[0\]: a descriptor has at least one pair"),
        ({"descriptors": [{"user": 42}]}, r"descriptors\[0\]: .*are texts"),
        ({"descriptors": [{"user": "1"}, 7]}, r"descriptors\[1\]: a descriptor is an object"),
        ({"descriptors": [[["user"]]]}, r"descriptors\[0\]: .*pair"),
        ({"descriptors": [{"user": "1"}], "hits": "1"}, "hits is a whole number"),
        ({"descriptors": [{"user": "1"}], "hits": 2**40}, "hits is a whole number"),
        ({"descriptors": [{"user": "1"}], "hit": 1}, r"unknown: hit \(did you mean 'hits'\?\)"),
        ({"descriptor": [{"user": "1"}]}, r"unknown: descriptor \(did you mean 'descriptors'\?\)"),
        ({"descriptors": {"user": "1"}}, r'descriptors is a list .*, such as \[\{"user": "42"\}\]'),
        ({"descriptors": ["user=1"]}, r'is an object of texts, such as \{"user": "42"\}'),
        ({"descriptors": [{"user": 42}]}, "are texts, not .*: write '42'"),
        ({"descriptors": [{"user": "1"}], "domain": 7}, "domain is a non-empty text"),
        ({"descriptors": [{"pairs": {"a": "b"}, "limit": "1/fortnight"}]}, "fortnight"),
        ({"descriptors": [{"pairs": {"a": "b"}, "limit": 7}]}, "limit is a text"),
        ({"descriptors": [{"pairs": {"a": "b"}, "x": 7}]}, "unknown: x$"),
        ({"checks": []}, "checks is a list of 1 to 1000"),
        ({"checks": [{"descriptors": [{"user": "1"}]}, 7]}, r"checks\[1\]: a check is an object"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_counted(site: Site, body: Any, message: str) -> None:
    answer = site.ask("/v1/check", body)
    assert answer.status == 400
    jsonschema.validate(json.loads(answer.body), schema("Error"))
    assert __import__("re").search(message, json.loads(answer.body)["error"])
    look = {"descriptors": [{"pairs": {"user": "1"}, "hits": 0}]}
    assert json.loads(site.ask("/v1/check", look).body)["statuses"][0]["remaining"] == 2


def test_a_path_that_is_nearly_right(site: Site) -> None:
    error = json.loads(site.ask("/check", {}).body)["error"]
    assert error == "nothing at /check (did you mean '/v1/check'?)"
    assert json.loads(site.ask("/" + "x" * 50, {}).body)["error"] == "nothing at /" + "x" * 50


def test_an_unknown_domain_has_no_rules(site: Site) -> None:
    answer = site.ask("/v1/check", {"domain": "other", "descriptors": [{"user": "1"}]})
    assert answer.status == 200
    assert json.loads(answer.body)["statuses"][0]["reason"] == "unmatched"


def test_an_unknown_domain_is_told_to_the_caller_and_logged_once(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    warning = (
        "no rule has the domain 'apl' (did you mean 'api'?), so nothing is limited; there are: api"
    )
    one = {"domain": "apl", "descriptors": [{"user": "1"}]}
    for _ in range(3):
        assert json.loads(site.ask("/v1/check", one).body)["warning"] == warning
    several = site.ask("/v1/check", {"checks": [one, {**one, "domain": "api"}, one]})
    results = json.loads(several.body)["results"]
    assert [each.get("warning") for each in results] == [warning, None, warning]
    assert [record.message for record in caplog.records] == [warning]
    for number in range(100):  # any client can name any number of domains
        site.ask("/v1/check", {**one, "domain": f"x{number}"})
    assert len(caplog.records) == 20


def test_envoys_service_also_logs_an_unknown_domain(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    entries = [{"key": "user", "value": "1"}]
    for _ in range(2):
        answer = site.ask("/json", {"domain": "apl", "descriptors": [{"entries": entries}]})
        assert answer.status == 200
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_descriptor_in_envoys_form(site: Site) -> None:
    entry = {"key": "user", "value": "9"}
    forms: list[Any] = [{"entries": [entry]}, [entry], {"entries": [entry], "hits": 1}]
    statuses = []
    for form in forms:
        answer = site.ask("/v1/check", {"descriptors": [form]})
        statuses.append((answer.status, json.loads(answer.body)["statuses"][0]["descriptor"]))
    assert statuses == [(200, [["user", "9"]]), (200, [["user", "9"]]), (429, [["user", "9"]])]


@pytest.mark.parametrize(
    ("descriptor", "message"),
    [
        ({"key": "user", "value": "42"},
         'descriptors[0]: write {"user": "42"}, or Envoy\'s form {"entries": [{"key": "user",'
         ' "value": "42"}]}; if there are dimensions of the names key and value, [["key", "user"],'
         ' ["value", "42"]]'),
        ({"entries": [{"name": "user"}]},
         'descriptors[0]: an entry is an object {"key": "user", "value": "42"}'),
        ({"entries": [{"key": "user", "value": 42}]},
         "descriptors[0]: a descriptor's key and value are texts, not ('user', 42): write '42'"),
        ({"entries": [], "limit": {"unit": "MINUTE"}},
         "descriptors[0]: limit is a text such as '100/minute'; Envoy's messages are sent to POST"
         " /json"),
    ],
)  # fmt: skip
def test_forms_that_could_limit_nothing_say_what_to_write(
    site: Site, descriptor: Any, message: str
) -> None:
    answer = site.ask("/v1/check", {"descriptors": [descriptor]})
    assert (answer.status, json.loads(answer.body)["error"]) == (400, message)


def test_dimensions_called_key_and_value_are_written_as_pairs(site: Site) -> None:
    for form in ([["key", "a"], ["value", "b"]], {"pairs": [["key", "a"], ["value", "b"]]}):
        answer = site.ask("/v1/check", {"descriptors": [form]})
        assert json.loads(answer.body)["statuses"][0]["descriptor"] == [
            ["key", "a"],
            ["value", "b"],
        ]


# Forward auth --------------------------------------------------------------------------------


def test_nginx_asks(site: Site) -> None:
    told = {"x_original_uri": "/login?a=b", "x_original_method": "POST", "host": "a.example"}
    client = {"x_forwarded_for": "6.6.6.6, 203.0.113.7"}
    first = site.ask("/v1/auth?refuse=403", **told, **client)
    assert first.status == 200
    assert dict(first.headers)["X-RateLimit-Limit"] == "1"
    second = site.ask("/v1/auth?refuse=403", **told, **client)
    assert second.status == 403
    headers = dict(second.headers)
    assert (headers["X-Penstock-Status"], headers["Retry-After"]) == ("429", "3600")
    other = site.ask("/v1/auth?refuse=403", **told, x_forwarded_for="6.6.6.6, 203.0.113.8")
    assert other.status == 200, "it has an address of its own"


def test_traefik_and_caddy_ask(site: Site) -> None:
    told = {"x_forwarded_uri": "/a", "x_forwarded_method": "GET", "x_forwarded_for": "203.0.113.9"}
    found = [site.ask("/v1/auth?domain=api", **told).status for _ in range(4)]
    assert found == [200, 200, 200, 429]
    assert json.loads(site.ask("/v1/auth", **told).body)["error"] == "Rate limit exceeded"


def test_the_denied_are_denied(site: Site) -> None:
    answer = site.ask("/v1/auth", x_forwarded_for="192.0.2.66")
    assert (answer.status, dict(answer.headers)["X-Penstock-Status"]) == (403, "403")


def test_nobody_else_is_believed(site: Site) -> None:
    request = HttpRequest("203.0.113.5")
    request.path = "/v1/auth"
    request.headers = [("x-original-uri", "/a"), ("x-forwarded-for", "192.0.2.1")]
    answer = site.routes(request)
    assert isinstance(answer, HttpResponse)
    assert answer.status == 403


@pytest.mark.parametrize(
    "uri",
    [
        "//login", "/x/../login", "/x/%2e%2e/login", "/./login", "/%2Flogin", "/login;x",
        "/login%23", "/login#x", "/..%5clogin", "/%256cogin", "/login%00", "/100%",
        "http://a.example/login",
    ],
)  # fmt: skip
@pytest.mark.parametrize("family", ["x_original_uri", "x_forwarded_uri"])
def test_a_path_that_may_be_another_is_refused(site: Site, family: str, uri: str) -> None:
    answer = site.ask("/v1/auth", **{family: uri}, x_forwarded_for="203.0.113.7")
    assert answer.status == 400
    assert "the path" in json.loads(answer.body)["error"]


@pytest.mark.parametrize(
    "uri",
    ["/a//b", "/a%2Fb", "/https://example.com/", "/a%20b", "/%C3%A9", "/a;b", "/C%23?x=//../"],
)
def test_a_path_with_the_same_rules_in_all_readings_is_not(site: Site, uri: str) -> None:
    assert site.ask("/v1/auth", x_original_uri=uri, x_forwarded_for="203.0.113.7").status == 200


def test_nobody_is_refused_for_a_path_in_shadow(site: Site) -> None:
    site.service.gate.switches.mode("shadow")
    assert site.ask("/v1/auth", x_original_uri="//login").status == 200


@pytest.mark.parametrize("name", ["uri", "method", "host"])
def test_a_proxy_that_adds_to_what_a_client_sent_is_told_so(site: Site, name: str) -> None:
    request = HttpRequest("127.0.0.1")
    request.path = "/v1/auth"
    request.headers = [("x-forwarded-uri", "/a"), *[(f"x-forwarded-{name}", "/b")] * 2]
    answer = site.routes(request)
    assert isinstance(answer, HttpResponse)
    assert answer.status == 400
    assert f"x-forwarded-{name} came twice" in json.loads(answer.body)["error"]


def test_a_method_counts_in_any_case() -> None:
    site = Site()
    site.service.gate.replace("domain: d\ndescriptors: [{key: method, value: GET, limits: 1/hour}]")
    found = [site.ask("/v1/auth", x_forwarded_method=name).status for name in ("GET", "get", "Get")]
    assert found == [200, 429, 429]


def test_preflights_are_counted_and_denied_like_all(site: Site) -> None:
    told = {"x_forwarded_method": "OPTIONS", "x_forwarded_uri": "/a", "origin": "https://a.example",
            "access_control_request_method": "POST"}  # fmt: skip
    found = [site.ask("/v1/auth", **told, x_forwarded_for="203.0.113.7").status for _ in range(4)]
    assert found == [200, 200, 200, 429]
    assert site.ask("/v1/auth", **told, x_forwarded_for="192.0.2.66").status == 403


def test_an_operator_denies_what_no_rule_is_about(site: Site) -> None:
    site.service.gate.switches.deny("header:x-who", "eve")
    assert [site.ask("/v1/auth", x_who=who).status for who in ("ann", "eve")] == [200, 403]


IP = "domain: login\ndescriptors: [{key: ip, limits: 1/hour}]"


def test_ip_is_the_address_of_the_client_and_ipv6_counts_by_network() -> None:
    site = Site()
    site.service.gate.replace(IP)
    addresses = ["203.0.113.7", "203.0.113.7", "203.0.113.8", "2001:db8::1", "2001:db8::2"]
    found = [site.ask("/v1/auth", x_forwarded_for=address).status for address in addresses]
    assert found == [200, 429, 200, 200, 429]
    # Other callers use either name, and it is one count.
    for names, expected in ((("ip", "remote_address"), [200, 429]), (("remote_address",), [429])):
        checks = [{"descriptors": [{name: "192.0.2.1"}]} for name in names]
        assert [site.ask("/v1/check", check).status for check in checks] == expected


def test_rules_that_cannot_match_are_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    gate = AsyncGate.from_rules(IP.replace("key: ip", "key: user"))
    assert isinstance(gate, AsyncGate)
    recorder = Recorder()
    recorder.follow(gate)
    site = Site()
    service = Service(gate, observer=recorder)
    site.routes = http_api(service, site.health, Trust(["127.0.0.0/8"]))
    assert [site.ask("/v1/auth").status for _ in range(8)] == [200] * 8
    (record,) = caplog.records
    assert "nobody says what 'user' is of a request" in record.getMessage()
    assert "--dimension user=header:NAME" in record.getMessage()
    unmatched = recorder.snapshot().get("penstock_without_rule_total", "login", "unmatched")
    assert unmatched == 8


def test_a_dimension_that_the_proxy_sends_in_a_header() -> None:
    gate = AsyncGate.from_rules(IP.replace("key: ip", "key: user"))
    assert isinstance(gate, AsyncGate)
    site = Site()
    dimensions = parse_dimensions(["user=header:x-user"])
    trust = Trust(["127.0.0.0/8"])
    service = Service(gate)
    auth = AuthApi(service, gate, trust, dimensions)
    site.routes = http_api(service, site.health, trust, auth=auth)
    found = [site.ask("/v1/auth", x_user=name).status for name in ("ann", "ann", "bob")]
    assert found == [200, 429, 200]


def test_wrong_questions(site: Site) -> None:
    assert site.ask("/v1/auth?domain=none").status == 400
    assert site.ask("/v1/auth?refuse=200").status == 400


# The rest ------------------------------------------------------------------------------------


def test_health_and_the_index(site: Site) -> None:
    assert (site.ask("/healthcheck").status, site.ask("/healthcheck").body) == (200, b"OK")
    site.health.set("", False, "draining")
    assert (site.ask("/healthcheck").status, site.ask("/healthcheck").body) == (500, b"draining")
    assert b"/v1/check" in site.ask("/").body


def test_envoys_json(site: Site) -> None:
    entries = [{"key": "user", "value": "j"}]
    asked = {"domain": "api", "descriptors": [{"entries": entries}]}
    answers = [site.ask("/json", asked) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert json.loads(answers[2].body)["overallCode"] == "OVER_LIMIT"
    assert site.ask("/json", {"domain": ""}).status == 400
    assert site.ask("/json", b"{").status == 400


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_envoys_json_by_any_method(site: Site, method: str) -> None:
    request = HttpRequest("127.0.0.1")
    request.method, request.path = method, "/json"
    request.body = (
        b'{"domain": "api", "descriptors": [{"entries": [{"key": "user", "value": "g"}]}]}'
    )
    answer = site.routes(request)
    if not isinstance(answer, HttpResponse):
        answer = asyncio.run(_awaited(answer))
    assert answer.status == 200


def test_the_document_has_every_path_and_is_valid(site: Site) -> None:
    served = json.loads(site.ask("/openapi.json").body)
    assert served == DOCUMENT
    paths = set(site.routes._routes) - {"/"}
    assert set(served["paths"]) == paths
    for name in served["components"]["schemas"]:
        jsonschema.Draft202012Validator.check_schema(schema(name))


def test_a_known_question_is_answered_as_an_unknown_one() -> None:
    """Byte by byte: known by its bytes, or spelt otherwise each time."""
    one, two = Site(), Site()
    for number in range(5):
        known = b'{"domain":"api","descriptors":[{"user":"k\\u00e9%s\\""}]}'
        other = known.replace(b":", b":" + b" " * number, 1) + b" " * (number + 1)
        a, b = one.ask("/v1/check", known), two.ask("/v1/check", other)
        assert (a.status, a.body, a.headers) == (b.status, b.body, b.headers)
    assert a.status == 429


def test_a_known_question_follows_rules_and_switches() -> None:
    site = Site()
    asked = {"domain": "api", "descriptors": [{"user": "42"}]}
    assert [site.ask("/v1/check", asked).status for _ in range(3)] == [200, 200, 429]
    site.service.gate.switches.mode("shadow")
    assert site.ask("/v1/check", asked).status == 200
    site.service.gate.switches.mode("enforce")
    assert site.ask("/v1/check", asked).status == 429
    site.service.gate.replace(RULES.replace("limits: 2/minute", "limits: 9/minute"))
    assert json.loads(site.ask("/v1/check", asked).body)["statuses"][0]["limit"]["amount"] == 9


def test_who_looks_first_is_stopped_by_the_debits() -> None:
    limit = {"unit": "hour", "requests_per_unit": 1000}
    rules = {"domain": "api", "descriptors": [{"key": "user", "rate_limit": limit}]}
    gate = AsyncGate.from_rules(rules, MemoryStore(clock=CLOCK))
    assert isinstance(gate, AsyncGate)
    site = Site()
    site.routes = http_api(Service(gate, clock=CLOCK), site.health, Trust([]))
    look = {"descriptors": [{"pairs": {"user": "1"}, "hits": 0}]}
    through = 0
    for _ in range(10):
        if site.ask("/v1/check", look).status == 200:
            through += 400
            site.ask("/v1/check", {"descriptors": [{"user": "1"}], "hits": 400})
    assert through == 1200
    answer = site.ask("/v1/check", look)
    assert (answer.status, dict(answer.headers)["X-RateLimit-Remaining"]) == (429, "0")
