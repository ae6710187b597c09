"""Cases: everything about limits that is special."""

from __future__ import annotations

from penstock.service.grpc_status import INVALID_ARGUMENT, UNKNOWN
from service.rls_case import (
    DENIED,
    FREE,
    MOST,
    START,
    UNLIMITED,
    USER,
    Case,
    answer,
    ask,
    descriptor,
    ok,
    over,
    steps,
)
from service.rls_matching import DEEP

NAMED = """
domain: api
descriptors:
  - {key: user, rate_limit: {name: per-user, unit: minute, requests_per_unit: 3}}
  - {key: ip, rate_limit: {name: per-ip, unit: minute, requests_per_unit: 1}}
  - key: vip
    rate_limit: {name: per-vip, unit: hour, requests_per_unit: 9, replaces: [{name: per-user}]}
  - {key: open, rate_limit: {unlimited: true}}
  - {key: shut, rate_limit: {name: closed, unit: minute, requests_per_unit: 0}}
"""
SHADOW = """
domain: api
descriptors:
  - {key: user, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: ip, rate_limit: {unit: minute, requests_per_unit: 3}}
"""
QUOTA = """
domain: api
descriptors:
  - {key: a, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: b, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: c, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: shut, rate_limit: {unit: minute, requests_per_unit: 0}}
"""

SEVERAL = [
    Case("a name", NAMED, steps(ask("user=1"), answer(ok(2, name="per-user")))),
    Case("unlimited", NAMED, steps(ask("open=1"), answer(UNLIMITED))),
    Case("unlimited, with many hits", NAMED, steps(ask("open=1", hits=MOST), answer(UNLIMITED))),
    Case("unlimited beside a limit", NAMED, steps(
        ask("open=1", "user=1"), answer(UNLIMITED, ok(2, name="per-user"))
    )),
    Case("a limit of 0", NAMED, steps(
        *(ask("shut=1"), answer(over(0, name="closed"))),
        *(ask("user=1", "shut=1"), answer(ok(3, name="per-user"), over(0, name="closed"))),
        *(ask("user=1"), answer(ok(2, name="per-user"))),
    )),
    Case("one of several is over", NAMED, steps(
        *(ask("ip=1"), answer(ok(0, 1, name="per-ip"))),
        *(ask("user=1", "ip=1"), answer(ok(3, name="per-user"), over(1, name="per-ip"))),
        *(ask("user=1"), answer(ok(2, name="per-user"))),
    )),
    Case("all are over", NAMED, steps(
        *(ask("ip=1", descriptor("user=1", hits=3)),
          answer(ok(0, 1, name="per-ip"), ok(0, name="per-user"))),
        *(ask("ip=1", "user=1"), answer(over(1, name="per-ip"), over(name="per-user"))),
    )),
    Case("a limit that another replaces", NAMED, steps(
        *(ask("user=1", "vip=1"), answer(FREE, ok(8, 9, "HOUR", 3591, "per-vip"))),
        *(ask("user=1"), answer(ok(2, name="per-user"))),
    )),
    Case("replaced, in the other order", NAMED, steps(
        ask("vip=1", "user=1"), answer(ok(8, 9, "HOUR", 3591, "per-vip"), FREE)
    )),
    Case("a rule in shadow mode is never over", SHADOW, steps(
        *(ask("user=1"), answer(ok(0, 1))),
        *(ask("user=1"), answer(ok(0, 1))),
        *(ask("user=1", "ip=1"), answer(ok(0, 1), ok(2))),
    )),
    Case("shadow mode beside a refusal", SHADOW, steps(
        *(ask("ip=1", hits=3), answer(ok(0))),
        *(ask("user=1", "ip=1"), answer(ok(0, 1), over())),
    )),
    Case("the switch to shadow flips the overall code only", USER, steps(
        *(ask("user=1", hits=3), answer(ok(0))),
        *(ask("user=1"), answer(over(), overall="OK")),
    ), mode="shadow"),
    Case("the switch to off", USER, steps(ask("user=1", hits=9), answer(FREE)), mode="off"),
    Case("one quota of two is over", QUOTA, steps(
        *(ask("a=1"), answer(ok(0, 1))),
        *(ask("a=1", "b=1"), answer(over(1), ok(1, 2), overall="OK")),
    )),
    Case("all quotas are over", QUOTA, steps(
        *(ask("a=1"), answer(ok(0, 1))),
        *(ask("b=1", hits=2), answer(ok(0, 2))),
        *(ask("a=1", "b=1"), answer(over(1), over(2))),
    )),
    Case("a quota of one", QUOTA, steps(
        ask("a=1"), answer(ok(0, 1)), ask("a=1"), answer(over(1)),
    )),
    Case("another limit is over beside a quota", QUOTA, steps(
        *(ask("c=1", hits=3), answer(ok(0))),
        *(ask("a=1", "c=1"), answer(ok(1, 1), over())),
        *(ask("a=1"), answer(ok(0, 1))),
    )),
]  # fmt: skip

