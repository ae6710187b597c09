"""The pictures."""

from __future__ import annotations
from pathlib import Path
def speed(found, path): pass
