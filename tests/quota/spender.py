"""A process that uses a ledger until it is killed, and says what was acknowledged.

    python spender.py URL NUMBER

Every verb is repeated until it is acknowledged, and then written to stdout. What it was about to do
is known from that: all names and totals count up.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.quota import Ledger, LedgerUnavailable

Result = TypeVar("Result")


def until_acknowledged(call: Callable[[], Result]) -> Result:
    """As a client does: the answer may be lost, and so may the request."""
    while True:
        try:
            return call()
        except LedgerUnavailable:
            time.sleep(0.005)


def calls(ledger: Ledger, number: str, step: int) -> dict[str, Callable[[], object]]:
    ref = f"{number}:{step}"

    def hold() -> object:
        held = until_acknowledged(lambda: ledger.hold("acme", 5, meter="m"))
        return until_acknowledged(lambda: held.settle(2))

    return {
        "spend": lambda: ledger.spend("acme", 3, meter="m", ref=ref),
        "grant": lambda: ledger.grant("acme", 1, meter="m", ref=ref),
        "settle": lambda: ledger.settle("acme", 2 * step, meter="m", source=number),
        "stock": lambda: ledger.stock(
            "acme", meter="m", id=f"stock-{number}", granted=10 + 4 * step, settled=4 * step
        ),
        "hold": hold,
    }


def main(url: str, number: str) -> None:
    ledger = Ledger(url)
    for step in itertools.count(1):
        for verb, call in calls(ledger, number, step).items():
            until_acknowledged(call)
            print(verb, step, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
