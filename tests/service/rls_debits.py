"""Cases: looks and debits, as callers make them that learn what to count from an answer."""

from __future__ import annotations

from service.rls_case import USER, Case, answer, ask, descriptor, ok, over, steps

# The rules of three integration tests of envoyproxy/ratelimit: quota, token-quota and replaces.
SERVICES = """
domain: api
descriptors:
  - {key: service, value: one, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: service, value: two, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
"""
REPLACES = """
domain: api
descriptors:
  - key: foo
    descriptors:
      - key: bar
        value: banned
        rate_limit: {name: banned_limit, unit: minute, requests_per_unit: 0}
  - key: source
    descriptors:
      - key: destination
        value: override
        rate_limit: {replaces: [{name: banned_limit}], unit: minute, requests_per_unit: 2}
      - key: destination
        rate_limit: {unit: minute, requests_per_unit: 9}
"""
TOKENS = """
domain: api
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1000}}
  - {key: org, rate_limit: {unit: hour, requests_per_unit: 5000}}
  - {key: own, limits: 1000/hour fixed_window}
  - {key: spy, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1000}}
  - {key: shut, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: rich, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1000}}
  - {key: poor, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 100}}
  - {key: list, deny: [bad], rate_limit: {unit: hour, requests_per_unit: 1000}}
"""


def hours(remaining: int, amount: int = 1000) -> dict[str, object]:
    return ok(remaining, amount, "HOUR", 3591)


def spent(amount: int = 1000) -> dict[str, object]:
    return over(amount, "HOUR", 3591)


def look(*pairs: str) -> list[dict[str, object]]:
    return [descriptor(pair, hits=0) for pair in pairs]


def debit(hits: int, *pairs: str) -> list[dict[str, object]]:
    return [descriptor(pair, hits=hits) for pair in pairs]


