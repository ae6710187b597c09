"""The short way and the general one come to the same bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.rules.deciding.plan import Plan
from penstock.service.grpc_status import GrpcError
from penstock.service.rls_general import Response
from penstock.service.rls_request import read_request
from penstock.service.service import Service
from penstock.testing import FakeClock
from service.rls_case import ask, descriptor
from service.rls_cases import Message
from service.rls_messages import encode
from service.service_kit import USER, gate_of

RULES = [
    """
domain: api
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 4, name: per-user}}
  - {key: ip, limits: [5/minute fixed_window, 3/10s, 7/hour sliding_window]}
  - {key: job, cost: 2, limits: 6/minute burst 3}
  - {key: plan, descriptors: [{key: user, limits: 2/30s}]}
  - {key: path, value: "/a*", rate_limit: {unit: second, requests_per_unit: 2}}
  - {key: path, limits: 1/hour, allow: [/b], deny: [/c]}
""",
    """
domain: api
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: ip, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: job, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: plan, rate_limit: {unlimited: true}, descriptors: [{key: user, limits: 1/day}]}
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 0}}
""",
    """
domain: api
deny: {user: [c]}
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: ip, limits: 9/minute lockout 1m}
  - {key: job, limits: 3/minute soft 2 for 30s}
""",
    """
domain: api
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 4, name: per-user}}
  - {key: ip, limits: 5/minute fixed_window, rate_limit: {unit: second, requests_per_unit: 3}}
  - {key: job, rate_limit: {unit: hour, requests_per_unit: 2, replaces: [{name: per-user}]}}
  - {key: path, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 3}}
""",
    """
domain: api
defaults: {algorithm: token_bucket}
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 4}}
  - {key: ip, rate_limit: {unit: second, requests_per_unit: 2}}
  - {key: job, limits: 3/minute}
""",
]
PAIRS = st.sampled_from(
    [
        "user=a",
        "user=b",
        "user=c",
        "ip=a",
        "ip=b",
        "job=a",
        "plan=x",
        "path=/a",
        "path=/b",
        "=",
        "z=z",
    ]
)


@st.composite
def descriptors(draw: Any) -> Message:
    more: Message = {}
    if draw(st.integers(0, 7)) == 0:
        more["hits"] = draw(st.integers(0, 4))
    if draw(st.integers(0, 11)) == 0:
        more["negative"] = True
    if draw(st.integers(0, 9)) == 0:
        more["limit"] = (
            draw(st.integers(0, 3)),
            draw(st.sampled_from(["SECOND", "HOUR", "UNKNOWN"])),
        )
    several = st.one_of(PAIRS.map(lambda pair: [pair]), st.lists(PAIRS, max_size=2))
    return descriptor(*draw(several), **more)


REQUESTS = st.builds(
    lambda several, domain, hits: encode(ask(*several, domain=domain, hits=hits)),
    st.lists(descriptors(), max_size=3),
    st.sampled_from(["api"] * 6 + ["", "other"]),
    st.sampled_from([None, None, 0, 1, 2, 3]),
)


@settings(max_examples=settings.default.max_examples * 2)
@given(
    st.sampled_from(RULES),
    st.lists(REQUESTS, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20_000)), max_size=20),
    st.booleans(),
)
def test_both_ways_come_to_the_same_bytes(
    rules: str, messages: list[bytes], turns: list[tuple[int, int]], headers: bool
) -> None:
    clocks = FakeClock(), FakeClock()
    short, long = (Service(gate_of(rules, c), clock=c, headers=headers) for c in clocks)
    for which, milliseconds in turns:
        message = messages[which % len(messages)]
        answers: list[object] = []
        for clock, each in zip(clocks, (short.rate_limit, general(long)), strict=True):
            clock.advance_ns(milliseconds * 1_000_000)
            try:
                answers.append(each(message))
            except GrpcError as error:
                answers.append((error.code, error.message))
        assert answers[0] == answers[1]


def general(service: Service) -> Any:
    def answer(message: bytes) -> bytes:
        response = service.answer(read_request(message))
        assert isinstance(response, Response)
        return response.wire()

    return answer


def test_the_short_way_is_taken() -> None:
    service = Service(gate_of(RULES[0]))
    single = service._plans.plan(encode(ask("user=a")))
    assert isinstance(single, Plan)
    assert single.single
    several = service._plans.plan(encode(ask("job=a", "ip=a", "z=z", hits=2)))
    assert isinstance(several, Plan)
    assert [cost for _, _, cost in several.items] == [4, 2, 2, 2]
    one_hit = service._plans.plan(encode(ask("user=a", "ip=a", hits=1)))
    assert isinstance(one_hit, Plan)


@pytest.mark.parametrize(
    "request_",
    [
        ask(descriptor("user=a", hits=1)),
        ask(descriptor("user=a", negative=True)),
        ask(descriptor("user=a", limit=(1, "HOUR"))),
        ask("user=a", "user=a"),
        ask("user=a", hits=2),
        ask("user=a", domain="other"),
    ],
)
def test_the_short_way_is_not_taken(request_: Message) -> None:
    assert not isinstance(Service(gate_of(USER))._plans.plan(encode(request_)), Plan)
