"""Renders the trace: spans as bars per rank and thread, and total times per kind of span."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any, NamedTuple

from weft.tools._report.chart import ticks
from weft.tools._report.markup import Markup, element, join, number, table

__all__ = ["Span", "read_spans", "thread_names", "timeline"]

WIDTH, LEFT, ROW = 1000, 110, 26
MOST_SPANS = 2500
COLOURS = 8


class Span(NamedTuple):
    rank: int
    thread: int
    name: str
    begin: float  # microseconds
    duration: float

    @property
    def end(self) -> float:
        return self.begin + self.duration


def read_spans(events: list[dict[str, Any]]) -> list[Span]:
    """Returns the valid spans, sorted by start time."""
    spans = []
    for event in events:
        try:
            span = Span(
                int(event["pid"]), int(event["tid"]), str(event["name"]), float(event["ts"]), float(event["dur"])
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
        if math.isfinite(span.begin) and math.isfinite(span.duration) and span.duration >= 0:
            spans.append(span)
    return sorted(spans, key=lambda span: span.begin)


def thread_names(events: list[dict[str, Any]]) -> dict[tuple[int, int], str]:
    """Returns the names of threads in the trace, by rank and thread."""
    names = {}
    for event in events:
        try:
            if event["ph"] == "M" and event["name"] == "thread_name":
                names[int(event["pid"]), int(event["tid"])] = str(event["args"]["name"])
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
    return names


def timeline(spans: list[Span], threads: dict[tuple[int, int], str] | None = None) -> Markup:
    """Returns the bars and the totals. If there are too many spans, the bars show a stretch from the middle."""
    names = sorted({span.name for span in spans}, key=lambda name: -sum(s.duration for s in spans if s.name == name))
    shown = _stretch(spans)
    part = "" if len(shown) == len(spans) else f" ({len(shown)} of {len(spans)} spans, from the middle of the run)"
    begin, end = shown[0].begin, max(span.end for span in shown)
    caption = f"{number((end - begin) / 1e6, 4)} seconds{part}"
    legend = [element("span", name, style=f"--c: {_colour(names, name)}") for name in names[:COLOURS]]
    return join(
        [
            element(
                "figure",
                element("p", caption, class_="soft"),
                element("div", _bars(shown, names, threads or {}), class_="scroll"),
                element("div", *legend, class_="legend"),
            ),
            element("h3", "Seconds in each kind of span, by rank", style="margin-top: 24px"),
            _totals(spans, names),
        ]
    )


def _stretch(spans: list[Span]) -> list[Span]:
    if len(spans) <= MOST_SPANS:
        return spans
    begin = (len(spans) - MOST_SPANS) // 2
    return spans[begin : begin + MOST_SPANS]


def _bars(spans: list[Span], names: list[str], threads: dict[tuple[int, int], str]) -> Markup:
    rows = {place: i for i, place in enumerate(sorted({(span.rank, span.thread) for span in spans}))}
    begin, end = spans[0].begin, max(span.end for span in spans)
    scale = (WIDTH - LEFT) / ((end - begin) or 1.0)
    height = ROW * len(rows)
    parts = _axis((end - begin) / 1e6, height)
    parts += [
        element("text", f"rank {place[0]}, {threads.get(place, f'thread {place[1]}')}", x=0, y=ROW * i + 17)
        for place, i in rows.items()
    ]
    depths = _depths(spans)
    for span, depth in zip(spans, depths):
        inset = min(depth, 4) * 3  # nested spans are drawn narrower
        parts.append(
            element(
                "rect",
                element("title", f"{span.name}: {number(span.duration / 1000, 4)} ms"),
                x=f"{LEFT + (span.begin - begin) * scale:.2f}",
                y=ROW * rows[span.rank, span.thread] + 3 + inset,
                width=f"{max(span.duration * scale, 0.3):.2f}",
                height=ROW - 6 - 2 * inset,
                style=f"fill: {_colour(names, span.name)}",
            )
        )
    return element(
        "svg", *parts, viewBox=f"0 0 {WIDTH} {height + 40}", role="img", aria_label="timeline", class_="timeline"
    )


def _axis(seconds: float, height: int) -> list[Markup]:
    """Returns grid lines and labels at round numbers of seconds, or of milliseconds if the timeline is short."""
    factor, unit = (1.0, "seconds") if seconds >= 1 else (1000.0, "milliseconds")
    parts = []
    for value in ticks(0, (seconds or 1.0) * factor, 10):
        x = f"{LEFT + value / factor / (seconds or 1.0) * (WIDTH - LEFT):.1f}"
        parts.append(element("line", class_="grid", x1=x, x2=x, y1=0, y2=height))
        parts.append(element("text", number(value, 4), x=x, y=height + 16, text_anchor="middle"))
    parts.append(element("text", unit, x=(LEFT + WIDTH) / 2, y=height + 34, text_anchor="middle"))
    return parts


def _depths(spans: list[Span]) -> list[int]:
    """Returns the nesting depth of each span within its thread; spans are sorted by start time."""
    around: dict[tuple[int, int], list[float]] = defaultdict(list)
    depths = []
    for span in spans:
        ends = around[span.rank, span.thread]
        while ends and ends[-1] <= span.begin:
            ends.pop()
        depths.append(len(ends))
        ends.append(span.end)
    return depths


def _totals(spans: list[Span], names: list[str]) -> Markup:
    ranks = sorted({span.rank for span in spans})
    seconds: dict[tuple[str, int], float] = defaultdict(float)
    for span in spans:
        seconds[span.name, span.rank] += span.duration / 1e6
    rows = [[name, *(round(seconds[name, rank], 3) for rank in ranks)] for name in names]
    return table(["span", *(f"rank {rank}" for rank in ranks)], rows)


def _colour(names: list[str], name: str) -> str:
    index = names.index(name)
    return f"var(--s{index})" if index < COLOURS else "var(--line)"
