"""Cython's decorators where Cython is not installed: they do nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

compiled = False


def freelist(size: int) -> Callable[[T], T]:
    return lambda kind: kind


def binding(value: bool) -> Callable[[T], T]:
    return lambda function: function


def embedsignature(value: bool) -> Callable[[T], T]:
    return lambda function: function


def no_gc(kind: T) -> T:
    return kind


def final(kind: T) -> T:
    return kind


def cclass(kind: T) -> T:
    return kind
