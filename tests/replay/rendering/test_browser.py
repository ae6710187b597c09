"""The report in a real browser: both themes, a phone, no script, no network, and hostile texts."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock._mode import REPLAY_COMPILED
from penstock.replay import Recommendation, Report, recommend, simulate
from penstock.replay.rendering.html import write_advice, write_plots, write_report
from penstock.replay.traffic import Traffic

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
RULES = {
    "domain": "web",
    "descriptors": [
        {"key": "user", "limits": "60/minute burst 15"},
        {"key": "path", "value": "/page", "limits": "5/second", "shadow_mode": True},
    ],
}
HOSTILE = "a\u202eexe.<script>alert(1)</script>" + "x" * 300
browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


def traffic() -> list[dict[str, object]]:
    chance = random.Random(3)
    people = [
        {
            "time": 1_760_000_000 + chance.uniform(0, 7200),
            "user": f"user-{at % 90}",
            "path": "/page",
        }
        for at in range(3000)
    ]
    bot = [
        {"time": 1_760_000_100 + at / 5, "user": HOSTILE, "path": f"/{at}"} for at in range(9000)
    ]
    return [*people, *bot]


@pytest.fixture(scope="module")
def results() -> tuple[Recommendation, Report]:
    return recommend(traffic(), "user"), simulate(RULES, traffic(), algorithms=True)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        yield started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@browser
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages(
    theme: str, width: int, chromium: Any, results: tuple[Recommendation, Report], tmp_path: Path
) -> None:
    write_advice(results[0], tmp_path / "advice.html")
    write_report(results[1], tmp_path / "report.html")
    context = chromium.new_context(
        color_scheme=theme, viewport={"width": width, "height": 800}, offline=False
    )
    heard: list[str] = []
    for name in ("advice", "report"):
        page = context.new_page()
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda request: heard.append(request.url))
        page.goto((tmp_path / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.locator("svg").count() >= 3
        assert page.locator("script").count() == 0
        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (back == "rgb(255, 255, 255)") == (theme == "light")
        for part in ("body", ".quiet", "th", "h2"):
            assert contrast(page, part) >= 4.5, part
        text = page.inner_text("body")
        assert "\u202e" not in text
        assert r"a\u202eexe.<script>" in text
        page.close()
    context.close()
    assert heard == [(tmp_path / f"{name}.html").as_uri() for name in ("advice", "report")]


def contrast(page: Any, part: str) -> float:
    """Of a text against the page, as WCAG counts it."""
    texts = page.evaluate(
        "part => [document.querySelector(part), document.body].map((each, at) =>"
        " getComputedStyle(each)[at ? 'backgroundColor' : 'color'])",
        part,
    )
    light = []
    for text in texts:
        channels = [int(n) / 255 for n in text.removeprefix("rgb(").removesuffix(")").split(",")]
        linear = [n / 12.92 if n <= 0.03928 else ((n + 0.055) / 1.055) ** 2.4 for n in channels]
        light.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return float((max(light) + 0.05) / (min(light) + 0.05))


@browser
def test_plots_are_files_of_their_own(
    chromium: Any, results: tuple[Recommendation, Report], tmp_path: Path
) -> None:
    write_plots(results[0], tmp_path / "advice")
    write_plots(results[1], tmp_path / "report")
    files = sorted(tmp_path.glob("*/*.svg"))
    names = {path.stem for path in files}
    assert names >= {"limits", "needs", "frontier", "asked", "refused", "week", "01-asked"}
    page = chromium.new_page()
    for path in files:
        page.goto(path.as_uri())  # a mistake in its XML would be a page of its own
        assert page.evaluate("document.documentElement.tagName") == "svg"
        assert page.evaluate("document.querySelector('parsererror')") is None
        fill = page.evaluate("getComputedStyle(document.querySelector('text')).fill")
        assert fill == "rgb(91, 91, 102)"  # the style applies
    page.close()


@pytest.mark.skipif(not REPLAY_COMPILED, reason="takes a minute uncompiled")
def test_a_million_requests_make_no_large_page(tmp_path: Path) -> None:
    text = "steady 280/s keys 20000 zipf 1.1 for 1h, burst 900 every 1m"
    requests = Traffic(text)
    advice = recommend(requests)
    assert advice.requests > 1_000_000
    write_advice(advice, tmp_path / "advice.html")
    rules = {"domain": "web", "descriptors": [{"key": "remote_address", "limits": "60/minute"}]}
    write_report(simulate(rules, Traffic(text)), tmp_path / "report.html")
    for path in tmp_path.glob("*.html"):
        assert path.stat().st_size < 500_000