OVERRIDES = [
    Case("a limit of the request", USER, steps(
        ask(descriptor("user=1", limit=(5, "HOUR"))), answer(ok(4, 5, "HOUR", 3591))
    )),
    Case("a limit of the request has a counter of its own", USER, steps(
        *(ask(descriptor("user=1", limit=(2, "MINUTE"))), answer(ok(1, 2))),
        *(ask("user=1"), answer(ok(2))),
        *(ask(descriptor("user=1", limit=(2, "MINUTE"))), answer(ok(0, 2))),
        *(ask(descriptor("user=1", limit=(2, "MINUTE"))), answer(over(2))),
    )),
    Case("a limit of the request where no rule matches", USER, steps(
        *(ask(descriptor("ip=1", limit=(1, "SECOND"))), answer(ok(0, 1, "SECOND", 1))),
        *(ask(descriptor("ip=1", limit=(1, "SECOND"))), answer(over(1, "SECOND", 1))),
        *(ask(descriptor("ip=2", limit=(1, "SECOND"))), answer(ok(0, 1, "SECOND", 1))),
    )),
    Case("a limit of the request in an unknown domain", USER, steps(
        ask(descriptor("user=1", limit=(1, "DAY")), domain="other"), answer(FREE)
    )),
    Case("a limit of the request where there is none", NAMED, steps(
        ask(descriptor("open=1", limit=(2, "MINUTE"))), answer(ok(1, 2))
    )),
    Case("a limit of the request opens what is closed", NAMED, steps(
        ask(descriptor("shut=1", limit=(2, "MINUTE"))), answer(ok(1, 2))
    )),
    Case("a limit of 0 in the request", USER, steps(
        *(ask(descriptor("user=1", limit=(0, "MINUTE")), "user=2"), answer(over(0), ok(3))),
        *(ask("user=2"), answer(ok(2))),
    )),
    Case("a look at a limit of 0 in the request", USER, steps(
        *(ask(descriptor("user=1", limit=(0, "MINUTE"), hits=0), "user=2"),
          answer(over(0), ok(3))),
        *(ask("user=2"), answer(ok(2))),
    )),
    Case("what is given back to a limit of 0 is no other's", USER, steps(
        *(ask(descriptor("user=1", limit=(1, "MINUTE"))), answer(ok(0, 1))),
        *(ask(descriptor("user=1", limit=(0, "MINUTE"), negative=True)), answer(ok(0, 0))),
        *(ask(descriptor("user=1", limit=(1, "MINUTE"))), answer(over(1))),
    )),
    Case("the largest limit of a request", USER, steps(
        ask(descriptor("user=1", limit=(MOST, "YEAR"))),
        answer(ok(MOST - 1, MOST, "YEAR", 31_536_000 - START % 31_536_000)),
    )),
    Case("a limit of the request by the week", USER, steps(
        ask(descriptor("user=1", limit=(5, "WEEK"))),
        answer(ok(4, 5, "WEEK", 604_800 - START % 604_800)),
    )),
    Case("a limit and hits of the request", USER, steps(
        *(ask(descriptor("user=1", limit=(5, "HOUR"), hits=4)), answer(ok(1, 5, "HOUR", 3591))),
        *(ask(descriptor("user=1", limit=(5, "HOUR"), hits=3, negative=True)),
          answer(ok(4, 5, "HOUR", 3591))),
    )),
    Case("a limit of the request without a unit", USER, steps(
        *(ask(descriptor("user=1", limit=(5, "UNKNOWN"))), INVALID_ARGUMENT),
        *(ask("user=1"), answer(ok(2))),
    )),
    Case("a limit of the request with a unit that is none", USER, steps(
        ask(descriptor("user=1", limit=(5, 8))), INVALID_ARGUMENT
    )),
]  # fmt: skip

ERRORS = [
    Case("no domain", USER, steps(ask("user=1", domain=""), UNKNOWN)),
    Case("no descriptors", USER, steps(ask(), UNKNOWN)),
    Case("nothing at all", USER, steps({}, UNKNOWN)),
    Case("an error counts nothing", USER, steps(
        *(ask("user=1", descriptor("user=2", limit=(1, 99))), INVALID_ARGUMENT),
        *(ask("user=1"), answer(ok(2))),
    )),
]  # fmt: skip

