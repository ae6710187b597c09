"""The page for users of `limits`."""

from __future__ import annotations

import inspect

import pytest

from migrating.checks import check_names, left_names
from migrating.tables import Row, rows
from migrating.values import check_values
from penstock import Limit

limits = pytest.importorskip("limits")

PAGE = "coming-from-limits"
ROWS = rows(PAGE)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_both_sides_of_a_row_give_the_same(row: Row) -> None:
    check_values(row)


def test_nothing_of_limits_is_left_out() -> None:
    from limits import errors, storage, strategies

    wanted = {
        *limits.__all__,
        *storage.__all__,
        *(name for name in vars(strategies.RateLimiter) if not name.startswith("_")),
        *(kind.__name__ for kind in strategies.STRATEGIES.values()),
        *(name for name in vars(errors) if name.endswith("Error")),
        *(name for name in vars(limits.RateLimitItem) if not name.startswith("_")),
        *inspect.signature(limits.RateLimitItem).parameters,
        *inspect.signature(storage.RedisStorage).parameters,
        *(name for name in vars(storage.Storage) if not name.startswith("_")),
    } - {
        "check_granularity_string",  # an internal of parse
        *("uri", "options", "DEPENDENCIES", "STORAGE_SCHEME", "base_exceptions", "dependencies"),
        "clear",
    }
    check_names(wanted, left_names(ROWS))


@pytest.mark.parametrize("text", ["10/minute", "3 per 2 hours", "7/5 second", "100 per day"])
def test_the_text_of_an_item_is_a_limit(text: str) -> None:
    item = limits.parse(text)
    limit = Limit.parse(str(item))
    assert (limit.amount, limit.period_ns) == (item.amount, item.get_expiry() * 10**9)
