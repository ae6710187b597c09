"""Adaptive limits: strategies that compute a limit from how calls perform, and enforce none.

`base.py` has what all strategies share; each strategy is a file. A `ConcurrencyLimiter` enforces
what they compute, or an `AdaptiveRate` (`rate.py`), which changes the cost of a request. May
import `limits.py`, `durations.py` and the modules beside them, never a limiter.
"""

from penstock.adaptive.aimd import AIMD
from penstock.adaptive.base import AdaptiveLimit
from penstock.adaptive.cpu import ProcessCPU, SystemCPU
from penstock.adaptive.cpu_target import CPUTarget
from penstock.adaptive.gradient2 import Gradient2
from penstock.adaptive.rate import AdaptiveRate
from penstock.adaptive.vegas import Vegas

__all__ = [
    "AIMD",
    "AdaptiveLimit",
    "AdaptiveRate",
    "CPUTarget",
    "Gradient2",
    "ProcessCPU",
    "SystemCPU",
    "Vegas",
]
