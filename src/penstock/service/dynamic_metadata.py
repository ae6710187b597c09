"""Dynamic metadata of a response: what was asked, and the ``metadata`` of the rules that passed.

Envoy's filters after the rate limit filter, and its access log, can use it. The fields are those of
Envoy's own service::

    domain, descriptors: [{entries: ["key=value"], limit, hitsAddend}], hitsAddend
    metadata: that of the rules of all descriptors that are not over their limits

It is a google.protobuf.Struct::

    Struct      1 fields: map entries (1 key, 2 Value)
    Value       1 null  2 number (double)  3 text  4 bool  5 Struct  6 ListValue
    ListValue   1 Values
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping

from penstock.decision import Decision
from penstock.rules.deciding import verdict as reasons
from penstock.rules.deciding.plan import Plan
from penstock.rules.deciding.verdict import Verdict
from penstock.service.envoy_constants import LONGEST_KEPT, MOST_PLANS, UNITS
from penstock.service.rls_request import RateLimitRequest, RequestedDescriptor, read_request
from penstock.service.rls_response import varint_of

Fields = dict[str, object]
# The tag of dynamic_metadata in a RateLimitResponse.
_TAG = b"\x32"
_LARGEST = sys.float_info.max


class KeptMetadata:
    """The metadata of requests that are decided by plans, kept by message like these.

    It depends on the plan and on which of its limits passed, so only the last one is kept.
    """

    def __init__(self) -> None:
        self._kept: dict[bytes, tuple[Plan, tuple[bool, ...], bytes]] = {}

    def of(self, message: bytes, plan: Plan, decisions: list[Decision]) -> bytes:
        """The field of the response, with its tag."""
        passed = tuple([decision.allowed for decision in decisions])
        kept = self._kept.get(message)
        if kept is not None and kept[0] is plan and kept[1] == passed:
            return kept[2]
        metadata = write_metadata(metadata_of(read_request(message), plan.verdict(decisions)))
        if len(message) <= LONGEST_KEPT:
            if len(self._kept) >= MOST_PLANS and message not in self._kept:
                self._kept.clear()
            self._kept[message] = plan, passed, metadata
        return metadata


def metadata_of(request: RateLimitRequest, verdict: Verdict) -> Fields:
    fields: Fields = {
        "domain": request.domain,
        "descriptors": [_descriptor(descriptor) for descriptor in request.descriptors],
    }
    if request.hits:
        fields["hitsAddend"] = request.hits
    metadata: Fields = {}
    for status in verdict.statuses:
        # As in Envoy's service, a limit that is replaced or unlimited is not among those checked.
        checked = status.reason not in (reasons.UNLIMITED, reasons.REPLACED)
        if status.rule is not None and status.allowed and checked:
            _merge(metadata, status.rule.metadata)
    if metadata:
        fields["metadata"] = metadata
    return fields


def _descriptor(descriptor: RequestedDescriptor) -> Fields:
    fields: Fields = {"entries": [f"{key}={value}" for key, value in descriptor.pairs]}
    if descriptor.amount is not None:
        unit = UNITS.get(descriptor.unit, str(descriptor.unit))
        fields["limit"] = f"requests_per_unit:{descriptor.amount} unit:{unit}"
    if descriptor.hits is not None:
        fields["hitsAddend"] = descriptor.hits
    return fields


def _merge(into: Fields, metadata: Mapping[str, object]) -> None:
    """Add what is not there yet: the first descriptor decides. Mappings are merged."""
    for key, value in metadata.items():
        before = into.setdefault(key, {} if isinstance(value, Mapping) else value)
        if isinstance(before, dict) and isinstance(value, Mapping):
            _merge(before, value)


def as_json(value: object) -> object:
    """The same in values that JSON has: as JSON, a Struct is written like any object."""
    if isinstance(value, Mapping):
        return {str(key): as_json(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(inner) for inner in value]
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)) and abs(value) <= _LARGEST:
        return value
    return str(value)  # also a number that a double cannot hold


def write_metadata(fields: Fields) -> bytes:
    """The field of a RateLimitResponse, with its tag."""
    return _TAG + _sized(_struct(fields))


def _struct(fields: Mapping[str, object]) -> bytes:
    entries = [
        b"\x0a" + _sized(str(key).encode("utf-8", "replace")) + b"\x12" + _sized(_value(value))
        for key, value in fields.items()
    ]
    return b"".join([b"\x0a" + _sized(entry) for entry in entries])


def _value(value: object) -> bytes:
    value = as_json(value) if not isinstance(value, (Mapping, list, tuple)) else value
    if value is None:
        return b"\x08\x00"
    if isinstance(value, bool):
        return b"\x20\x01" if value else b"\x20\x00"
    if isinstance(value, (int, float)):
        return b"\x11" + struct.pack("<d", value)
    if isinstance(value, Mapping):
        return b"\x2a" + _sized(_struct(value))
    if isinstance(value, (list, tuple)):
        values = b"".join([b"\x0a" + _sized(_value(inner)) for inner in value])
        return b"\x32" + _sized(values)
    return b"\x1a" + _sized(str(value).encode("utf-8", "replace"))


def _sized(data: bytes) -> bytes:
    return varint_of(len(data)) + data
