"""grpc.reflection: what tools are told of the services."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import (
    descriptor_pb2,
    duration_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

from penstock.service.grpc_status import INVALID_ARGUMENT, NOT_FOUND, GrpcError
from penstock.wires.grpc.descriptors import FILES, IMPORTS, SYMBOLS
from penstock.wires.grpc.reflection import reflection_methods
from service.rls_messages import POOL, message_class

SERVICES = ("envoy.service.ratelimit.v3.RateLimitService", "grpc.health.v1.Health")


@pytest.fixture(params=["v1", "v1alpha"])
def reflect(request: pytest.FixtureRequest) -> Any:
    package = f"grpc.reflection.{request.param}"
    Request = message_class(f"{package}.ServerReflectionRequest")
    Response = message_class(f"{package}.ServerReflectionResponse")
    answer = reflection_methods(SERVICES).each[f"/{package}.ServerReflection/ServerReflectionInfo"]

    def ask(**asked: Any) -> Any:
        wanted = Request(**asked)
        found = answer(wanted.SerializeToString())
        assert isinstance(found, bytes)
        told = Response.FromString(found)
        assert told.original_request == wanted
        assert told.valid_host == wanted.host
        return told

    return ask


def test_lists_services(reflect: Any) -> None:
    listed = [
        each.name for each in reflect(list_services="", host="h").list_services_response.service
    ]
    assert listed == [
        *SERVICES,
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ]


def files(told: Any) -> list[Any]:
    found = told.file_descriptor_response.file_descriptor_proto
    return [descriptor_pb2.FileDescriptorProto.FromString(each) for each in found]


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("envoy.service.ratelimit.v3.RateLimitService", "envoy/service/ratelimit/v3/rls.proto"),
        (
            "envoy.service.ratelimit.v3.RateLimitService.ShouldRateLimit",
            "envoy/service/ratelimit/v3/rls.proto",
        ),
        (
            "envoy.service.ratelimit.v3.RateLimitResponse.Code",
            "envoy/service/ratelimit/v3/rls.proto",
        ),
        ("grpc.health.v1.HealthCheckRequest.service", "grpc/health/v1/health.proto"),
        ("google.protobuf.Struct.FieldsEntry", "google/protobuf/struct.proto"),
    ],
)
def test_finds_files_by_symbol_and_by_name(reflect: Any, symbol: str, name: str) -> None:
    by_symbol = files(reflect(file_containing_symbol=symbol))
    assert by_symbol == files(reflect(file_by_filename=name))
    assert by_symbol[0].name == name
    # All that it needs is there, each once.
    names = [file.name for file in by_symbol]
    assert len(set(names)) == len(names), names
    assert {needed for file in by_symbol for needed in file.dependency} <= set(names)


def test_what_is_not_there(reflect: Any) -> None:
    for asked in (
        {"file_by_filename": "x.proto"},
        {"file_containing_symbol": "a.b.C"},
        {"file_containing_symbol": ""},
        {"file_containing_extension": {"containing_type": "a.B", "extension_number": 1}},
        {"all_extension_numbers_of_type": "a.B"},
    ):
        assert reflect(**asked).error_response.error_code == NOT_FOUND
    assert reflect().error_response.error_code == INVALID_ARGUMENT


def test_extensions(reflect: Any) -> None:
    name = "google.protobuf.Duration"
    told = reflect(all_extension_numbers_of_type=name).all_extension_numbers_response
    assert (told.base_type_name, list(told.extension_number)) == (name, [])


def test_the_last_question_counts() -> None:
    answer = reflection_methods(SERVICES).each[
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    ]
    Response = message_class("grpc.reflection.v1.ServerReflectionResponse")
    found = answer(b"\x1a\x01a" + b"\x3a\x00" + b"\x1a\x01b")
    assert isinstance(found, bytes)
    assert "'b'" in Response.FromString(found).error_response.error_message


@pytest.mark.parametrize("message", [b"\x1a", b"\x1a\x05a", b"\x00\x00", b"\x1b"])
def test_no_request(message: bytes) -> None:
    for answer in reflection_methods(SERVICES).each.values():
        with pytest.raises(GrpcError) as caught:
            answer(message)
        assert caught.value.code == INVALID_ARGUMENT


def test_not_utf_8() -> None:
    for answer in reflection_methods(SERVICES).each.values():
        found = answer(b"\x1a\x01\xff")
        assert isinstance(found, bytes)
        assert b"not a valid ServerReflectionRequest" in found


def test_a_service_without_a_descriptor() -> None:
    with pytest.raises(ValueError, match=r"no descriptor of a\.B"):
        reflection_methods(["a.B"])


# What is handed out ------------------------------------------------------------------------


def test_descriptors_are_what_the_proto_files_say() -> None:
    path = Path(__file__).parents[3] / "tools/descriptors.py"
    spec = importlib.util.spec_from_file_location("make_descriptors", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.TARGET.read_bytes() == made.compiled(), "run python tools/descriptors.py"


def test_symbols_are_in_their_files() -> None:
    assert set(SYMBOLS.values()) == set(FILES) == set(IMPORTS)
    methods = set()
    for name in FILES:
        for service in POOL.FindFileByName(name).services_by_name.values():
            methods |= {method.full_name for method in service.methods}
    assert methods <= set(SYMBOLS)
    for symbol in SYMBOLS.keys() - methods:
        assert POOL.FindFileContainingSymbol(symbol).name == SYMBOLS[symbol]


@pytest.mark.parametrize("known", [duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2])
def test_well_known_types_are_the_known_ones(known: Any) -> None:
    alike(known.DESCRIPTOR, same_fields=True)


def test_envoys_types_are_the_published_ones() -> None:
    rls = pytest.importorskip("envoy.service.ratelimit.v3.rls_pb2")
    descriptor = pytest.importorskip("envoy.extensions.common.ratelimit.v3.ratelimit_pb2")
    unit = pytest.importorskip("envoy.type.v3.ratelimit_unit_pb2")
    for each in (rls, descriptor, unit):
        alike(each.DESCRIPTOR, same_fields=each is not descriptor)


def test_envoys_types_of_quotas_are_the_published_ones() -> None:
    rlqs = pytest.importorskip("envoy.service.rate_limit_quota.v3.rlqs_pb2")
    strategy = pytest.importorskip("envoy.type.v3.ratelimit_strategy_pb2")
    bucket = pytest.importorskip("envoy.type.v3.token_bucket_pb2")
    for each in (rlqs, strategy, bucket):
        alike(each.DESCRIPTOR, same_fields=True)


def alike(published: Any, same_fields: bool) -> None:
    """That ours of the same file says the same of all that it has."""
    theirs, ours = descriptor_pb2.FileDescriptorProto(), descriptor_pb2.FileDescriptorProto()
    published.CopyToProto(theirs)
    ours.ParseFromString(FILES[theirs.name])
    by_name = {message.name: message for message in theirs.message_type}
    for message in ours.message_type:
        same_message(message, by_name[message.name], same_fields)
    enums = {enum.name: values(enum) for enum in theirs.enum_type}
    for enum in ours.enum_type:
        # Which came last, and not everywhere.
        assert {"WEEK": 7, **enums[enum.name]} == {"WEEK": 7, **values(enum)}
    assert [plain(each) for each in ours.service] == [plain(each) for each in theirs.service]


def same_message(ours: Any, theirs: Any, same_fields: bool) -> None:
    their_fields = {field.name: plain(field) for field in theirs.field}
    our_fields = {field.name: plain(field) for field in ours.field}
    newer = our_fields.keys() - their_fields.keys()
    assert newer <= (set() if same_fields else {"is_negative_hits"})
    assert {name: our_fields[name] for name in their_fields} == their_fields
    assert [each.name for each in ours.oneof_decl] == [each.name for each in theirs.oneof_decl]
    nested = {message.name: message for message in theirs.nested_type}
    for message in ours.nested_type:
        same_message(message, nested[message.name], True)
    assert [values(each) for each in ours.enum_type] == [values(each) for each in theirs.enum_type]


def values(enum: Any) -> dict[str, int]:
    return {value.name: value.number for value in enum.value}


def plain(part: Any) -> str:
    """Without options, comments and JSON names, which not everybody writes down."""
    copy = type(part)()
    copy.CopyFrom(part)
    copy.ClearField("options")
    if copy.DESCRIPTOR.name == "FieldDescriptorProto":
        copy.ClearField("json_name")
    for method in getattr(copy, "method", ()):
        method.ClearField("options")
    return str(copy)
