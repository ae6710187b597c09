"""The table of what Envoy's service answers, without a wire and as JSON."""

from __future__ import annotations

import json

import pytest

from penstock.service import rls_json
from penstock.service.grpc_status import GrpcError
from penstock.service.rls_general import Response
from penstock.service.rls_request import read_request
from penstock.service.service import Service
from service.rls_cases import CASES, Case, Message, make_gate, run
from service.rls_messages import decode, decode_json, encode


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_answers(case: Case) -> None:
    gate, clock = make_gate(case)
    service = Service(gate, clock=clock, headers=case.headers)

    def ask(request: Message) -> Message | int:
        try:
            answer = service.rate_limit(encode(request))
        except GrpcError as error:
            return error.code
        assert isinstance(answer, bytes)
        return decode(answer)

    run(case, clock, ask)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_general_way_answers_alike(case: Case) -> None:
    gate, clock = make_gate(case)
    service = Service(gate, clock=clock, headers=case.headers)

    def ask(request: Message) -> Message | int:
        try:
            answer = service.answer(read_request(encode(request)))
        except GrpcError as error:
            return error.code
        assert isinstance(answer, Response)
        return decode(answer.wire())

    run(case, clock, ask)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_answers_in_json(case: Case) -> None:
    gate, clock = make_gate(case)
    service = Service(gate, clock=clock, headers=case.headers)

    def ask(request: Message) -> Message | int:
        answer = rls_json.respond(service, json.dumps(request).encode(), refunds=True)
        assert isinstance(answer, tuple)
        status, body = answer
        if status == 400:
            code = json.loads(body)["code"]
            assert isinstance(code, int)
            return code
        response = decode_json(body)
        assert status == (429 if response["overall_code"] == "OVER_LIMIT" else 200)
        return response

    run(case, clock, ask)
