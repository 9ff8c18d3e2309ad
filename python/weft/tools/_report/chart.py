"""Line charts as inline SVG."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from weft.tools._report.markup import Markup, element, join, number

__all__ = ["Curve", "is_share", "line_chart", "thinned", "ticks"]

WIDTH, HEIGHT = 520, 280
LEFT, RIGHT, TOP, BOTTOM = 60, 508, 30, 244
COLOURS = 8
MOST_POINTS = 600
FEW_POINTS = 20
LARGEST = 1e150  # differences and ratios of such values do not overflow


class Curve(NamedTuple):
    name: str
    points: Sequence[tuple[float, float]]
    style: str = ""
    """``wide`` or ``dashed``: a dashed curve on a wide one leaves both visible. Default: a plain line."""


class Axis(NamedTuple):
    low: float
    high: float
    begin: float
    end: float
    logarithmic: bool = False

    def place(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.begin + (value - low) / (high - low) * (self.end - self.begin)


def is_share(name: str) -> bool:
    """Whether a metric is a fraction that is shown in percent: an error, or a top-k error."""
    last = name.rsplit("/", 1)[-1]
    return last.endswith("error") or re.fullmatch(r"(\w+_)?top\d+", last) is not None


def line_chart(title: str, curves: Sequence[Curve], axis: str = "step") -> Markup:
    """Returns a figure with a legend. Non-finite values leave a gap; the chart states their number.

    Errors are shown in percent.
    """
    lost = sum(not math.isfinite(point[1]) for curve in curves for point in curve.points)
    unit, factor = ("%", 100) if is_share(title) else ("", 1)
    curves = [curve._replace(points=[(x, _drawable(factor * y)) for x, y in curve.points]) for curve in curves]
    finite = [point for curve in curves for point in curve.points if math.isfinite(point[1])]
    if not finite:
        return element("figure", element("h3", title), element("p", "no finite value", class_="soft"))
    x = _axis([point[0] for point in finite], LEFT, RIGHT, grow=False)
    y = _value_axis([point[1] for point in finite])
    shown = [curve._replace(points=thinned(curve.points, MOST_POINTS)) for curve in curves]
    label = title.rsplit("/", 1)[-1] + (f" in {unit}" if unit else "")
    drawing = element(
        "svg",
        _grid(x, y, axis, label),
        *(_path(curve, x, y, index) for index, curve in enumerate(shown)),
        element("line", class_="cross", x1=LEFT, x2=LEFT, y1=TOP, y2=BOTTOM),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{title} over {axis}",
        data_series=json.dumps([{"name": c.name, "points": [_jsonable(p) for p in c.points]} for c in shown]),
        data_box=json.dumps({"left": LEFT, "right": RIGHT, "low": x.low, "high": x.high, "axis": axis, "unit": unit}),
    )
    legend = element("div", *(_key(curve, i) for i, curve in enumerate(shown)), class_="legend")
    note = [element("p", f"{lost} non-finite values", class_="soft")] if lost else []
    return element("figure", element("h3", title), drawing, legend, element("div", class_="readout"), *note)


def thinned(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Returns about ``most`` points that keep every peak: the minimum and the maximum of each stretch."""
    if len(points) <= most:
        return list(points)
    kept: list[tuple[float, float]] = [points[0]]
    stretch = math.ceil(len(points) / (most / 2))
    for begin in range(0, len(points), stretch):
        part = [i for i in range(begin, min(begin + stretch, len(points))) if math.isfinite(points[i][1])]
        ends = {min(part, key=lambda i: points[i][1]), max(part, key=lambda i: points[i][1])} if part else {begin}
        kept += [points[i] for i in sorted(ends)]
    return [*kept, points[-1]]


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Returns round numbers within the range."""
    step = 10.0 ** math.floor(math.log10((high - low) / about))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= about)
    first = math.ceil(low / step - 1e-9)
    return [(first + i) * step for i in range(int((high - first * step) / step + 1e-9) + 1)]


def _axis(values: Sequence[float], begin: float, end: float, grow: bool) -> Axis:
    low, high = min(values), max(values)
    # Widens an empty range, also if the values are so close that their difference is lost to rounding.
    if high - low <= 1e-12 * max(abs(low), abs(high)) or high == low:
        margin = abs(low) / 2 or 1.0
        low, high = low - margin, high + margin
    elif grow:
        low, high = low - (high - low) / 20, high + (high - low) / 20
    return Axis(low, high, begin, end)


def _value_axis(values: Sequence[float]) -> Axis:
    """Returns a logarithmic axis if the values are positive and span more than two orders of magnitude."""
    low, high = min(values), max(values)
    if low > 1 / LARGEST and high / low > 100:
        return Axis(10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high)), BOTTOM, TOP, True)
    return _axis(values, BOTTOM, TOP, grow=True)


def _value_ticks(axis: Axis) -> list[float]:
    if not axis.logarithmic:
        return ticks(axis.low, axis.high)
    first, last = round(math.log10(axis.low)), round(math.log10(axis.high))
    return [10.0**power for power in range(first, last + 1, math.ceil((last - first) / 6) or 1)]


def _grid(x: Axis, y: Axis, axis: str, label: str) -> Markup:
    parts = [element("text", label, x=2, y=12)]
    for value in _value_ticks(y):
        at = f"{y.place(value):.1f}"
        parts.append(element("line", class_="grid", x1=LEFT, x2=RIGHT, y1=at, y2=at))
        parts.append(element("text", number(value, 5), x=LEFT - 8, y=at, dy="0.35em", text_anchor="end"))
    for value in ticks(x.low, x.high):
        parts.append(element("text", number(value), x=f"{x.place(value):.1f}", y=BOTTOM + 18, text_anchor="middle"))
    parts.append(element("line", class_="axis", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM))
    parts.append(element("text", axis, x=(LEFT + RIGHT) / 2, y=BOTTOM + 34, text_anchor="middle"))
    return join(parts)


def _path(curve: Curve, x: Axis, y: Axis, index: int) -> Markup:
    commands = []
    move = True
    for step, value in curve.points:
        if math.isfinite(value):
            commands.append(f"{'M' if move else 'L'}{x.place(step):.1f} {y.place(value):.1f}")
        move = not math.isfinite(value)
    colour = f"stroke: var(--s{index % COLOURS})" + ("; stroke-dasharray: 6 4" if index >= COLOURS else "")
    line = element(
        "path", class_=f"curve {curve.style}".strip(), d="".join(commands), style=colour, data_name=curve.name
    )
    return join([line, *(_dots(curve, x, y, index) if len(curve.points) <= FEW_POINTS else [])])


def _dots(curve: Curve, x: Axis, y: Axis, index: int) -> list[Markup]:
    """Returns a dot per point, for curves with few points; a single point would be invisible otherwise."""
    fill = f"fill: var(--s{index % COLOURS})"
    return [
        element("circle", cx=f"{x.place(step):.1f}", cy=f"{y.place(value):.1f}", r=3, style=fill)
        for step, value in curve.points
        if math.isfinite(value)
    ]


def _key(curve: Curve, index: int) -> Markup:
    style = curve.style or ("dashed" if index >= COLOURS else None)  # as in _path
    return element("span", curve.name, class_=style, style=f"--c: var(--s{index % COLOURS})")


def _drawable(value: float) -> float:
    return max(-LARGEST, min(LARGEST, value)) if math.isfinite(value) else value


def _jsonable(point: tuple[float, float]) -> list[float | None]:
    return [point[0], point[1] if math.isfinite(point[1]) else None]
