"""Limits that make no sense: each says why, when it is made."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Limit, LimitError

LOG = {"algorithm": "sliding_log"}
FIXED = {"algorithm": "fixed_window"}
SLIDING = {"algorithm": "sliding_window"}
SOFT = "soft is an overrun and a grace time, such as (20, '10m') or '20% for 10m', not "
ZONE = (
    ": use a name such as 'Asia/Taipei' (the names come from the system's tz database"
    " or the tzdata package)"
)
CLOSED = (
    "an amount of 0 refuses everything, and {0} would let something through: leave {0} out, or give"
    " an amount of at least 1"
)
WRONG: list[tuple[Any, Any, dict[str, Any], str]] = [
    (-5, "1m", {}, "amount must be from 0 to 1000000000000, not -5"),
    (10**12 + 1, "1m", FIXED, "amount must be from 0 to 1000000000000, not 1000000000001"),
    (1.5, "1m", {}, "amount must be a whole number, not 1.5"),
    (True, "1m", {}, "amount must be a whole number, not True"),
    ("5", "1m", {}, "the amount is a whole number, not the text '5': Limit(5, '1m')"),
    ("ten", "1m", {}, "the amount is a whole number, not the text 'ten': Limit(100, 'minute')"),
    (5, None, {}, "Limit(5) does not say per what time: Limit(5, 'minute')"),
    (
        "10/minute",
        None,
        {},
        "Limit takes an amount and a time: read a text by Limit.parse('10/minute')",
    ),
    (0, "1m", {"burst": 5}, CLOSED.format("burst")),
    (0, "1m", {"debt": 5}, CLOSED.format("debt")),
    (0, "1m", FIXED | {"soft": "20% for 1m"}, CLOSED.format("soft")),
    (
        5,
        "1m",
        {"algorithm": "gcra"},
        "unknown algorithm 'gcra' (token_bucket is GCRA): use one of token_bucket, leaky_bucket,"
        " fixed_window, sliding_window, sliding_log",
    ),
    (
        5,
        "1m",
        {"algorithm": "moving-window"},
        "unknown algorithm 'moving-window' (did you mean 'sliding_log'?): use one of token_bucket,"
        " leaky_bucket, fixed_window, sliding_window, sliding_log",
    ),
    (
        5,
        "1m",
        {"algorithm": None},
        "unknown algorithm None: use one of token_bucket, leaky_bucket, fixed_window,"
        " sliding_window, sliding_log",
    ),
    (5, "0s", {}, "per must be above zero and at most 10 years, not '0s'"),
    (5, "1m", {"burst": 0}, "burst must be from 1 to 1000000000000, not 0"),
    (5, "1m", {"debt": 0}, "debt must be from 1 to 1000000000000, not 0"),
    (5, "1m", {"debt": 2.0}, "debt must be a whole number, not 2.0"),
    (
        5,
        "1m",
        {"algorithm": "leaky"},
        "unknown algorithm 'leaky' (did you mean 'leaky_bucket'?): use one of token_bucket,"
        " leaky_bucket, fixed_window, sliding_window, sliding_log",
    ),
    (
        5,
        "1m",
        FIXED | {"burst": 9},
        "burst means nothing to fixed_window: it needs token_bucket or leaky_bucket",
    ),
    (5, "1m", LOG | {"debt": 9}, "debt means nothing to sliding_log: it needs token_bucket"),
    (5, "1m", {"tz": "UTC"}, "tz means nothing to token_bucket: it needs fixed_window"),
    (5, "1m", {"align": "epoch"}, "align means nothing to token_bucket: it needs fixed_window"),
    (5, "1m", {"cells": 3}, "cells means nothing to token_bucket: it needs sliding_window"),
    (
        5,
        "1m",
        {"count_rejected": True},
        "count_rejected means nothing to token_bucket: it needs sliding_log",
    ),
    (
        5,
        "1m",
        SLIDING | {"warm_up": 5},
        "warm_up means nothing to sliding_window: it needs token_bucket or leaky_bucket",
    ),
    (
        5,
        "1m",
        FIXED | {"align": "noon"},
        "unknown align 'noon': use one of epoch, calendar, first_hit",
    ),
    (
        5,
        "1m",
        FIXED | {"align": "epoch", "tz": "UTC"},
        "tz means nothing with align='epoch': it needs align='calendar'",
    ),
    (
        5,
        "90s",
        FIXED | {"tz": "UTC"},
        "a calendar window is one minute, hour, day, week, month, year, not 90s",
    ),
    (5, "day", FIXED | {"tz": "Mars/Base"}, "unknown time zone 'Mars/Base'" + ZONE),
    (5, "day", FIXED | {"tz": ""}, "unknown time zone ''" + ZONE),
    (5, "day", FIXED | {"tz": "../passwd"}, "unknown time zone '../passwd'" + ZONE),
    (5, "day", FIXED | {"tz": 8}, "unknown time zone 8" + ZONE),
    (5, "1m", SLIDING | {"cells": 1001}, "cells must be from 1 to 1000, not 1001"),
    (5, "1m", SLIDING | {"cells": 0}, "cells must be from 1 to 1000000000000, not 0"),
    (5, "3ns", SLIDING | {"cells": 4}, "cells must be from 1 to 3, not 4"),
    (5, "1m", SLIDING | {"rounding": "half"}, "unknown rounding 'half': use one of down, up"),
    (5, "1m", SLIDING | {"rounding": ["up"]}, "unknown rounding ['up']: use one of down, up"),
    (5, "1m", SLIDING | {"rounding": ""}, "unknown rounding '': use one of down, up"),
    (
        5,
        "1m",
        {"rounding": "up"},
        "rounding means nothing to token_bucket: it needs sliding_window",
    ),
    (
        5,
        "1m",
        LOG | {"rounding": "down"},
        "rounding means nothing to sliding_log: it needs sliding_window",
    ),
    (5, "1m", LOG | {"count_rejected": 1}, "count_rejected must be True or False, not 1"),
    (
        5,
        "1m",
        {"lockout": "soon"},
        "lockout 'soon' has an unknown unit 'soon': use one of nanosecond, microsecond,"
        " millisecond, second, minute, hour, day, week, month, year",
    ),
    (5, "1m", {"soft": "20"}, SOFT + "'20'"),
    (5, "1m", {"soft": "x for 1m"}, SOFT + "'x for 1m'"),
    (5, "1m", {"soft": (1,)}, SOFT + "(1,)"),
    (5, "1m", {"soft": 5}, SOFT + "5"),
    (5, "1m", {"soft": (0, "1m")}, "soft overrun must be from 1 to 1000000000000, not 0"),
    (5, "1m", {"soft": (1, "0s")}, "soft grace must be above zero and at most 10 years, not '0s'"),
    (
        5,
        "1m",
        {"soft": "1 for 1m", "debt": 1},
        "soft and debt are two ways to go beyond a limit: choose one",
    ),
    (
        5,
        "1m",
        LOG | {"soft": "1 for 1m", "count_rejected": True},
        "soft lets hits through that count_rejected would punish: choose one",
    ),
    (
        1_000_001,
        "1m",
        LOG,
        "a sliding_log of 1000001 would keep as many timestamps a key: at most 1000000;"
        " algorithm='sliding_window' counts any amount in constant memory",
    ),
    (1001, "1us", {}, "1001 in 1000 ns is above one a nanosecond"),
    (
        1,
        "year",
        {"burst": 37},
        "a burst of 37 at 1/year would take more than 36 years to come back: lower burst or debt",
    ),
    (1, "2d", {"warm_up": "1h"}, "warm_up needs a rate of at least one a day"),
]


@pytest.mark.parametrize(("amount", "per", "options", "message"), WRONG)
def test_a_limit_that_makes_no_sense_says_why(
    amount: Any, per: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(LimitError) as caught:
        Limit(amount, per, **options)
    assert str(caught.value) == message
