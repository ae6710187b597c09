"""grpc.reflection.v1 (and v1alpha): lets tools such as grpcurl list and describe the services.

A stream: each response repeats its request. A request that cannot be answered gets an error
response, and the stream continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.service.grpc_status import INVALID_ARGUMENT, NOT_FOUND, GrpcError
from penstock.wires.grpc.descriptors import FILES, IMPORTS, SYMBOLS
from penstock.wires.grpc.methods import Methods, Unary
from penstock.wires.grpc.protobuf_fields import Fields, delimited, read_fields, text_of, varint

VERSIONS = ("v1", "v1alpha")
_REQUEST = "ServerReflectionRequest"

# The fields of a request by number, and of the response.
BY_FILENAME, CONTAINING_SYMBOL, CONTAINING_EXTENSION, EXTENSION_NUMBERS, LIST_SERVICES = range(3, 8)
FILE_DESCRIPTORS, EXTENSIONS, SERVICES, ERROR = range(4, 8)


def reflection_methods(services: Iterable[str]) -> Methods:
    """The methods of the service. ``services`` are the full names of all services."""
    reflection = [f"grpc.reflection.{version}.ServerReflection" for version in VERSIONS]
    names = sorted({*services, *reflection})
    unknown = [name for name in names if name not in SYMBOLS]
    if unknown:
        raise ValueError(f"there is no descriptor of {', '.join(unknown)}: add it to tools/protos")
    answer = answering(names)
    return Methods(each={f"/{name}/ServerReflectionInfo": answer for name in reflection})


def answering(names: list[str]) -> Unary:
    """The function that answers each request of a stream."""
    listed = b"".join([delimited(1, delimited(1, name.encode())) for name in names])

    def answer(message: bytes) -> bytes:
        fields = read_fields(message, _REQUEST)
        try:
            reply = reply_to(fields, listed)
        except GrpcError as error:
            text = error.message.encode("utf-8", "replace")
            reply = delimited(ERROR, b"\x08" + varint(error.code) + delimited(2, text))
        host = text_of(fields, 1, _REQUEST).encode()
        return (delimited(1, host) if host else b"") + delimited(2, message) + reply

    return answer


def reply_to(fields: Fields, listed: bytes) -> bytes:
    queries = [number for number in fields if BY_FILENAME <= number <= LIST_SERVICES]
    if not queries:
        raise GrpcError(INVALID_ARGUMENT, "the request has no known field")
    number = queries[-1]  # a oneof: the last one counts
    if number == LIST_SERVICES:
        return delimited(SERVICES, listed)
    return _FINDERS[number](fields)


def by_filename(fields: Fields) -> bytes:
    name = text_of(fields, BY_FILENAME, _REQUEST)
    if name not in FILES:
        raise GrpcError(NOT_FOUND, f"no such file: {name!r:.200}")
    return with_imports(name)


def containing_symbol(fields: Fields) -> bytes:
    symbol = text_of(fields, CONTAINING_SYMBOL, _REQUEST)
    owner = symbol
    while owner and owner not in SYMBOLS:  # a field or a value is found by its parent
        owner = owner.rpartition(".")[0]
    if not owner:
        raise GrpcError(NOT_FOUND, f"no such symbol: {symbol!r:.200}")
    return with_imports(SYMBOLS[owner])


def containing_extension(fields: Fields) -> bytes:
    raise GrpcError(NOT_FOUND, "there are no extensions")


def extension_numbers(fields: Fields) -> bytes:
    name = text_of(fields, EXTENSION_NUMBERS, _REQUEST)
    if name not in SYMBOLS:
        raise GrpcError(NOT_FOUND, f"no such type: {name!r:.200}")
    return delimited(EXTENSIONS, delimited(1, name.encode()))


_FINDERS: dict[int, Callable[[Fields], bytes]] = {
    BY_FILENAME: by_filename,
    CONTAINING_SYMBOL: containing_symbol,
    CONTAINING_EXTENSION: containing_extension,
    EXTENSION_NUMBERS: extension_numbers,
}


def with_imports(name: str) -> bytes:
    """A file and all of its imports, itself first, so that clients need not ask again."""
    names = [name]
    for each in names:
        names += [other for other in IMPORTS[each] if other not in names]
    return delimited(FILE_DESCRIPTORS, b"".join([delimited(1, FILES[each]) for each in names]))
