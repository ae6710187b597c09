"""A real Envoy gets dynamic metadata from Penstock, over both wires; all rules as quotas."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from penstock.wires.grpc import h2
from running.e2e.conftest import Start
from running.e2e.gateways import EnvoyConfig
from running.e2e.running import ask, reserved_port

RULES = """
domain: edge
descriptors:
  - key: user
    limits: 2/hour
    metadata: {route: {to: blue}}
"""
NAMESPACE = "envoy.filters.http.ratelimit"


@pytest.mark.parametrize("wire", ["nghttp2", "grpcio"])
def test_filters_after_it_see_the_metadata_of_rules(
    wire: str, penstock_service: Start, app: int
) -> None:
    if wire == "nghttp2" and not h2.available():
        pytest.skip("the nghttp2 extension was not built")
    service = penstock_service(RULES, "--wire", wire, "--response-dynamic-metadata")
    actions = [{"request_headers": {"header_name": "x-user", "descriptor_key": "user"}}]
    with ExitStack() as stack:
        admin, port = (stack.enter_context(reserved_port()) for _ in range(2))
        config = EnvoyConfig(app, admin)
        config.listen(port, service.grpc, rate_limits=[{"actions": actions}])
        (listener,) = config.config["static_resources"]["listeners"]
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        (host,) = manager["route_config"]["virtual_hosts"]
        host["response_headers_to_add"] = [
            {"header": {"key": key, "value": f"%DYNAMIC_METADATA({NAMESPACE}:{path})%"}}
            for key, path in (("x-to", "metadata:route:to"), ("x-domain", "domain"))
        ]
        stack.callback(config.start().end)
        answers = [ask(f"127.0.0.1:{port}", x_user="42") for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert [answer.headers["x-to"] for answer in answers[:2]] == ["blue"] * 2
    assert {answer.headers["x-domain"] for answer in answers} == {"edge"}
    assert "blue" not in str(answers[2].headers["x-to"])


def test_every_rule_as_a_quota(penstock_service: Start) -> None:
    rules = "domain: d\ndescriptors: [{key: a, limits: 1/hour}, {key: b, limits: 2/hour}]"
    service = penstock_service(rules, "--quota-mode")
    descriptors = b'{"descriptors": [{"a": "1"}, {"b": "1"}]}'
    found = [ask(service.http, "/v1/check", "POST", descriptors).status for _ in range(3)]
    assert found == [200, 200, 429]
