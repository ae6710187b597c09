"""A real Envoy asks a real Penstock: over both wires; plain, over TLS and over a Unix socket."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.wires.grpc import h2
from running.e2e.gateways import TYPES, Config, EnvoyConfig, upstream_tls
from running.e2e.running import (
    PATIENCE,
    Answer,
    Penstock,
    Running,
    ask,
    new_folder,
    reserved_port,
    statuses,
)
from stores.redis_server import wait_until

RULES = """
domain: edge
descriptors:
  - key: user
    limits: 5/hour
  - key: yearly
    rate_limit: {unit: year, requests_per_unit: 3}
  - key: tenant
    limits: 4/hour
    descriptors:
      - key: plan
        value: free
        limits: 2/hour
  - key: spender
    limits: 10/hour
  - key: sent
    limits: 1000/day debt 100000
  - key: tokens
    rate_limit: {unit: year, requests_per_unit: 2}
  - key: tried
    limits: 2/hour
    shadow_mode: true
  - key: free
    rate_limit: {unlimited: true}
"""


def _header(name: str) -> Config:
    return {"request_headers": {"header_name": f"x-{name}", "descriptor_key": name}}


def _limited(*names: str, **more: Any) -> Config:
    """A descriptor, if the request has these headers."""
    return {"actions": [_header(name) for name in names], **more}


OWN_KEY = {"key": "test", "path": [{"key": "limit"}]}
ASKED = [
    *[_limited(name) for name in ("user", "yearly", "tenant", "tried", "free", "unmatched")],
    _limited("tenant", "plan"),
    _limited("spender", hits_addend={"format": "%REQ(x-cost)%"}),
    _limited("sent"),  # one, if there is anything left
    # The rest when it is known: after the answer.
    _limited("sent", hits_addend={"format": "%BYTES_SENT%"}, apply_on_stream_done=True),
    _limited("tokens", hits_addend={"number": 0}),
    _limited("tokens", hits_addend={"number": 1}, apply_on_stream_done=True),
    # What the request's own metadata says goes before the rules.
    _limited("own", limit={"dynamic_metadata": {"metadata_key": OWN_KEY}}),
]  # fmt: skip

OWN_LIMIT: Config = {
    "name": "envoy.filters.http.set_metadata",
    "typed_config": {
        "@type": f"{TYPES}.filters.http.set_metadata.v3.Config",
        "metadata": [
            {
                "metadata_namespace": "test",
                "value": {"limit": {"requests_per_unit": 2, "unit": "HOUR"}},
            }
        ],
    },
}

WIRES = ("nghttp2", "grpcio")
PLACES = [(wire, link) for wire in WIRES for link in ("plain", "tls", "unix")]


@dataclass
class Place:
    """A way from the client to Penstock: Envoy's listener, and who it asks."""

    edge: str
    penstock: Penstock
    envoy_admin: str
    name: str

    def ask(self, **headers: str) -> Answer:
        return ask(self.edge, **headers)

    def statuses(self, count: int, **headers: str) -> list[int]:
        return statuses(self.edge, count, **headers)

    def errors(self) -> int:
        """How many questions of all listeners were not answered."""
        stats = json.loads(ask(self.envoy_admin, "/stats?format=json&filter=ratelimit.error").body)
        return sum(each["value"] for each in stats["stats"] if "value" in each)


@pytest.fixture(scope="module")
def places(certificates: Path, app: int) -> Iterator[dict[tuple[str, str], Place]]:
    """One Envoy before six services."""
    mutual = [
        "--tls-cert", str(certificates / "server.pem"),
        "--tls-key", str(certificates / "server.key"),
        "--tls-client-ca", str(certificates / "ca.pem"),
    ]  # fmt: skip
    folder = new_folder()
    (folder / "rules.yaml").write_text(RULES)
    with ExitStack() as stack:
        services: dict[tuple[str, str], Penstock] = {}
        for wire, link in PLACES:
            if wire == "nghttp2" and not h2.available():
                continue
            options = {"plain": [], "tls": mutual, "unix": ["--grpc", f"unix:{folder}/{wire}"]}[
                link
            ]
            penstock = Penstock(folder / "rules.yaml", "--wire", wire, "--headers", *options)
            stack.callback(penstock.end)
            services[wire, link] = penstock
        admin = stack.enter_context(reserved_port())
        config = EnvoyConfig(app, admin)
        found = {}
        for place, service in services.items():
            port = stack.enter_context(reserved_port())
            config.listen(
                port, service.wait().grpc,
                tls=upstream_tls(certificates) if place[1] == "tls" else None,
                rate_limits=ASKED, filters=(OWN_LIMIT,), failure_mode_deny=True,
            )  # fmt: skip
            found[place] = Place(
                f"127.0.0.1:{port}", service, f"127.0.0.1:{admin}", f"penstock-{port}"
            )
        running: Running = config.start()
        stack.callback(running.end)
        yield found


@pytest.fixture(params=PLACES, ids="-".join)
def place(request: pytest.FixtureRequest, places: dict[tuple[str, str], Place]) -> Place:
    if request.param not in places:
        pytest.skip("the nghttp2 extension was not built")
    return places[request.param]


@pytest.fixture
def someone() -> str:
    """Whom nobody has counted yet."""
    return uuid.uuid4().hex


# Limits -----------------------------------------------------------------------------------------


def test_so_many_and_no_more(place: Place, someone: str) -> None:
    assert place.statuses(7, x_user=someone) == [200] * 5 + [429] * 2
    assert place.ask(x_user=someone + "2").status == 200


