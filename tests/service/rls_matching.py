"""Cases: which rule applies."""

from __future__ import annotations

from service.rls_case import FREE, USER, Case, answer, ask, descriptor, ok, over, steps

DEEP = """
domain: api
descriptors:
  - key: plan
    rate_limit: {unit: minute, requests_per_unit: 3}
    descriptors:
      - {key: user, rate_limit: {unit: hour, requests_per_unit: 2}}
      - {key: user, value: boss, rate_limit: {unit: hour, requests_per_unit: 9}}
  - key: plan
    value: gold
    descriptors:
      - {key: user, value: boss, rate_limit: {unit: day, requests_per_unit: 7}}
"""
STARS = """
domain: api
descriptors:
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: path, value: /a*, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: path, value: /ab*, rate_limit: {unit: minute, requests_per_unit: 4}}
  - {key: path, value: "*.css", rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: path, value: /ab, rate_limit: {unit: minute, requests_per_unit: 6}}
  - key: file
    value: "f*"
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 3}
"""

MATCHING = [
    Case("nothing matches", USER, steps(ask("ip=1"), answer(FREE))),
    Case("the domain is not known", USER, steps(ask("user=1", domain="other"), answer(FREE))),
    Case(
        "one matches and one does not",
        USER,
        steps(
            *(ask("ip=1", "user=1"), answer(FREE, ok(2))),
            *(ask("user=1", "x=y"), answer(ok(1), FREE)),
        ),
    ),
    Case("a longer descriptor", USER, steps(ask(descriptor("user=1", "ip=2")), answer(FREE))),
    Case("a descriptor without entries", USER, steps(ask(descriptor()), answer(FREE))),
    Case("an empty key", USER, steps(ask("=1"), answer(FREE))),
    Case(
        "two levels",
        DEEP,
        steps(ask(descriptor("plan=free", "user=1")), answer(ok(1, 2, "HOUR", 3591))),
    ),
    Case("the level above is not counted", DEEP, steps(
        *(ask(descriptor("plan=free", "user=1")), answer(ok(1, 2, "HOUR", 3591))),
        *(ask("plan=free"), answer(ok(2))),
    )),
    Case("an exact value goes before none", DEEP, steps(
        ask(descriptor("plan=free", "user=boss")), answer(ok(8, 9, "HOUR", 3591))
    )),
    Case("no way back from an exact value", DEEP, steps(
        *(ask(descriptor("plan=gold", "user=1")), answer(FREE)),
        *(ask("plan=gold"), answer(FREE)),
        *(ask(descriptor("plan=gold", "user=boss")), answer(ok(6, 7, "DAY", 86391))),
    )),
    Case("the pairs have an order", DEEP, steps(
        ask(descriptor("user=1", "plan=free")), answer(FREE)
    )),
    Case("the first wildcard of the file", STARS, steps(ask("path=/abc"), answer(ok(1, 2)))),
    Case("a wildcard that stands for nothing", STARS, steps(ask("path=/a"), answer(ok(1, 2)))),
    Case("an exact value goes before wildcards", STARS, steps(ask("path=/ab"), answer(ok(5, 6)))),
    Case("a wildcard in front", STARS, steps(ask("path=x.css"), answer(ok(4, 5)))),
    Case("no wildcard fits", STARS, steps(ask("path=/x"), answer(ok(0, 1)))),
    Case("values of a wildcard count apart", STARS, steps(
        *(ask("path=/a1", hits=2), answer(ok(0, 2))),
        *(ask("path=/a2"), answer(ok(1, 2))),
    )),
    Case("values of a shared threshold count together", STARS, steps(
        *(ask("file=f1", hits=2), answer(ok(1))),
        *(ask("file=f2"), answer(ok(0))),
        *(ask("file=f3"), answer(over())),
    )),
    Case("values beyond ASCII", USER, steps(
        *(ask("user=漢字\u0000|=%"), answer(ok(2))),
        *(ask("user=漢字\u0000|=%"), answer(ok(1))),
    )),
]  # fmt: skip
