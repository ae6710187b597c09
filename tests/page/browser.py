"""A real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
# Without these, Chromium looks for updates and other things outside of this machine.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
    "--disable-component-update", "--no-first-run", "--disable-quic",
]  # fmt: skip
WAIT = 60_000  # milliseconds until a test gives up: the machine may be busy


@contextmanager
def chromium() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (Debian: chromium)")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Tab:
    """One page, and all that went wrong in it."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.address = address
        viewport = options.pop("viewport", {"width": 1280, "height": 860})
        self.context = browser.new_context(viewport=viewport, **options)
        self.context.set_default_timeout(WAIT)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        # A busy machine's worker may be late: health is 503 for a moment, which the page shows.
        self.expected_statuses = {503, 504}
        self.elsewhere: list[str] = []
        self.clicks = 0
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.problems.append(f"error {error}"))
        self.page.on("request", self._asked)
        self.page.add_init_script(
            "document.addEventListener('securitypolicyviolation', e =>"
            " console.error('CSP ' + e.violatedDirective + ' ' + e.blockedURI))"
        )

    def _said(self, message: Any) -> None:
        text = message.text
        if message.type in ("error", "warning") and not any(
            f"status of {status}" in text for status in self.expected_statuses
        ):
            self.problems.append(text)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((f"http://{self.address}/", "data:")):
            self.elsewhere.append(request.url)

    def open(self, view: str = "overview") -> None:
        self.page.goto(f"http://{self.address}/#/{view}")

    def see(self, text: str) -> None:
        """Wait until it is shown."""
        try:
            self.page.get_by_text(text).first.wait_for()
        except Exception:
            self.picture("failed")
            shown = self.page.inner_text("body")
            raise AssertionError(f"{text!r} is not in {shown!r}, {self.problems}") from None

    def click(self, name: str, role: str = "button", exact: bool = False) -> None:
        self.page.get_by_role(role, name=name, exact=exact).first.click()
        self.clicks += 1

    def picture(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")

    def close(self) -> None:
        self.context.close()
        assert self.problems == [], self.problems
        assert self.elsewhere == [], self.elsewhere
