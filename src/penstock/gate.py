"""Gate: rules over a store. Descriptors in, verdict out.

>>> from penstock import Gate
>>> gate = Gate.from_rules({"domain": "api", "descriptors": [{"key": "user", "limits": "2/hour"}]})
>>> [bool(gate.check({"user": "42"})) for _ in range(3)]
[True, True, False]
"""

from __future__ import annotations

from penstock.base_gate import BaseGate


class Gate(BaseGate):
    """Decides on requests by rules. Create one with `from_file` or `from_rules`.

    `AsyncGate` is the same for coroutines.
    """

    check = BaseGate.check_now
    check_into = BaseGate.check_into_now
    release = BaseGate.release_now
