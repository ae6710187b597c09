"""Rules over gRPC: what they can be counted by, and what a client is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from integrations.grpc.kit import SERVICE, Bench, eventually
from integrations.grpc.test_refusals import details_of
from penstock import AsyncGate, Gate


def gate_of(bench: Bench, rules: Any) -> Gate:
    made = AsyncGate if bench.asynchronous else Gate
    return made.from_rules(rules, store=bench.store)


def one(key: str, **more: Any) -> dict[str, Any]:
    return {"domain": "shop", "descriptors": [{"key": key, **more}]}


def test_rules_from_a_file(bench: Bench, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("domain: shop\ndescriptors: [{key: remote_address, limits: 1/minute}]\n")
    client = bench.limited(gate=path)
    assert [client.call(kind).passed for _ in range(2)] == [True, False]


def test_a_file_that_is_watched(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("domain: shop\ndescriptors: [{key: remote_address, limits: 1/minute}]\n")
    interceptor = bench.interceptor(gate=path, store=bench.store, watch=True)
    try:
        client = bench.connect(bench.serve(interceptor))
        assert [client.call().passed for _ in range(2)] == [True, False]
        path.write_text("domain: shop\ndescriptors: [{key: metadata:who, limits: 9/minute}]\n")
        eventually(lambda: client.call().passed)
    finally:
        interceptor.close()


def test_a_rule_by_method_and_metadata(bench: Bench) -> None:
    rule = {"key": "metadata:x-api-key", "limits": [{"name": "per key", "limit": "1/minute"}]}
    rules = one("method", value="/test.Echo/unary_stream", descriptors=[rule])
    client = bench.limited(gate=gate_of(bench, rules))

    def ask(kind: str, key: str) -> Any:
        return client.call(kind, metadata=(("x-api-key", key),))

    assert [ask("unary_stream", key).passed for key in "aabb"] == [True, False, True, False]
    assert [ask("unary_unary", "a").passed for _ in range(3)] == [True] * 3
    assert [client.call("unary_stream").passed for _ in range(3)] == [True] * 3, "no such metadata"
    refused = ask("unary_stream", "a")
    assert refused.trailing["ratelimit"] == '"per key";r=0;t=60'
    (violation,) = details_of(refused)["QuotaFailure"].violations
    assert (violation.subject, violation.description) == ("per key", "limit of 1/minute")


def test_a_refusal_names_the_rule(bench: Bench) -> None:
    client = bench.limited(gate=gate_of(bench, one("service", limits="1/minute")))
    client.call()
    (violation,) = details_of(client.call())["QuotaFailure"].violations
    assert violation.subject == "shop/service 1/minute"


def test_all_limits_pass_or_nothing_is_taken(bench: Bench) -> None:
    rules = {
        "domain": "shop",
        "descriptors": [
            {"key": "remote_address", "limits": "2/minute"},
            {"key": "tenant", "limits": "1/hour"},
        ],
    }
    tenant = bench.function(lambda call: call.text("tenant"))
    client = bench.limited(gate=gate_of(bench, rules), dimensions={"tenant": tenant})
    passed = [client.call(metadata=(("tenant", tenant),)).passed for tenant in ("a", "a", "b", "c")]
    assert passed == [True, False, True, False]


def test_whoever_is_on_a_deny_list(bench: Bench, kind: str) -> None:
    gate = gate_of(bench, one("remote_address", limits="9/minute"))
    client = bench.limited(gate=gate)
    gate.switches.deny("remote_address", "127.0.0.0/8")
    denied = client.call(kind)
    assert denied.code is grpc.StatusCode.PERMISSION_DENIED
    assert bench.script.runs == 0
    gate.switches.clear_list("deny", "remote_address", "127.0.0.0/8")
    assert client.call(kind).passed


def test_deny_lists_apply_to_exempt_calls(bench: Bench, kind: str) -> None:
    gate = gate_of(bench, one("service", limits="1/minute"))
    by_function = bench.function(lambda call: True)
    for exempt in ([SERVICE], by_function):
        client = bench.limited(gate=gate, exempt=exempt)
        assert [client.call(kind).passed for _ in range(3)] == [True] * 3
        gate.switches.deny("remote_address", "127.0.0.0/8")
        assert client.call(kind).code is grpc.StatusCode.PERMISSION_DENIED
        gate.switches.clear_list("deny", "remote_address", "127.0.0.0/8")
        assert client.call(kind).passed


def test_an_ipv6_address_counts_with_its_network(bench: Bench) -> None:
    gate = gate_of(bench, one("remote_address", limits="1/minute"))
    client = bench.limited(gate=gate, trusted=["127.0.0.0/8"])
    passed = [
        client.call(metadata=(("x-forwarded-for", address),)).passed
        for address in ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "1.2.3.4", "1.2.3.5")
    ]
    assert passed == [True, False, True, True, True]


def test_a_cost_and_what_is_given_back(bench: Bench) -> None:
    gate = gate_of(bench, one("service", limits="9/minute"))
    client = bench.limited(
        gate=gate, cost=4, count_when=lambda status: status.code is not grpc.StatusCode.OK
    )
    told = [client.call().trailing["ratelimit"] for _ in range(3)]
    assert told == ['"shop/service 9/minute";r=5;t=27'] * 3
    bench.script.steps = [("abort", grpc.StatusCode.NOT_FOUND, "?")]
    assert client.call().trailing["ratelimit"] == '"shop/service 9/minute";r=5;t=27'
    assert client.call().trailing["ratelimit"] == '"shop/service 9/minute";r=1;t=54'


def test_rules_that_change_while_calls_come_in(bench: Bench) -> None:
    gate = gate_of(bench, one("service", limits="1/minute"))
    client = bench.limited(gate=gate)
    assert [client.call().passed for _ in range(2)] == [True, False]
    gate.replace(one("metadata:who", limits="1/minute"))
    passed = [client.call(metadata=(("who", who),)).passed for who in "aab"]
    assert passed == [True, False, True]


def test_one_of_several_domains(bench: Bench, tmp_path: Path) -> None:
    for name, amount in (("shop", 1), ("bank", 2)):
        rule = f"domain: {name}\ndescriptors: [{{key: service, limits: {amount}/minute}}]\n"
        (tmp_path / f"{name}.yaml").write_text(rule)
    client = bench.limited(gate=tmp_path, domain="bank")
    assert [client.call().passed for _ in range(3)] == [True, True, False]
