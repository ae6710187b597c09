"""Limits that follow what a service can bear: they compute a limit, and never enforce one."""

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
