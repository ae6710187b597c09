"""A log with known people, offices and programs: the recommendation tells them apart."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.replay import Requests, recommend, simulate
from penstock.replay.behaviour import describe
from penstock.replay.recommending import sampling as module
from penstock.replay.recommending.choosing import choose, nice_between, nice_up
from penstock.replay.rendering.advice import headline, sections
from penstock.replay.rendering.terminal import as_text

START = 1_760_000_000
BROWSERS = [f"Mozilla/5.0 (X11) AppleWebKit/537.36 Chrome/{n}.0 Safari/537.36" for n in range(40)]


def people(chance: random.Random, hours: int, count: int) -> list[dict[str, object]]:
    out = []
    for who in range(count):
        agent = BROWSERS[who % len(BROWSERS)]
        for _ in range(chance.randint(1, 3)):
            time = START + chance.uniform(0, hours * 3600 - 600)
            for _ in range(chance.randint(2, 8)):
                out.append(request(time, f"192.0.{who >> 8}.{who & 255}", "/page", agent))
                for asset in range(chance.randint(0, 3)):
                    out.append(
                        request(
                            time + chance.uniform(0.1, 1.5), f"192.0.{who >> 8}.{who & 255}",
                            f"/static/{asset}.css", agent,
                        )
                    )  # fmt: skip
                time += chance.expovariate(1 / 25)
    return out


def office(chance: random.Random, hours: int) -> list[dict[str, object]]:
    """Thirty people behind one address."""
    out = []
    for who in range(30):
        for each in people(chance, hours, 2):
            out.append(
                {**each, "remote_address": "198.51.100.7", "header:user-agent": BROWSERS[who]}
            )
    return out


def bots(hours: int) -> list[dict[str, object]]:
    """Three scrapers at three a second."""
    out = []
    for bot in range(3):
        for n in range(3 * 1800):
            time = START + 600 + bot + n / 3
            out.append(request(time, f"203.0.113.{bot}", f"/item/{n}", "python-requests/2.31"))
    return out


def request(time: float, address: str, path: str, agent: str) -> dict[str, object]:
    return {
        "time": time, "remote_address": address, "path": path, "header:user-agent": agent,
        "status": 200, "method": "GET",
    }  # fmt: skip


def traffic(hours: int = 8, count: int = 300) -> list[dict[str, object]]:
    chance = random.Random(5)
    return [*people(chance, hours, count), *office(chance, hours), *bots(hours)]


def test_people_stay_below_and_bots_are_named() -> None:
    advice = recommend(traffic())
    assert advice.limit is not None
    assert advice.choice is not None
    assert advice.choice.how == "plateau"
    names = {key.key: describe(key) for key in advice.heaviest}
    for bot in range(3):
        assert names[f"remote_address=203.0.113.{bot}"].startswith("looks automated")
    assert names["remote_address=198.51.100.7"].startswith("looks shared")
    # The rules that it prints, enforced: only the bots are refused.
    report = simulate(advice.yaml.replace("    shadow_mode: true\n", ""), traffic())
    (rule,) = report.rules
    assert {key.key for key in rule.top} == {f"remote_address=203.0.113.{n}" for n in range(3)}
    assert advice.whole is not None
    assert (rule.refused, rule.keys_refused) == (advice.whole.refused, 3)
    assert advice.whole.keys_automated == 3


def test_the_shadow_rule_refuses_nothing() -> None:
    advice = recommend(traffic())
    report = simulate(advice.yaml, traffic())
    assert report.refused == 0
    assert report.rules[0].refused > 0


def test_noise_does_not_change_it(tmp_path: Path) -> None:
    """A fifth of the lines cannot be read."""
    log = tmp_path / "access.log"
    chance = random.Random(1)
    with log.open("w") as out:
        for each in sorted(traffic(), key=lambda each: float(str(each["time"]))):
            stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(float(str(each["time"]))))
            out.write(
                f'{each["remote_address"]} - - [{stamp}] "GET {each["path"]} HTTP/1.1" 200 5 "-"'
                f' "{each["header:user-agent"]}"\n'
            )
            if chance.random() < 0.25:
                out.write('\x00\x16 noise [2026] "\n')
    advice = recommend(log)
    assert advice.malformed > 0.15 * advice.lines
    assert advice.limit == recommend(traffic()).limit
    assert any("could not be read" in warning for warning in advice.warnings)


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        (traffic()[:500], "too few"),
        ([request(START + n, "192.0.2.1", "/", "x") for n in range(3000)], "1 key is too few"),
        (
            [request(START + n / 100, f"192.0.2.{n % 200}", "/", "x") for n in range(3000)],
            "too short",
        ),
    ],
)
def test_too_little_is_refused_with_the_reason(
    requests: list[dict[str, object]], words: str
) -> None:
    advice = recommend(Requests.of(requests))
    assert advice.limit is None
    assert words in advice.reason
    assert advice.yaml == ""


def test_memory_is_bounded_by_leaving_out_whole_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    many = traffic(count=3000)
    full = recommend(many)
    monkeypatch.setattr(module, "_HEAVIEST", 10)
    monkeypatch.setattr(module, "_LEAST_ARRIVALS", 1000)
    monkeypatch.setattr(module, "_ARRIVAL_BYTES", 100)  # the tables are large beside so few
    advice = recommend(many, memory=full.memory + 40_000 * 100 - 36 * full.requests)
    assert advice.stopped == ""
    assert advice.memory <= full.memory + 40_000 * 100 - 36 * full.requests
    assert 0 < advice.sampled < 1
    assert full.heaviest == advice.heaviest  # the heaviest are never lost
    assert advice.limit == full.limit
    assert any("of the keys were looked at" in warning for warning in advice.warnings)


def test_too_many_keys_for_the_memory_are_said_so() -> None:
    many = traffic(count=3000)
    advice = recommend(many, memory=1 << 20)
    assert advice.stopped.startswith("stopped after ")
    assert advice.warnings[0] == advice.stopped
    report = simulate(advice_rules, many, memory=1 << 20)
    assert "write --memory with more" in report.warnings[0]
    assert simulate(advice_rules, many).stopped == ""


advice_rules = {"domain": "web", "descriptors": [{"key": "remote_address", "limits": "9/minute"}]}


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "access.log"
    log.write_text('192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 5 "-" "x"\n')
    assert main(["recommend", str(log)]) == 1
    assert "No recommendation: 1 request is too few" in capsys.readouterr().out
    assert main(["recommend", str(tmp_path / "missing")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_numbers_that_people_write() -> None:
    assert [nice_up(n) for n in (0.5, 7, 11, 12.1, 99, 101, 1300)] == [1, 8, 12, 15, 100, 120, 1500]
    for low in range(1, 60):
        for high in range(low + 1, 120):
            assert low <= nice_between(low, high) < high
    assert choose([1] * 99 + [100], people=1).plateau == (1, 100)
    assert choose([1] * 99 + [100], people=100).how == "quantile"


def test_the_first_line_is_about_what_was_held_out() -> None:
    """The bots ask in the first hour of eight: in the last 30 % of the time nobody is refused."""
    advice = recommend(traffic())
    assert advice.holdout is not None
    assert advice.whole is not None
    assert advice.holdout.refused == 0
    assert advice.whole.refused > 0
    first = headline(advice)
    assert f"refuses none of {advice.holdout.requests:,} requests" in first
    text = as_text(sections(advice))
    assert f"of {advice.whole.requests:,} requests, from 3 of" in text
    assert "95 % sure" in text
    assert len(advice.trades) == 2


def test_other_rates_with_their_burst_refuse_nobody() -> None:
    advice = recommend(traffic())
    for limit in advice.trades:
        rules = advice.yaml.replace(str(advice.limit), limit).replace("shadow_mode: true", "")
        (rule,) = simulate(rules, traffic()).rules
        assert {key.key for key in rule.top} <= {f"remote_address=203.0.113.{n}" for n in range(3)}
