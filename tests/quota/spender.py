"""A process that uses a ledger until it is killed, and says what was acknowledged.

    python spender.py URL NUMBER

Every verb is written to stdout after it has returned. What it was about to do is known from that:
all names and totals count up.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

from penstock.quota import Ledger, LedgerUnavailable, QuotaExceeded


def calls(ledger: Ledger, number: str, step: int) -> dict[str, Callable[[], object]]:
    ref = f"{number}:{step}"
    return {
        "spend": lambda: ledger.spend("acme", 3, meter="m", ref=ref),
        "grant": lambda: ledger.grant("acme", 1, meter="m", ref=ref),
        "settle": lambda: ledger.settle("acme", 2 * step, meter="m", source=number),
        "stock": lambda: ledger.stock(
            "acme", meter="m", id=f"stock-{number}", granted=10 + 4 * step, settled=4 * step
        ),
        "hold": lambda: ledger.hold("acme", 5, meter="m").settle(2),
    }


def main(url: str, number: str) -> None:
    ledger = Ledger(url)
    for step in itertools.count(1):
        for verb, call in calls(ledger, number, step).items():
            try:
                call()
            except (LedgerUnavailable, QuotaExceeded):
                continue  # not acknowledged
            print(verb, step, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
