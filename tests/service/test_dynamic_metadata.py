"""Dynamic metadata: the request, and the metadata of the rules that passed."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from typing import Any

import pytest

from penstock.service import dynamic_metadata, rls_json
from penstock.service.grpc_status import GrpcError
from penstock.service.rls_general import Response
from penstock.service.rls_request import read_request
from penstock.service.service import Service
from service.rls_messages import decode, decode_json, encode
from service.service_kit import Slow, at_once, gate_of

RULES = """
domain: api
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 1}
    metadata: {tier: gold, route: {to: a, weight: 1.5}, tags: [x, 1, true, null]}
  - key: ip
    rate_limit: {unit: minute, requests_per_unit: 2}
    metadata: {tier: other, route: {to: b, zone: eu}}
  - key: open
    rate_limit: {unlimited: true}
    metadata: {open: "yes"}
  - key: tried
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
    metadata: {tried: 1.0}
  - {key: first, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1},
     metadata: {first: left}}
  - {key: second, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 5},
     metadata: {second: left}}
"""


def request(*pairs: str, **more: Any) -> dict[str, Any]:
    descriptors = [
        {"entries": [dict(zip(("key", "value"), pair.split("="), strict=True))]} for pair in pairs
    ]
    return {"domain": "api", "descriptors": descriptors, **more}


def service_of(**options: Any) -> Service:
    return Service(gate_of(RULES), dynamic_metadata=True, **options)


def asked(service: Service, message: dict[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] = decode(at_once(service.message_handler(encode(message))))[
        "dynamic_metadata"
    ]
    return metadata


def test_what_was_asked() -> None:
    message = request("user=1", "none=2", hits_addend=1)
    message["descriptors"][1]["hits_addend"] = "3"
    message["descriptors"][1]["limit"] = {"requests_per_unit": 7, "unit": "HOUR"}
    metadata = asked(service_of(), message)
    assert metadata["domain"] == "api"
    assert metadata["hitsAddend"] == 1
    assert metadata["descriptors"] == [
        {"entries": ["user=1"]},
        {"entries": ["none=2"], "limit": "requests_per_unit:7 unit:HOUR", "hitsAddend": 3.0},
    ]


def test_metadata_of_several_rules_is_merged_and_the_first_decides() -> None:
    assert asked(service_of(), request("user=1", "ip=1"))["metadata"] == {
        "tier": "gold",
        "route": {"to": "a", "weight": 1.5, "zone": "eu"},
        "tags": ["x", 1.0, True, None],
    }


def test_only_of_rules_that_are_not_over() -> None:
    service = service_of()
    message = request("user=1", "ip=1")
    asked(service, message)
    assert asked(service, message)["metadata"] == {
        "tier": "other",
        "route": {"to": "b", "zone": "eu"},
    }
    assert "metadata" not in asked(service, request("user=1"))


@pytest.mark.parametrize("pair", ["open=1", "none=1"])
def test_rules_without_a_limit_have_none(pair: str) -> None:
    assert "metadata" not in asked(service_of(), request(pair))


def test_in_shadow_and_in_quota_mode() -> None:
    service = service_of()
    shadow, quotas = request("tried=1"), request("first=1", "second=1")
    assert [asked(service, shadow)["metadata"] for _ in range(2)] == [{"tried": 1.0}] * 2
    assert asked(service, quotas)["metadata"] == {"first": "left", "second": "left"}
    assert asked(service, quotas)["metadata"] == {"second": "left"}


def test_a_plain_service_has_none_and_answers_the_same_otherwise() -> None:
    message = encode(request("user=1", "ip=1"))
    plain = Service(gate_of(RULES), headers=True)
    assert plain.message_handler == plain.rate_limit
    with_metadata = service_of(headers=True)
    for _ in range(3):
        expected = decode(at_once(plain.message_handler(message)))
        answer = decode(at_once(with_metadata.message_handler(message)))
        assert answer.pop("dynamic_metadata")
        assert answer == expected


def test_what_is_kept_follows_decisions_and_rules() -> None:
    """A message that comes again is decided by a plan; the general path says the same."""
    service, general = service_of(), service_of()
    messages = [encode(request("user=1", "ip=1")), encode(request("ip=1", "none=1"))]
    changed = RULES.replace("gold", "silver")
    for rules in (RULES, RULES, changed):
        for each in (service, general):
            each.gate.replace(rules)
        for message in messages * 4:
            answer = general.answer(read_request(message))
            assert isinstance(answer, Response)
            assert at_once(service.message_handler(message)) == answer.wire()
    assert b"silver" in at_once(service.message_handler(encode(request("user=2"))))


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_metadata, "MOST_PLANS", 10)
    service = service_of()
    for number in range(100):
        asked(service, request(f"user={number}"))
    asked(service, request("user=" + "x" * 1000))
    assert 0 < len(service._metadata._kept) <= 10


def test_json_has_the_same_metadata() -> None:
    message = request("user=1", "ip=1")
    answer = rls_json.respond(service_of(), json.dumps(message).encode())
    assert isinstance(answer, tuple)
    assert decode_json(answer[1])["dynamic_metadata"] == asked(service_of(), message)


async def test_with_a_store_that_waits() -> None:
    gate = gate_of(RULES, store=Slow())
    reply = Service(gate, dynamic_metadata=True).message_handler(encode(request("tried=1")))
    assert isinstance(reply, Awaitable)
    assert decode(await reply)["dynamic_metadata"]["metadata"] == {"tried": 1.0}


@pytest.mark.parametrize("value", [10**400, float("inf"), float("nan"), "\ud800"])
def test_values_that_a_message_cannot_hold_are_texts(value: Any) -> None:
    rules = {
        "domain": "api",
        "descriptors": [{"key": "user", "limits": "1/hour", "metadata": {"odd": value}}],
    }
    service = Service(gate_of(rules), dynamic_metadata=True)  # type: ignore[arg-type]
    (text,) = asked(service, request("user=1"))["metadata"].values()
    assert isinstance(text, str)


def test_a_broken_message_is_an_error_as_without_metadata() -> None:
    for message in (b"\xff", b""):
        errors = []
        for service in (service_of(), Service(gate_of(RULES))):
            with pytest.raises(GrpcError) as caught:
                service.message_handler(message)
            errors.append((caught.value.code, str(caught.value)))
        assert errors[0] == errors[1]
