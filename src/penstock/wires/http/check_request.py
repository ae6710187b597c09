"""Reads a check request from JSON. Errors say where in the request they are."""

from __future__ import annotations

import json
from typing import Any

from penstock.errors import PenstockError
from penstock.rules.deciding.verdict import Descriptor, check_hits
from penstock.rules.problems import nearest

# In one check: each is a decision or more.
MOST_DESCRIPTORS = 100
MOST_PAIRS = 10_000
_KNOWN = frozenset({"domain", "descriptors", "hits"})
_KNOWN_OF_DESCRIPTOR = frozenset({"pairs", "limit", "hits"})
_EXAMPLE = 'such as {"user": "42"}'
# A descriptor as Envoy's messages have it: {"entries": [{"key": "user", "value": "42"}]}.
_ENVOY, _ENTRY = "entries", frozenset({"key", "value"})
# The domain, the descriptors and the hits.
CheckRequest = tuple[str | None, list[Descriptor], int]


class BadCheck(PenstockError):
    """A check request that is malformed or not allowed."""

    status = 400


class TooLarge(BadCheck):
    status = 413


class NoRefunds(BadCheck):
    status = 403


def read_check(content: Any, where: str) -> CheckRequest:
    """Read one check from parsed JSON. ``where`` is the start of error messages."""
    if not isinstance(content, dict):
        raise BadCheck(f"{where}a check is an object with descriptors")
    if not content.keys() <= _KNOWN:
        raise BadCheck(f"{where}{_unknown(content, _KNOWN)}")
    domain = content.get("domain")
    if domain is not None and (not isinstance(domain, str) or not domain):
        raise BadCheck(f"{where}domain is a non-empty text")
    listed = content.get("descriptors")
    if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_DESCRIPTORS:
        wanted = f"a list of 1 to {MOST_DESCRIPTORS} descriptors"
        raise BadCheck(f'{where}descriptors is {wanted}, such as [{{"user": "42"}}]')
    descriptors = []
    for at, each in enumerate(listed):
        try:
            descriptors.append(_descriptor(each))
        except PenstockError as error:
            raise BadCheck(f"{where}descriptors[{at}]: {error}") from None
    if sum(len(each.pairs) for each in descriptors) > MOST_PAIRS:
        raise TooLarge(f"{where}the descriptors have more than {MOST_PAIRS} pairs")
    try:
        return domain, descriptors, check_hits(content.get("hits", 1))
    except PenstockError as error:
        raise BadCheck(f"{where}{error}") from None


def _unknown(content: dict[str, Any], known: frozenset[str]) -> str:
    names = sorted(content.keys() - known)
    return f"unknown: {', '.join(names)}{nearest(names[0], known)}"


def _descriptor(content: Any) -> Descriptor:
    if isinstance(content, dict) and isinstance(content.get(_ENVOY), list):
        entries = content[_ENVOY]
        content = {name: value for name, value in content.items() if name != _ENVOY}
        content["pairs"] = [_entry(entry) for entry in entries]
    if isinstance(content, dict) and isinstance(content.get("pairs"), (dict, list)):
        if not content.keys() <= _KNOWN_OF_DESCRIPTOR:
            raise BadCheck(_unknown(content, _KNOWN_OF_DESCRIPTOR))
        limit = content.get("limit")
        if limit is not None and not isinstance(limit, str):
            raise BadCheck(
                "limit is a text such as '100/minute'; Envoy's messages are sent to POST /json"
            )
        return Descriptor.of(_pairs(content["pairs"]), limit, content.get("hits"))
    return Descriptor.of(_pairs(content))


def _entry(content: Any) -> Any:
    """One of Envoy's ``{"key": ..., "value": ...}``, as a pair; the value may be left out."""
    if not isinstance(content, dict) or "key" not in content or not content.keys() <= _ENTRY:
        raise BadCheck('an entry is an object {"key": "user", "value": "42"}')
    return content["key"], content.get("value", "")


def _pairs(content: Any) -> Any:
    if isinstance(content, list):
        if content and all(isinstance(each, dict) for each in content):
            return [_entry(each) for each in content]
        return [tuple(pair) if isinstance(pair, list) else pair for pair in content]
    if not isinstance(content, dict):
        raise BadCheck(f"a descriptor is an object of texts, {_EXAMPLE}, or a list of pairs")
    if content.keys() == _ENTRY:  # it could mean both, and one of them would limit nothing
        key, value = json.dumps(content["key"])[:60], json.dumps(content["value"])[:60]
        raise BadCheck(
            f'write {{{key}: {value}}}, or Envoy\'s form {{"entries": [{{"key": {key}, "value":'
            f' {value}}}]}}; if there are dimensions of the names key and value, [["key", {key}],'
            f' ["value", {value}]]'
        )
    return content