def test_clients_at_the_same_time_share_a_limit_exactly(place: Place, someone: str) -> None:
    with ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(lambda _: place.ask(x_user=someone).status, range(36)))
    assert sorted(statuses) == [200] * 5 + [429] * 31
    assert place.errors() == 0


def test_headers_say_what_is_left(place: Place, someone: str) -> None:
    answers = [place.ask(x_user=someone) for _ in range(6)]
    assert [each.headers["x-ratelimit-limit"] for each in answers] == ["5, 5;w=3600"] * 6
    assert [each.headers["x-ratelimit-remaining"] for each in answers] == list("432100")
    resets = [int(each.headers["x-ratelimit-reset"]) for each in answers]
    assert 700 <= resets[0] <= 720
    assert 700 <= resets[5] <= 720, "when the next one passes"
    assert answers[5].headers["x-envoy-ratelimited"] == "true"
    assert answers[0].headers["x-app"] == "here"
    assert answers[5].headers["x-app"] is None
    # What Penstock itself adds, by --headers, also to a refusal.
    assert [each.headers["RateLimit-Remaining"] for each in answers] == list("432100")


def test_rules_of_envoys_format_have_its_windows(place: Place, someone: str) -> None:
    answers = [place.ask(x_yearly=someone) for _ in range(4)]
    assert [each.status for each in answers] == [200, 200, 200, 429]
    assert answers[0].headers["x-ratelimit-limit"] == "3, 3;w=31536000"
    first, last = (int(answers[at].headers["x-ratelimit-reset"]) for at in (0, 3))
    assert 0 <= first - last < 60  # until the end of the window, not longer for each request


def test_of_several_descriptors_the_tightest_decides(place: Place, someone: str) -> None:
    answers = [place.ask(x_tenant=someone, x_plan="free") for _ in range(3)]
    assert [each.status for each in answers] == [200, 200, 429]
    # Of 4 an hour for the tenant, and 2 for its plan: the one with least left is told.
    limits = [each.headers["x-ratelimit-limit"] for each in answers]
    assert [each.partition(",")[0] for each in limits] == ["2", "2", "2"]
    # The refused request took nothing from the tenant's limit.
    assert place.statuses(3, x_tenant=someone) == [200, 200, 429]


def test_a_request_weighs_what_its_descriptor_says(place: Place, someone: str) -> None:
    first = place.ask(x_spender=someone, x_cost="7")
    assert (first.status, first.headers["x-ratelimit-remaining"]) == (200, "3")
    assert place.ask(x_spender=someone, x_cost="4").status == 429
    assert place.ask(x_spender=someone, x_cost="3").status == 200
    # Nothing is asked for: a look, which is allowed as long as the limit is not exceeded.
    assert place.ask(x_spender=someone, x_cost="0").headers["x-ratelimit-remaining"] == "0"
    assert place.ask(x_spender=someone, x_cost="1").status == 429


def test_what_an_answer_weighed_is_counted_after_it(place: Place, someone: str) -> None:
    """The last may go beyond the limit, by the debt that the rule allows; then it is over."""

    def is_left(units: int) -> bool:
        (counter,) = place.penstock.told(f"/v1/counters?descriptor=sent={someone}")["counters"]
        return bool(counter["limits"][0]["remaining"] == units)

    expected = 1000
    while expected > 0:
        answer = place.ask(x_sent=someone)
        assert (answer.status, answer.headers["x-ratelimit-remaining"]) == (200, str(expected - 1))
        expected -= 1 + len(answer.body)
        wait_until(partial(is_left, max(0, expected)), "the answer to be counted", PATIENCE)
    assert expected < 0
    assert place.statuses(2, x_sent=someone) == [429] * 2


def test_looks_first_and_debits_after(place: Place, someone: str) -> None:
    """As in the tests of Envoy's service: with two, the third passes and the fourth does not."""

    def debits() -> float:
        outcomes = ("allowed", "near_limit", "refused")
        return sum(
            place.penstock.counted("penstock_decisions_total", rule="edge/tokens", outcome=each)
            for each in outcomes
        )

    before = debits()
    for number in range(1, 4):
        assert place.ask(x_tokens=someone).status == 200
        # Each request is a look and a debit.
        counted = partial(lambda wanted: debits() - before >= wanted, 2 * number)
        wait_until(counted, "the debit to be counted", PATIENCE)
    assert place.statuses(2, x_tokens=someone) == [429] * 2


def test_a_limit_in_the_request_goes_before_the_rules(place: Place, someone: str) -> None:
    answers = [place.ask(x_own=someone) for _ in range(3)]
    assert [each.status for each in answers] == [200, 200, 429]
    assert answers[0].headers["x-ratelimit-limit"] == "2, 2;w=3600"


def test_a_shadow_rule_refuses_nobody_and_is_counted(place: Place, someone: str) -> None:
    def shadowed() -> float:
        return place.penstock.counted(
            "penstock_decisions_total", rule="edge/tried", outcome="shadowed"
        )

    before = shadowed()
    assert place.statuses(5, x_tried=someone) == [200] * 5
    assert shadowed() - before == 3


def test_what_no_rule_limits_goes_ahead(place: Place, someone: str) -> None:
    for name in ("x_free", "x_unmatched"):
        answer = place.ask(**{name: someone})
        assert answer.status == 200
        assert answer.headers["x-ratelimit-limit"] is None
    assert place.statuses(3) == [200] * 3  # no descriptor at all: Penstock is not asked


def test_metrics_count_what_envoy_was_told(place: Place, someone: str) -> None:
    def counted() -> list[float]:
        return [
            place.penstock.counted("penstock_requests_total", outcome=outcome)
            for outcome in ("allowed", "refused")
        ]

    before = counted()
    place.statuses(8, x_user=someone)
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [5, 3]
