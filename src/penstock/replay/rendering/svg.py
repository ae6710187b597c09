"""Plots as SVG, without a library: colours come from the page's CSS, so that both themes work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

Point = tuple[float, float]
WIDTH, HEIGHT = 820, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 20, 34
# Seconds between two marks on an axis of time
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_TIMES = [
    1, 5, 15, 30, _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE, _HOUR, 2 * _HOUR,
    3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY, 28 * _DAY, 91 * _DAY,
    365 * _DAY,
]  # fmt: skip


def short(value: float) -> str:
    """1,240 or 12.4k or 0.03, for an axis."""
    if value == 0:
        return "0"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):g}{unit}"
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.2g}"


class Plot:
    """One plot. Points are in the units of the data; ``log`` axes start above zero."""

    def __init__(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        title: str,
        x_label: str = "",
        y_label: str = "",
        log_x: bool = False,
        log_y: bool = False,
        time_x: bool = False,
        height: int = HEIGHT,
    ) -> None:
        self._x, self._y = _widened(*x, log_x), _widened(*y, log_y)
        self._log_x, self._log_y, self._time_x = log_x, log_y, time_x
        self._height = height
        self._title = title
        self._parts: list[str] = []
        self._labels = (x_label, y_label)

    def across(self, value: float) -> float:
        return _LEFT + _place(value, *self._x, self._log_x) * (WIDTH - _LEFT - _RIGHT)

    def up(self, value: float) -> float:
        room = self._height - _TOP - _BOTTOM
        return self._height - _BOTTOM - _place(value, *self._y, self._log_y) * room

    def line(self, points: Sequence[Point], kind: str, *, steps: bool = False) -> None:
        if points:
            self._parts.append(f'<path class="line {kind}" d="{self._path(points, steps)}"/>')

    def area(self, points: Sequence[Point], kind: str) -> None:
        """From the axis up to the line."""
        if points:
            low = self.up(self._y[0])
            start, end = self.across(points[0][0]), self.across(points[-1][0])
            path = self._path(points, False)
            self._parts.append(
                f'<path class="area {kind}" d="{path}L{end:.1f},{low:.1f}L{start:.1f},{low:.1f}Z"/>'
            )

    def band(self, start: float, end: float, text: str) -> None:
        """A range on the x axis, shaded."""
        left, right = self.across(start), self.across(end)
        self._parts.append(
            f'<rect class="band" x="{left:.1f}" y="{_TOP}" width="{max(1.0, right - left):.1f}"'
            f' height="{self._height - _TOP - _BOTTOM}"/>'
            f'<text class="note" x="{left + 4:.1f}" y="{_TOP + 11}">{escape(text)}</text>'
        )

    def mark(self, at: float, text: str) -> None:
        """A vertical line with a text beside it."""
        x = self.across(at)
        anchor, shift = ("end", -5) if x > WIDTH * 0.7 else ("start", 5)
        self._parts.append(
            f'<line class="chosen" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}"'
            f' y2="{self._height - _BOTTOM}"/><text class="chosen" x="{x + shift:.1f}"'
            f' y="{_TOP + 25}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def dot(self, x: float, y: float, text: str) -> None:
        across, up = self.across(x), self.up(y)
        anchor, shift = ("end", -9) if across > WIDTH * 0.7 else ("start", 9)
        self._parts.append(
            f'<circle class="chosen" cx="{across:.1f}" cy="{up:.1f}" r="5"/>'
            f'<text class="chosen" x="{across + shift:.1f}" y="{up - 9:.1f}"'
            f' text-anchor="{anchor}">{escape(text)}</text>'
        )

    def bar(self, x: float, width: float, low: float, high: float, kind: str) -> None:
        """``width`` in pixels."""
        top, bottom = self.up(high), self.up(low)
        self._parts.append(
            f'<rect class="bar {kind}" x="{self.across(x) - width / 2:.1f}" y="{top:.1f}"'
            f' width="{width:.1f}" height="{max(0.0, bottom - top):.1f}"/>'
        )

    def text(self) -> str:
        x_label, y_label = self._labels
        base = self._height - _BOTTOM
        axes = [f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{base}" y2="{base}"/>']
        for value in _ticks(*self._y, self._log_y, 4):
            y = self.up(value)
            axes.append(
                f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(value)}</text>'
            )
        for value, label in self._x_ticks():
            axes.append(
                f'<text x="{self.across(value):.1f}" y="{base + 15}" text-anchor="middle">'
                f"{escape(label)}</text>"
            )
        labels = (
            f'<text x="{WIDTH - _RIGHT}" y="{self._height - 4}" text-anchor="end">'
            f'{escape(x_label)}</text><text x="{_LEFT}" y="{_TOP - 7}">{escape(y_label)}</text>'
        )
        return (
            f'<svg viewBox="0 0 {WIDTH} {self._height}" role="img"'
            f' aria-label="{escape(self._title)}"><title>{escape(self._title)}</title>'
            + "".join(axes)
            + "".join(self._parts)
            + labels
            + "</svg>"
        )

    def _x_ticks(self) -> list[tuple[float, str]]:
        if not self._time_x:
            return [(value, short(value)) for value in _ticks(*self._x, self._log_x, 7)]
        start, end = self._x
        step = next((each for each in _TIMES if (end - start) / each <= 8), _TIMES[-1])
        form = "%H:%M:%S" if step < 60 else "%H:%M" if end - start <= 86400 else "%m-%d %H:%M"
        form = "%m-%d" if step >= 86400 else form
        first = -(-start // step) * step
        return [
            (value, datetime.fromtimestamp(value, UTC).strftime(form))
            for value in (first + step * at for at in range(int((end - first) // step) + 1))
        ]

    def _path(self, points: Sequence[Point], steps: bool) -> str:
        out = ""
        last = 0.0
        for at, (x, y) in enumerate(points):
            across, up = self.across(x), self.up(y)
            if steps and at:
                out += f"L{across:.1f},{last:.1f}"
            out += f"{'L' if at else 'M'}{across:.1f},{up:.1f}"
            last = up
        return out


def heat_map(cells: Sequence[int], title: str) -> str:
    """Requests by hour and weekday: 168 cells from Monday on."""
    most = max(cells) or 1
    size, high, left = 30, 22, 44
    parts = []
    for day, name in enumerate(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")):
        parts.append(f'<text x="{left - 8}" y="{day * high + 16}" text-anchor="end">{name}</text>')
        for hour in range(24):
            count = cells[24 * day + hour]
            parts.append(
                f'<rect class="heat" x="{left + hour * size}" y="{day * high}" width="{size - 2}"'
                f' height="{high - 2}" rx="2" fill-opacity="{count / most:.3f}"><title>{name}'
                f" {hour:02}:00 UTC: {count:,} requests</title></rect>"
            )
    for hour in range(0, 24, 3):
        parts.append(
            f'<text x="{left + hour * size + size / 2:.0f}" y="{7 * high + 12}"'
            f' text-anchor="middle">{hour:02}</text>'
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {7 * high + 18}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def _widened(low: float, high: float, log: bool) -> tuple[float, float]:
    if log:
        low = max(low, 1e-9)
        return (low, max(high, low * 2))
    return (low, high if high > low else low + 1)


def _place(value: float, low: float, high: float, log: bool) -> float:
    if log:
        value = max(value, low)
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)


def _ticks(low: float, high: float, log: bool, most: int) -> list[float]:
    if log:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        step = max(1, math.ceil((last - first) / most))
        marks = [10.0**power for power in range(first, last + 1, step)]
        if last - first <= 2:
            marks = sorted({*marks, *(2 * mark for mark in marks), *(5 * mark for mark in marks)})
        return [mark for mark in marks if low * 0.999 <= mark <= high * 1.001]
    rough = (high - low) / most
    power = 10 ** math.floor(math.log10(rough)) if rough > 0 else 1
    size = next(step * power for step in (1, 2, 5, 10) if step * power >= rough * 0.999)
    first = math.ceil(low / size)
    return [number * size for number in range(first, math.floor(high / size + 1e-9) + 1)]
