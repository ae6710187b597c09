"""For your own tests: a clock that the test moves, limits of a whole process, and more.

`clock.py` is `FakeClock`. `in_process.py` changes the limits of an application that were made when
it was imported, and `responses.py` checks refusals. `conformance.py` is the suite that a store
must pass, and `load_simulation.py` a simulated service for adaptive limits. All of it is public.
The fixtures for pytest are in `src/_penstock_pytest.py`.
"""

from penstock.testing.clock import FakeClock
from penstock.testing.conformance import StoreConformance
from penstock.testing.in_process import allow_all, forget_counts, use_clock
from penstock.testing.responses import assert_limited

__all__ = [
    "FakeClock",
    "StoreConformance",
    "allow_all",
    "assert_limited",
    "forget_counts",
    "use_clock",
]
