"""``weft report runs/a`` writes runs/a/report.html, a self-contained page with curves, tables and pictures."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any

from weft.tools._report.chart import Curve, is_share, line_chart
from weft.tools._report.markup import Markup, element, number, table
from weft.tools._report.page import page, section
from weft.tools._report.pictures import KINDS, kind_of, picture
from weft.tools._report.timeline import read_spans, thread_names, timeline
from weft.tools._run import Run, RunError, Scalar

__all__ = ["render", "write"]

MOST_CARDS = 8
# Cards in the order of their importance, each with the metrics that it can show; the first one that exists counts.
CARDS = {
    "test error": ("final/test_error", "test/error"),
    "time": (),
    "ranks": (),
    "training error": ("final/train_error", "train/error"),
    "images per second": ("speed/images per second",),
    "memory of the largest rank in MiB": ("memory/MiB of the largest rank",),
    "load imbalance": ("speed/load imbalance",),
    "training cost": ("train/epoch cost", "train/cost"),
    "test cost": ("test/cost",),
}


def render(run: Run) -> str:
    """Returns the page as HTML. The page lists missing and damaged parts of the run."""
    sections = [
        _cards(run),
        _curves(run.curves),
        _facts(run.facts),
        _split(run.split),
        *_pictures(run),
        _timeline(run),
        _config(run.config),
    ]
    problems = _problems(run.problems)
    return page(run.name, _subtitle(run), [part for part in [*sections, problems] if part])


def write(folder: Path, target: Path | None = None) -> tuple[Path, list[str]]:
    """Writes the page to ``target`` (default: report.html in the folder); returns its path and the run's problems.

    Raises RunError if ``folder`` is not a run folder, and OSError if the page cannot be written.
    """
    run = Run(folder)
    text = render(run)
    target = target or run.folder / "report.html"
    partial = target.with_name(target.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(target)
    return target, run.problems


def groups(names: Iterable[str]) -> dict[str, list[str]]:
    """Groups curves that share a chart, such as train/loss and test/loss, by the last part of their names.

    Charts of errors come first. The mean cost of an epoch shares the chart of the cost.
    """
    result: dict[str, list[str]] = {}
    for name in names:
        result.setdefault(name.rsplit("/", 1)[-1].removeprefix("epoch "), []).append(name)
    return dict(sorted(result.items(), key=lambda group: not is_share(group[0])))


def _subtitle(run: Run) -> str:
    if not run.scalars:
        return "no metrics yet"
    last = max(scalar.step for scalar in run.scalars)
    begin = min(max(run.scalars[0].time, 0.0), 4e9)
    return f"{datetime.fromtimestamp(begin, timezone.utc).strftime('%Y-%m-%d %H:%M UTC')}, {last} steps"


def _cards(run: Run) -> Markup | None:
    shown = dict(islice(_important(run), MOST_CARDS))
    if not shown:
        return None
    cards = [
        element("div", element("div", value, class_="value"), element("div", name, class_="name"), class_="card")
        for name, value in shown.items()
    ]
    return element("div", *cards, class_="cards")


def _important(run: Run) -> Iterator[tuple[str, str]]:
    """Yields names and values: first the results and their cost, then the last values of other curves."""
    last = {name: points[-1].value for name, points in run.curves.items()}
    facts = run.facts or {}
    used: set[str] = set()
    for name, sources in CARDS.items():
        source = next((source for source in sources if source in last), None)
        used.update(sources)
        if name == "time" and run.seconds:
            yield name, _duration(run.seconds)
        elif name == "ranks" and "ranks" in facts:
            yield name, str(facts["ranks"])
        elif source is not None:
            yield name, _value(source, last[source])
    for name, value in last.items():
        if name not in used:
            yield name, _value(name, value)


def _value(name: str, value: float) -> str:
    return f"{100 * value:.2f}%" if is_share(name) and math.isfinite(value) else number(value, 4)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{number(seconds, 3)} s"


def _curves(curves: dict[str, list[Scalar]]) -> Markup | None:
    if not curves:
        return None
    # Cards already show single values; draw them only if there is nothing else.
    drawn = [name for name in curves if len(curves[name]) > 1] or list(curves)
    charts = [
        line_chart(title, [Curve(name, [(p.step, p.value) for p in curves[name]]) for name in names])
        for title, names in groups(drawn).items()
    ]
    return section("Curves", element("div", *charts, class_="charts"))


def _facts(facts: dict[str, Any] | None) -> Markup | None:
    if not facts:
        return None
    return section("Run", table(["", ""], [[name, _cell(value)] for name, value in facts.items()], class_="facts"))


def _split(split: Any) -> Markup | None:
    if split is None:
        return None
    if isinstance(split, list) and split and all(isinstance(row, dict) for row in split):
        columns = list(dict.fromkeys(str(key) for row in split for key in row))
        return section("Split", table(columns, [[_cell(row.get(column, "")) for column in columns] for row in split]))
    return section("Split", element("pre", json.dumps(split, indent=2, ensure_ascii=False)))


def _cell(value: Any) -> Any:
    return value if isinstance(value, (str, int, float)) else json.dumps(value, ensure_ascii=False)


def _pictures(run: Run) -> list[Markup]:
    shown: dict[str, list[Markup]] = {}
    for path in run.pictures:
        try:
            shown.setdefault(kind_of(path) or "", []).append(picture(path))
        except (ValueError, TypeError, OSError) as error:
            run.problems.append(f"pictures/{path.name}: {error}")
    titles = {**KINDS, "": "Pictures"}
    return [section(titles[kind], *shown[kind]) for kind in titles if kind in shown]


def _timeline(run: Run) -> Markup | None:
    spans = read_spans(run.trace)
    if not spans:
        return None
    note = element("p", "For the whole trace, open trace.json at ui.perfetto.dev.", class_="soft")
    return section("Timeline", note, timeline(spans, thread_names(run.trace)))


def _config(config: str | None) -> Markup | None:
    if config is None:
        return None
    return section("Experiment", element("details", element("summary", "config.yaml"), element("pre", config)))


def _problems(problems: list[str]) -> Markup | None:
    if not problems:
        return None
    items = element("ul", *(element("li", problem) for problem in problems))
    return section("Missing from this report", element("div", items, class_="problems"))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="weft report", description="write one HTML page with the curves, tables and pictures of a run"
    )
    parser.add_argument("run", type=Path, help="run folder, written by weft train")
    parser.add_argument("--out", type=Path, help="output file (default: report.html in the run folder)")
    chosen = parser.parse_args(arguments)
    try:
        target, problems = write(chosen.run, chosen.out)
    except RunError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"weft report: cannot write '{error.filename}': {error.strerror}", file=sys.stderr)
        return 1
    for problem in problems:
        print(f"weft report: {problem}", file=sys.stderr)
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
