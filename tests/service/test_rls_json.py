"""Envoy's messages as JSON: read as protobuf reads it, and as strictly."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from penstock.service import rls_json
from penstock.service.grpc_status import INVALID_ARGUMENT, GrpcError
from penstock.service.rls_request import RateLimitRequest as ReadRequest
from penstock.service.rls_request import read_request
from penstock.service.service import Service
from service.rls_case import ask
from service.rls_messages import RateLimitRequest
from service.service_kit import USER, Slow, gate_of

ENTRY = '{"entries": [{"key": "user", "value": "42"}]}'


def fields_of(request: ReadRequest) -> object:
    descriptors = [(a.pairs, a.amount, a.unit, a.hits, a.negative) for a in request.descriptors]
    return request.domain, descriptors, request.hits


def ours(text: str) -> object:
    try:
        return fields_of(rls_json.read_request(text.encode("utf-8", "surrogatepass")))
    except GrpcError as error:
        return None if error.code == INVALID_ARGUMENT else error


def theirs(text: str) -> object:
    """By way of protobuf's own reader of JSON, and its bytes."""
    try:
        message = json_format.Parse(text, RateLimitRequest())
    except json_format.ParseError:
        return None
    return fields_of(read_request(message.SerializeToString()))


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"domain": "api", "descriptors": [' + ENTRY + "]}",
        '{"hitsAddend": 5}',
        '{"hits_addend": 5}',
        '{"hitsAddend": "5"}',
        '{"hitsAddend": 5.0}',
        '{"hitsAddend": 0.5e1}',
        '{"hitsAddend": null, "domain": null, "descriptors": null}',
        '{"hitsAddend": 4294967295}',
        '{"descriptors": []}',
        '{"descriptors": [{}]}',
        '{"descriptors": [{"entries": [{}]}]}',
        '{"descriptors": [{"entries": [{"key": "a\\u0000\\ud83d\\ude00"}]}]}',
        '{"descriptors": [{"limit": {}}]}',
        '{"descriptors": [{"limit": null}]}',
        '{"descriptors": [{"limit": {"requestsPerUnit": 3, "unit": "WEEK"}}]}',
        '{"descriptors": [{"limit": {"requests_per_unit": "3", "unit": 2}}]}',
        '{"descriptors": [{"limit": {"unit": 99}}]}',
        '{"descriptors": [{"hitsAddend": 0}]}',
        '{"descriptors": [{"hitsAddend": "18446744073709551615"}]}',
        '{"descriptors": [{"hits_addend": 7, "is_negative_hits": true}]}',
        '{"descriptors": [{"isNegativeHits": false}]}',
        ' \n{"domain":"\\u00fc"}\t',
    ],
)
def test_reads_as_protobuf_does(text: str) -> None:
    message = ours(text)
    assert message is not None
    assert message == theirs(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "3",
        "{",
        "{} {}",
        "\ufeff{}",
        '{"domain": 5}',
        '{"domain": true}',
        '{"domain": "a", "domain": "b"}',
        '{"hitsAddend": 1, "hits_addend": 1}',
        '{"unknown": 1}',
        '{"Domain": "api"}',
        '{"hits_Addend": 1}',
        '{"domain": "\\ud800"}',
        '{"domain": "a\nb"}',
        '{"hitsAddend": -1}',
        '{"hitsAddend": 4294967296}',
        '{"hitsAddend": 1.5}',
        '{"hitsAddend": true}',
        '{"hitsAddend": ""}',
        '{"hitsAddend": " 5"}',
        '{"hitsAddend": "5 "}',
        '{"hitsAddend": "0x5"}',
        '{"hitsAddend": "1_0"}',
        '{"hitsAddend": NaN}',
        '{"hitsAddend": Infinity}',
        '{"hitsAddend": "-NaN"}',
        '{"hitsAddend": 1e999999999}',
        '{"hitsAddend": 1e99999999999999999999}',
        '{"hitsAddend": ' + "9" * 5_000 + "}",
        '{"descriptors": {}}',
        '{"descriptors": [null]}',
        '{"descriptors": [[]]}',
        '{"descriptors": [{"entries": [null]}]}',
        '{"descriptors": [{"entries": {}}]}',
        '{"descriptors": [{"entries": [{"key": "a", "value": 5}]}]}',
        '{"descriptors": [{"limit": {"unit": "FORTNIGHT"}}]}',
        '{"descriptors": [{"limit": {"unit": "hour"}}]}',
        '{"descriptors": [{"limit": {"unit": 1.5}}]}',
        '{"descriptors": [{"limit": []}]}',
        '{"descriptors": [{"hitsAddend": {"value": 5}}]}',
        '{"descriptors": [{"hitsAddend": 18446744073709551616}]}',
        '{"descriptors": [{"isNegativeHits": "true"}]}',
        '{"descriptors": [{"isNegativeHits": 1}]}',
        "[" * 100_000,
        '{"descriptors": ' + "[" * 100_000,
    ],
)
def test_an_error_is_told(text: str) -> None:
    assert ours(text) is None
    service = Service(gate_of(USER))
    answer = rls_json.respond(service, text.encode("utf-8", "surrogatepass"))
    assert isinstance(answer, tuple)
    status, body = answer
    assert status == 400
    assert json.loads(body)["message"]