DEBITS = [
    Case("quotas: one of two is enough", SERVICES, steps(
        *(ask("service=one", "service=two"), answer(ok(0, 1), ok(1, 2))),
        *(ask("service=one", "service=two"), answer(over(1), ok(0, 2), overall="OK")),
        *(ask("service=one", "service=two"), answer(over(1), over(2))),
        *(51.0, ask("service=one", "service=two"), answer(ok(0, 1, reset=60), ok(1, 2, reset=60))),
    )),
    Case("a look, and one token debited after it, lets one more in than the limit", SERVICES, steps(
        *(ask(*look("service=two")), answer(ok(2, 2))),
        *(ask(*debit(1, "service=two")), answer(ok(1, 2))),
        *(ask(*look("service=two")), answer(ok(1, 2))),
        *(ask(*debit(1, "service=two")), answer(ok(0, 2))),
        *(ask(*look("service=two")), answer(ok(0, 2))),
        *(ask(*debit(1, "service=two")), answer(over(2))),
        *(ask(*look("service=two")), answer(over(2))),
        *(51.0, ask(*look("service=two")), answer(ok(2, 2, reset=60))),
    )),
    Case("looks at several quotas, and a debit of the one that served", SERVICES, steps(
        *(ask(*look("service=one", "service=two")), answer(ok(1, 1), ok(2, 2))),
        *(ask(*debit(1, "service=one")), answer(ok(0, 1))),
        *(ask(*look("service=one", "service=two")), answer(ok(0, 1), ok(2, 2))),
        *(ask(*debit(1, "service=one")), answer(over(1))),
        *(ask(*look("service=one", "service=two")), answer(over(1), ok(2, 2), overall="OK")),
        *(ask(*debit(3, "service=two")), answer(over(2))),
        *(ask(*look("service=one", "service=two")), answer(over(1), over(2))),
    )),
    Case("a limit of 0 that another replaces", REPLACES, steps(
        *(ask(descriptor("foo=x", "bar=banned")), answer(over(0, name="banned_limit"))),
        *(ask(descriptor("foo=x", "bar=banned"), descriptor("source=p", "destination=mock")),
          answer(over(0, name="banned_limit"), ok(9, 9))),
        *(ask(descriptor("foo=x", "bar=banned"), descriptor("source=p", "destination=override")),
          answer({"code": "OK"}, ok(1, 2))),
        *(ask(descriptor("foo=x", "bar=banned"), descriptor("source=p", "destination=override")),
          answer({"code": "OK"}, ok(0, 2))),
        *(ask(descriptor("foo=x", "bar=banned"), descriptor("source=p", "destination=override")),
          answer({"code": "OK"}, over(2))),
    )),
    Case("1,000 tokens an hour, 400 a time, end at 1,200", TOKENS, steps(
        *(ask(*look("user=1")), answer(hours(1000)), ask(*debit(400, "user=1")),
          answer(hours(600))),
        *(ask(*look("user=1")), answer(hours(600)), ask(*debit(400, "user=1")),
          answer(hours(200))),
        *(ask(*look("user=1")), answer(hours(200)), ask(*debit(400, "user=1")), answer(spent())),
        *(ask(*look("user=1")), answer(spent())),
        *(ask("user=1"), answer(spent())),
    )),
    Case("a debit by the hits of the whole request", TOKENS, steps(
        *(ask("user=1", hits=900), answer(hours(100))),
        *(ask("user=1", hits=400), answer(spent())),
        *(ask(*look("user=1")), answer(spent())),
    )),
    Case("a debit reaches every descriptor", TOKENS, steps(
        *(ask(*debit(900, "user=1", "org=1")), answer(hours(100), hours(4100, 5000))),
        *(ask(*debit(400, "user=1", "org=1")), answer(spent(), hours(3700, 5000))),
        *(ask(*look("user=1", "org=1")), answer(spent(), hours(3700, 5000))),
        *(ask(*debit(400, "user=1", "shut=1")), answer(spent(), over(0, "HOUR", 3591))),
        *(ask(*debit(400, "org=1", "shut=1")),
          answer(hours(3300, 5000), over(0, "HOUR", 3591))),
        *(ask(*look("org=1")), answer(hours(3300, 5000))),
    )),
    Case("a debit beside a deny list", TOKENS, steps(
        *(ask(*debit(400, "list=bad", "user=1")), answer({"code": "OVER_LIMIT"}, {"code": "OK"})),
        *(ask(*look("user=1")), answer(hours(600))),
        *(ask(*look("list=bad", "user=1")), answer({"code": "OVER_LIMIT"}, {"code": "OK"})),
    )),
    Case("limits in Penstock's words are all or nothing beside a debit", TOKENS, steps(
        *(ask(*debit(900, "own=1")), answer(hours(100))),
        *(ask(*debit(400, "own=1", "user=1")), answer(spent(), hours(600))),
        *(ask(*look("own=1", "user=1")), answer(hours(100), hours(600))),
        *(ask(*debit(700, "own=2", "user=1")), answer(hours(1000), spent())),
        *(ask(*look("own=2", "user=1")), answer(hours(1000), spent())),
    )),
    Case("a debit in shadow mode", TOKENS, steps(
        *(ask(*debit(900, "spy=1")), answer(hours(100))),
        *(ask(*debit(400, "spy=1")), answer(ok(0, 1000, "HOUR", 3591))),
        *(ask(*look("spy=1")), answer(ok(0, 1000, "HOUR", 3591))),
        *(ask(descriptor("spy=1", hits=200, negative=True)), answer(ok(0, 1000, "HOUR", 3591))),
        *(ask(descriptor("spy=1", hits=200, negative=True)), answer(hours(100))),
    )),
    Case("a debit of quotas", TOKENS, steps(
        *(ask(*debit(400, "rich=1", "poor=1")), answer(hours(600), spent(100), overall="OK")),
        *(ask(*look("poor=1")), answer(spent(100))),
        *(ask(*debit(700, "rich=1", "poor=1")), answer(spent(), spent(100))),
        *(ask(*look("rich=1")), answer(spent())),
        *(ask(descriptor("rich=1", hits=200, negative=True)), answer(hours(100))),
    )),
    Case("an overdrawn window is given back to", TOKENS, steps(
        *(ask(*debit(1500, "user=1")), answer(spent())),
        *(ask(descriptor("user=1", hits=500, negative=True)), answer(ok(0, 1000, "HOUR", 3591))),
        *(ask(*look("user=1")), answer(ok(0, 1000, "HOUR", 3591))),
        *(ask(descriptor("user=1", hits=1, negative=True)), answer(hours(1))),
    )),
    Case("a debit of a limit that the request brings", USER, steps(
        *(ask(descriptor("user=1", limit=(5, "HOUR"), hits=9)), answer(spent(5))),
        *(ask(descriptor("user=1", limit=(5, "HOUR"), hits=0)), answer(spent(5))),
        *(ask(descriptor("ip=1", limit=(5, "HOUR"), hits=9)), answer(spent(5))),
        *(ask(descriptor("ip=1", limit=(5, "HOUR"), hits=0)), answer(spent(5))),
    )),
    Case("a debit of one counter twice", USER, steps(
        *(ask(*debit(2, "user=1", "user=1")), answer(over(), over())),
        *(ask(descriptor("user=1", negative=True)), answer(ok(0))),
        *(ask(descriptor("user=1", negative=True)), answer(ok(1))),
    )),
]  # fmt: skip
