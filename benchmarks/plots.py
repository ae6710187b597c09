"""The pictures."""

from __future__ import annotations


def speed(found, path):
    pass