def test_not_utf_8() -> None:
    with pytest.raises(GrpcError, match="not JSON"):
        rls_json.read_request(b'{"domain": "\xff"}')


def test_where_it_is_wrong() -> None:
    with pytest.raises(GrpcError, match=r"^descriptors\[1\].entries\[0\].key is a text$"):
        rls_json.read_request(b'{"descriptors": [{}, {"entries": [{"key": 1}]}]}')


def test_a_request_is_bounded() -> None:
    most = {"descriptors": [{}] * 1_000}
    assert len(rls_json.read_request(json.dumps(most).encode()).descriptors) == 1_000
    most["descriptors"].append({})
    with pytest.raises(GrpcError, match="1000"):
        rls_json.read_request(json.dumps(most).encode())


NUMBERS = st.one_of(
    st.integers(-1, 2**65), st.floats(0, 10), st.integers(0, 9).map(str), st.none(), st.booleans()
)
UNITS = st.sampled_from(["SECOND", "WEEK", "NONE", 0, 3, 8, None])
LIMITS = st.fixed_dictionaries({}, optional={"requestsPerUnit": NUMBERS, "unit": UNITS})
TEXTS = st.one_of(st.text(max_size=3), st.none(), st.integers(0, 1))
DESCRIPTORS = st.fixed_dictionaries(
    {},
    optional={
        "entries": st.lists(
            st.fixed_dictionaries({}, optional={"key": TEXTS, "value": TEXTS}), max_size=2
        ),
        "limit": st.one_of(LIMITS, st.none()),
        "hitsAddend": NUMBERS,
        "is_negative_hits": st.one_of(st.booleans(), st.none()),
    },
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "domain": TEXTS,
        "descriptors": st.lists(DESCRIPTORS, max_size=2),
        "hits_addend": NUMBERS,
        "more": st.just(1),
    },
)


@given(MESSAGES)
def test_reads_anything_as_protobuf_does(message: dict[str, Any]) -> None:
    text = json.dumps(message)
    assert ours(text) == theirs(text)


def test_an_answer() -> None:
    service = Service(gate_of(USER), headers=True)
    body = json.dumps(ask("user=1", "ip=1", hits=3)).encode()
    first, second = rls_json.respond(service, body), rls_json.respond(service, body)
    assert isinstance(first, tuple)
    assert isinstance(second, tuple)
    assert first[0] == 200
    assert json.loads(first[1]) == {
        "overallCode": "OK",
        "statuses": [
            {
                "code": "OK",
                "currentLimit": {"requestsPerUnit": 3, "unit": "MINUTE"},
                "durationUntilReset": "60s",
            },
            {"code": "OK"},
        ],
        "responseHeadersToAdd": [
            {"key": "RateLimit-Limit", "value": "3"},
            {"key": "RateLimit-Remaining", "value": "0"},
            {"key": "RateLimit-Reset", "value": "60"},
        ],
    }
    assert second[0] == 429


async def test_with_a_store_that_waits() -> None:
    store = Slow()
    service = Service(gate_of(USER, store=store))
    body = json.dumps(ask("user=1")).encode()
    status, answer = await rls_json.respond(service, body)  # type: ignore[misc]
    assert (status, json.loads(answer)["overallCode"]) == (200, "OK")
    store.broken = True
    status, answer = await rls_json.respond(service, body)  # type: ignore[misc]
    assert (status, json.loads(answer)["message"]) == (
        400,
        "the limits cannot be checked now: the store failed",
    )