OWN = """
domain: api
allow: {user: [admin]}
deny: {user: [mallory]}
descriptors:
  - {key: user, limits: 30/10s}
  - {key: ip, limits: {limit: 20/30s, name: half-minutes}}
  - {key: job, limits: 6/minute burst 3}
  - {key: slow, limits: 120/hour burst 2}
  - {key: two, limits: [4/minute fixed_window, 2/hour fixed_window]}
  - {key: heavy, cost: 2, limits: 5/minute fixed_window}
  - {key: big, limits: 5000000000/day fixed_window}
"""
# Without a list, so that the short way is open.
TWO = """
domain: api
descriptors:
  - {key: two, limits: [4/minute fixed_window, 2/hour fixed_window]}
  - {key: tier, limits: 3/minute fixed_window, allow: [gold], deny: [lead]}
"""
OWN_LIMITS = [
    Case("the strictest of two limits speaks, beside others", TWO, steps(
        *(ask("tier=a", "two=1"), answer(ok(2), ok(1, 2, "HOUR", 3591))),
        *(ask("two=1", "tier=a"), answer(ok(0, 2, "HOUR", 3591), ok(1))),
        *(ask("two=1", "tier=a"), answer(over(2, "HOUR", 3591), ok(1))),
    )),
    Case("on the allow list of a step", TWO, steps(
        ask("tier=gold", "tier=a"), answer(UNLIMITED, ok(2))
    )),
    Case("on the deny list of a step", TWO, steps(
        *(ask("tier=lead", "tier=a"), answer(DENIED, FREE)),
        *(ask("tier=a"), answer(ok(2))),
    )),
    Case("a period that is no unit", OWN, steps(
        ask("user=1"), answer(ok(29, 30, "", 1, "30/10s"))
    )),
    Case("a period that is no unit, named", OWN, steps(
        ask("ip=1"), answer(ok(19, 20, "", 2, "half-minutes"))
    )),
    Case("a bucket with a burst", OWN, steps(
        *(ask("job=1"), answer(ok(2, 3, "", 10, "6/minute burst 3"))),
        *(ask("job=1", hits=2), answer(ok(0, 3, "", 10, "6/minute burst 3"))),
        *(ask("job=1", hits=2), answer(over(3, "", 20, "6/minute burst 3"))),
        *(20.0, ask("job=1", hits=2), answer(ok(0, 3, "", 10, "6/minute burst 3"))),
        *(ask("slow=1"), answer(ok(1, 2, reset=30))),
    )),
    Case("the strictest of two limits speaks", OWN, steps(
        *(ask("two=1"), answer(ok(1, 2, "HOUR", 3591))),
        *(ask("two=1"), answer(ok(0, 2, "HOUR", 3591))),
        *(ask("two=1"), answer(over(2, "HOUR", 3591))),
    )),
    Case("a rule with a cost", OWN, steps(
        *(ask("heavy=1", hits=2), answer(ok(1, 5))),
        *(ask("heavy=1"), answer(over(5))),
    )),
    Case("more than 32 bits", OWN, steps(ask("big=1"), answer(ok(MOST, MOST, "DAY", 86391)))),
    Case("on the allow list", OWN, steps(ask("user=admin", "ip=1"), answer(UNLIMITED, UNLIMITED))),
    Case("on the deny list", OWN, steps(
        ask("user=mallory", "ip=1"), answer(DENIED, DENIED)
    )),
]  # fmt: skip

HEADERS = [
    Case("headers", USER, steps(ask("user=1"), answer(ok(2), headers=(3, 2, 51))), headers=True),
    Case("no headers where nothing is counted", USER, steps(
        ask("ip=1"), answer(FREE)
    ), headers=True),
    Case("headers of the least remaining", NAMED, steps(
        ask("user=1", "open=1", "ip=1", "vip=1"),
        answer(FREE, UNLIMITED, ok(0, 1, name="per-ip"), ok(8, 9, "HOUR", 3591, "per-vip"),
               headers=(1, 0, 51)),
    ), headers=True),
    Case("headers of what is over", QUOTA, steps(
        *(ask("c=1", hits=2), answer(ok(1), headers=(3, 1, 51))),
        *(ask("a=1"), answer(ok(0, 1), headers=(1, 0, 51))),
        *(ask("c=1", hits=2), answer(over(), headers=(3, 0, 51))),
        *(ask("shut=1"), answer(over(0), headers=(0, 0, 51))),
    ), headers=True),
    Case("headers of the longest wait", DEEP, steps(
        *(ask("plan=free", hits=3), answer(ok(0), headers=(3, 0, 51))),
        *(ask(descriptor("plan=free", "user=1"), hits=2),
          answer(ok(0, 2, "HOUR", 3591), headers=(2, 0, 3591))),
        *(ask("plan=free", descriptor("plan=free", "user=1")),
          answer(over(), over(2, "HOUR", 3591), headers=(2, 0, 3591))),
    ), headers=True),
]  # fmt: skip
