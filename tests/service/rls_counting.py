"""Cases: units, and hits of all kinds."""

from __future__ import annotations

from service.rls_case import MOST, START, USER, Case, answer, ask, descriptor, ok, over, steps


def unit_case(unit: str, reset: int) -> Case:
    rules = USER.replace("minute", unit)
    name = unit.upper()
    return Case(
        f"unit {unit}",
        rules,
        steps(
            *(ask("user=1"), answer(ok(2, unit=name, reset=reset))),
            *(ask("user=1"), answer(ok(1, unit=name, reset=reset))),
            *(ask("user=1"), answer(ok(0, unit=name, reset=reset))),
            *(ask("user=1"), answer(over(unit=name, reset=reset))),
            *(float(reset), ask("user=1"), answer(ok(2, unit=name, reset=PERIODS[unit.lower()]))),
        ),
    )


PERIODS = {
    "second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800,
    "month": 2_592_000, "year": 31_536_000,
}  # fmt: skip

UNITS = [
    unit_case(unit, period - START % period)
    for unit, period in [*PERIODS.items(), ("MINUTE", 60), ("Hour", 3_600)]
]

COUNTING = [
    Case("the first of three", USER, steps(ask("user=42"), answer(ok(2)))),
    Case(
        "seconds until the reset are rounded up",
        USER,
        steps(0.25, ask("user=42"), answer(ok(2)), 0.75, ask("user=42"), answer(ok(1, reset=50))),
    ),
    Case(
        "each value has its own counter",
        USER,
        steps(
            *(ask("user=1", hits=3), answer(ok(0))),
            *(ask("user=2"), answer(ok(2))),
            *(ask("user=1"), answer(over())),
        ),
    ),
    Case(
        "an empty value is a value",
        USER,
        steps(
            ask("user="), answer(ok(2)), ask("user=1"), answer(ok(2)), ask("user="), answer(ok(1))
        ),
    ),
    Case(
        "a refusal of one hit does not count",
        USER,
        steps(
            *(ask("user=1", hits=3), answer(ok(0))),
            *(ask("user=1"), answer(over())),
            *(ask(descriptor("user=1", negative=True)), answer(ok(1))),
            *(ask("user=1", hits=1), answer(ok(0))),
        ),
    ),
    Case(
        "hits of the request",
        USER,
        steps(ask("user=1", hits=2), answer(ok(1)), ask("user=1", hits=1), answer(ok(0))),
    ),
    Case("hits of 0 are 1", USER, steps(ask("user=1", hits=0), answer(ok(2)))),
    Case("more hits than the limit", USER, steps(ask("user=1", hits=4), answer(over()))),
    Case(
        "the most hits that there are",
        USER,
        steps(ask("user=1", hits=MOST), answer(over()), ask("user=1"), answer(over())),
    ),
    Case(
        "hits of a descriptor go before those of the request",
        USER,
        steps(ask(descriptor("user=1", hits=2), hits=3), answer(ok(1))),
    ),
    Case(
        "hits of 0 of a descriptor look only",
        USER,
        steps(
            *(ask(descriptor("user=1", hits=0)), answer(ok(3))),
            *(ask("user=1"), answer(ok(2))),
            *(ask(descriptor("user=1", hits=0), hits=2), answer(ok(2))),
        ),
    ),
    Case(
        "a look at a limit that is used up is no refusal",
        USER,
        steps(
            *(ask("user=1", hits=3), answer(ok(0))),
            *(ask(descriptor("user=1", hits=0)), answer(ok(0))),
            *(ask("user=1"), answer(over())),
        ),
    ),
    Case(
        "the most hits that a descriptor can have",
        USER,
        steps(
            *(ask(descriptor("user=1", hits=2**64 - 1)), answer(over())),
            *(ask("user=1"), answer(over())),
            *(51.0, ask("user=1"), answer(ok(2, reset=60))),
        ),
    ),
    Case(
        "hits of one descriptor and not of the other",
        USER,
        steps(ask(descriptor("user=1", hits=2), "user=2"), answer(ok(1), ok(2))),
    ),
    Case(
        "hits are given back",
        USER,
        steps(
            *(ask("user=1", hits=3), answer(ok(0))),
            *(ask(descriptor("user=1", hits=2, negative=True)), answer(ok(2))),
            *(ask("user=1"), answer(ok(1))),
        ),
    ),
    Case(
        "no more is given back than was taken",
        USER,
        steps(
            *(ask("user=1"), answer(ok(2))),
            *(ask(descriptor("user=1", hits=100, negative=True)), answer(ok(3))),
            *(ask("user=1", hits=3), answer(ok(0))),
            *(ask("user=1"), answer(over())),
        ),
    ),
    Case(
        "given back without a number is 1",
        USER,
        steps(
            *(ask("user=1", hits=3), answer(ok(0))),
            *(ask(descriptor("user=1", negative=True)), answer(ok(1))),
        ),
    ),
    Case(
        "given back with the number of the request",
        USER,
        steps(
            *(ask("user=1", hits=3), answer(ok(0))),
            *(ask(descriptor("user=1", negative=True), hits=2), answer(ok(2))),
        ),
    ),
    Case(
        "0 given back is a look",
        USER,
        steps(
            *(ask("user=1"), answer(ok(2))),
            *(ask(descriptor("user=1", hits=0, negative=True)), answer(ok(2))),
        ),
    ),
    Case(
        "what was never taken is given back",
        USER,
        steps(ask(descriptor("user=1", hits=1, negative=True)), answer(ok(3))),
    ),
    Case(
        "one is given back and another is taken",
        USER,
        steps(
            *(ask("user=1", hits=3), answer(ok(0))),
            *(ask(descriptor("user=1", negative=True), "user=2"), answer(ok(1), ok(2))),
        ),
    ),
    Case(
        "one counter twice in a request",
        USER,
        steps(ask("user=1", "user=1"), answer(ok(1), ok(1)), ask("user=1"), answer(ok(0))),
    ),
]
