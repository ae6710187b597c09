"""Envoy's messages for tests: made by protobuf itself, from the descriptors that we serve.

They live in a pool of their own, beside whatever else of Envoy's is installed.
"""

from __future__ import annotations

import json
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from penstock.wires.grpc.descriptors import FILES, IMPORTS


def make_pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(name: str) -> None:
        if name not in added:
            added.add(name)
            for other in IMPORTS[name]:
                add(other)
            pool.Add(descriptor_pb2.FileDescriptorProto.FromString(FILES[name]))

    for name in FILES:
        add(name)
    return pool


POOL = make_pool()


def message_class(name: str) -> Any:
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(name))


RateLimitRequest = message_class("envoy.service.ratelimit.v3.RateLimitRequest")
RateLimitResponse = message_class("envoy.service.ratelimit.v3.RateLimitResponse")


def encode(request: dict[str, Any]) -> bytes:
    """A request as the wire has it, from a dict with the names of the .proto file."""
    data: bytes = json_format.ParseDict(request, RateLimitRequest()).SerializeToString()
    return data


def decode(response: bytes) -> dict[str, Any]:
    """A response as a dict, without what has its default value."""
    message = RateLimitResponse.FromString(response)
    fields: dict[str, Any] = json_format.MessageToDict(
        message, preserving_proto_field_name=True, descriptor_pool=POOL
    )
    return fields


def decode_json(response: bytes) -> dict[str, Any]:
    """The same of an answer in JSON, which must be one that protobuf understands."""
    message = json_format.Parse(response, RateLimitResponse())
    assert json.loads(response) == json_format.MessageToDict(message, descriptor_pool=POOL)
    return decode(message.SerializeToString())
