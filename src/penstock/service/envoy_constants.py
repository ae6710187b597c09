"""Numbers of Envoy's rate limit messages, and bounds on them."""

from __future__ import annotations

from typing import Final

from penstock.durations import DAY, HOUR, MINUTE, MONTH, SECOND, WEEK, YEAR

# RateLimitResponse.Code
OK: Final = 1
OVER_LIMIT: Final = 2
CODES: Final = {0: "UNKNOWN", OK: "OK", OVER_LIMIT: "OVER_LIMIT"}

# RateLimitUnit and RateLimitResponse.RateLimit.Unit: the weeks came last.
UNITS: Final = {
    0: "UNKNOWN", 1: "SECOND", 2: "MINUTE", 3: "HOUR", 4: "DAY", 5: "MONTH", 6: "YEAR", 7: "WEEK",
}  # fmt: skip
UNIT_OF_PERIOD: Final = {SECOND: 1, MINUTE: 2, HOUR: 3, DAY: 4, MONTH: 5, YEAR: 6, WEEK: 7}
PERIODS: Final = {unit: period for period, unit in UNIT_OF_PERIOD.items()}

# The largest numbers of 32 and 64 bits. The first is also what an unlimited key has left.
U32: Final = 2**32 - 1
U64: Final = 2**64 - 1
NS: Final = SECOND

# Messages and groups in one another, as in other parsers.
DEEPEST: Final = 100
# In one request; the entries are those of all its descriptors.
MOST_DESCRIPTORS: Final = 1_000
MOST_ENTRIES: Final = 10_000

# Plans that are kept, and the longest message that one is kept for: some 10 MB in all.
MOST_PLANS: Final = 16_384
LONGEST_KEPT: Final = 512
# Places to remember that bytes have come once; a power of two.
SEEN: Final = 8_192
