"""Reads what /v1/check is asked; what is wrong is said with the place where it stands."""

from __future__ import annotations

from typing import Any

from penstock.errors import PenstockError
from penstock.rules.deciding.verdict import Descriptor, check_hits

# In one check: each is a decision or more.
MOST_DESCRIPTORS = 100
MOST_PAIRS = 10_000
_KNOWN = frozenset({"domain", "descriptors", "hits"})
# The domain, the descriptors and the hits.
Question = tuple[str | None, list[Descriptor], int]


class BadCheck(PenstockError):
    """A question that cannot be read, or may not be asked; says where."""

    status = 400


class TooLarge(BadCheck):
    status = 413


class NoRefunds(BadCheck):
    status = 403


def question(asked: Any, where: str) -> Question:
    """The domain, the descriptors and the hits of one question."""
    if not isinstance(asked, dict):
        raise BadCheck(f"{where}a check is an object with descriptors")
    if not asked.keys() <= _KNOWN:
        unknown = asked.keys() - _KNOWN
        raise BadCheck(f"{where}unknown: {', '.join(sorted(unknown))}")
    domain = asked.get("domain")
    if domain is not None and (not isinstance(domain, str) or not domain):
        raise BadCheck(f"{where}domain is a non-empty text")
    listed = asked.get("descriptors")
    if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_DESCRIPTORS:
        raise BadCheck(f"{where}descriptors is a list of 1 to {MOST_DESCRIPTORS} descriptors")
    descriptors = []
    for at, each in enumerate(listed):
        try:
            descriptors.append(descriptor_of(each))
        except PenstockError as error:
            raise BadCheck(f"{where}descriptors[{at}]: {error}") from None
    if sum(len(each.pairs) for each in descriptors) > MOST_PAIRS:
        raise TooLarge(f"{where}the descriptors have more than {MOST_PAIRS} pairs")
    try:
        return domain, descriptors, check_hits(asked.get("hits", 1))
    except PenstockError as error:
        raise BadCheck(f"{where}{error}") from None


def descriptor_of(asked: Any) -> Descriptor:
    if isinstance(asked, dict) and isinstance(asked.get("pairs"), (dict, list)):
        unknown = asked.keys() - {"pairs", "limit", "hits"}
        if unknown:
            raise BadCheck(f"unknown: {', '.join(sorted(unknown))}")
        limit = asked.get("limit")
        if limit is not None and not isinstance(limit, str):
            raise BadCheck("limit is a text such as '100/minute'")
        return Descriptor.of(_pairs(asked["pairs"]), limit, asked.get("hits"))
    return Descriptor.of(_pairs(asked))


def _pairs(asked: Any) -> Any:
    if isinstance(asked, list):
        return [tuple(pair) if isinstance(pair, list) else pair for pair in asked]
    if not isinstance(asked, dict):
        raise BadCheck("a descriptor is an object of texts, or a list of pairs")
    return asked
