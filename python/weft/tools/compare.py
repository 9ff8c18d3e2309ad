"""``weft compare runs/a runs/b [--html page.html] [--tolerance 1e-4]`` compares two runs.

Prints the settings that differ, the time and the speed-up, the largest difference between the weights of the last
checkpoints, the last value of each curve, and the largest difference between the curves.
"""

from __future__ import annotations

import argparse
import math
import sys
from difflib import SequenceMatcher
from pathlib import Path
from textwrap import shorten
from typing import NamedTuple

import torch

from weft import checkpoint
from weft.tools._report.chart import Curve, line_chart
from weft.tools._report.markup import Markup, element, number, printable, table
from weft.tools._report.page import page, section
from weft.tools._run import Run, RunError, Scalar

__all__ = [
    "CurveDifference",
    "ParameterDifference",
    "compare_curves",
    "compare_parameters",
    "compare_settings",
    "compare_times",
]


class CurveDifference(NamedTuple):
    """Difference between the curves of the same name in two runs."""

    name: str
    last: tuple[float | None, float | None]
    """The last value of each run; None if it has no such curve."""
    largest: float | None
    """The largest difference at a common step, relative to the larger value; None without common steps."""
    step: int | None
    """The step of the largest difference."""
    common: int
    """The number of common steps."""


class ParameterDifference(NamedTuple):
    """Difference between the parameters of two checkpoints. The state of the optimizer counts separately."""

    name: str
    """The parameter that differs most."""
    largest: float
    relative_name: str
    """The parameter that differs most relative to its own largest value."""
    relative: float
    only: tuple[list[str], list[str]]
    """Names and shapes of the tensors that only one run has."""
    compared: int
    state_name: str = ""
    """The tensor of the optimizer's state that differs most relative to its own largest value."""
    state: float = 0.0


def compare_curves(first: Run, second: Run) -> list[CurveDifference]:
    """Compares all curves of two runs."""
    names = list(dict.fromkeys([*first.curves, *second.curves]))
    return [_compare_curve(name, first.curves.get(name, []), second.curves.get(name, [])) for name in names]


def compare_parameters(first: Path, second: Path) -> ParameterDifference:
    """Compares the checkpoints in two folders. Raises CheckpointError if one is missing or damaged."""
    ours, theirs = checkpoint.load(first), checkpoint.load(second)
    common = {name for name in ours if name in theirs and ours[name].shape == theirs[name].shape}
    distances = {name: _distance(ours[name], theirs[name]) for name in sorted(common)}
    weights = {name: distance for name, distance in distances.items() if not _is_optimizer_state(name, ours)}
    largest, name = _worst({name: distance[0] for name, distance in weights.items()})
    relative, relative_name = _worst({name: distance[1] for name, distance in weights.items()})
    state, state_name = _worst({name: distances[name][1] for name in distances if name not in weights})
    only = (_others(ours, common), _others(theirs, common))
    return ParameterDifference(name, largest, relative_name, relative, only, len(weights), state_name, state)


def _is_optimizer_state(name: str, tensors: dict[str, torch.Tensor]) -> bool:
    """Whether the tensor is a velocity, a moment or a counter of the parameter whose name precedes the last dot."""
    parameter, _, kind = name.rpartition(".")
    return kind in ("momentum", "square", "updates") and parameter in tensors


def _compare_curve(name: str, ours: list[Scalar], theirs: list[Scalar]) -> CurveDifference:
    known = {point.step: point.value for point in theirs}
    largest: float | None = None
    where = None
    common = [point for point in ours if point.step in known]
    for point in common:
        difference = relative_difference(point.value, known[point.step])
        if largest is None or difference > largest:
            largest, where = difference, point.step
    last = (ours[-1].value if ours else None, theirs[-1].value if theirs else None)
    return CurveDifference(name, last, largest, where, len(common))


def relative_difference(a: float, b: float) -> float:
    """Returns 0 for equal values, equal infinities and two NaNs, and infinity if only one value is finite."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(abs(a), abs(b))


def _worst(distances: dict[str, float]) -> tuple[float, str]:
    name = max(distances, key=distances.__getitem__, default="")
    return distances.get(name, 0.0), name


def _distance(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    """Returns the largest absolute and relative difference. Equal infinities, and two NaNs, do not differ."""
    a, b = a.double(), b.double()
    same = (a == b) | (a.isnan() & b.isnan())
    finite = a.isfinite() & b.isfinite()
    if bool(same.all()):
        return 0.0, 0.0
    if not bool((same | finite).all()):
        return math.inf, math.inf
    a, b = a[finite], b[finite]
    largest = float((a - b).abs().max())
    return largest, largest / float(torch.maximum(a.abs(), b.abs()).max())


def _others(tensors: dict[str, torch.Tensor], common: set[str]) -> list[str]:
    return [f"{name} {list(tensor.shape)}" for name, tensor in tensors.items() if name not in common]


def _table_rows(curves: list[CurveDifference]) -> list[list[str]]:
    def shown(value: float | None) -> str:
        return "-" if value is None else number(value)

    return [
        [
            curve.name,
            shown(curve.last[0]),
            shown(curve.last[1]),
            shown(curve.largest),
            "-" if curve.step is None else str(curve.step),
            str(curve.common),
        ]
        for curve in curves
    ]


def compare_settings(first: Run, second: Run) -> list[list[str]]:
    """Returns rows of name, value of a and value of b: facts of run.json that differ, and lines of config.yaml."""
    facts = [run.facts or {} for run in (first, second)]
    rows = [
        [name, *(str(each.get(name, "-")) for each in facts)]
        for name in dict.fromkeys([*facts[0], *facts[1]])
        if facts[0].get(name) != facts[1].get(name)
    ]
    before, after = ((run.config or "").splitlines() for run in (first, second))
    for kind, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes()[:MOST_CHANGES]:
        if kind != "equal":
            rows.append(["config.yaml", *("; ".join(map(str.strip, lines)) for lines in (before[i:j], after[k:m]))])
    return rows


def compare_times(first: Run, second: Run) -> list[list[str]]:
    """Returns rows of name, value of a, value of b and ratio: the duration, and the images per second."""
    rows = []
    if first.seconds and second.seconds:
        values = [number(run.seconds, 4) for run in (first, second)]
        rows.append(["seconds", *values, f"{number(first.seconds / second.seconds, 3)} (speed-up of b)"])
    speeds = [run.curves.get(SPEED) for run in (first, second)]
    if speeds[0] and speeds[1]:
        last = [curve[-1].value for curve in speeds if curve]
        ratio = number(last[1] / last[0], 3) if last[0] > 0 else "-"
        rows.append(["images per second", *(number(value, 4) for value in last), ratio])
    return rows


SPEED = "speed/images per second"
MEASURED = ("speed/", "memory/")
MOST_CHANGES = 40
SETTINGS_HEAD = ["setting", "a", "b"]
TIMES_HEAD = ["", "a", "b", "b relative to a"]
HEAD = ["curve", "last, a", "last, b", "largest difference", "at step", "common steps"]


def _print_table(head: list[str], rows: list[list[str]]) -> None:
    """Prints a table and an empty line, or nothing if there are no rows."""
    shown = [head, *([shorten(cell, 60, placeholder=" ...") for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in shown) for i in range(len(head))]
    for row in shown if rows else []:
        _say("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    if rows:
        print()


def _say(text: str) -> None:
    print(printable(text))


def describe_parameters(difference: ParameterDifference) -> list[str]:
    """Returns the difference as lines of text."""
    lines = [
        f"weights: largest difference {number(difference.largest)} in {difference.name} "
        f"({difference.compared} parameters compared)",
        f"weights: largest difference relative to a parameter's largest value {number(difference.relative)} in "
        f"{difference.relative_name}",
    ]
    if difference.state_name:
        lines.append(f"optimizer: largest relative difference {number(difference.state)} in {difference.state_name}")
    if not difference.compared:
        lines = ["the checkpoints have no parameter in common"]
    for which, only in zip("ab", difference.only):
        if only:
            lines.append(f"only in {which}: " + ", ".join(only[:10]) + (", ..." if len(only) > 10 else ""))
    return lines


def _page(first: Run, second: Run, curves: list[CurveDifference], parameters: list[str]) -> str:
    charts: list[Markup] = []
    for curve in curves:
        # The second curve is dashed, on top of a wide first one: equal curves stay visible.
        shown = [
            Curve(f"{which}: {run.name}", [(p.step, p.value) for p in run.curves.get(curve.name, [])], style)
            for which, run, style in (("a", first, "wide"), ("b", second, "dashed"))
            if curve.name in run.curves
        ]
        charts.append(line_chart(curve.name, shown))
    settings, times = compare_settings(first, second), compare_times(first, second)
    same = element("p", "no differences", class_="soft")
    return page(
        f"{first.name} and {second.name}",
        "comparison of runs a and b",
        [
            section("Settings", table(SETTINGS_HEAD, settings) if settings else same),
            *([section("Time", table(TIMES_HEAD, times))] if times else []),
            section("Parameters", *(element("p", line) for line in parameters)),
            section("Curves", element("div", *charts, class_="charts")),
            section("Last values and differences", table(HEAD, _table_rows(curves))),
        ],
    )


def _exceeds(
    curves: list[CurveDifference], parameters: ParameterDifference | None, tolerance: float, checkpoints: bool
) -> list[str]:
    """Returns the differences above the tolerance. Curves and parameters that cannot be compared count.

    Speed and memory differ between any two runs and do not count.
    """
    results = [curve for curve in curves if not curve.name.startswith(MEASURED)]
    found = [f"{c.name}: {c.largest}" for c in results if c.largest is None or not c.largest <= tolerance]
    if parameters is None:
        return [*found, "parameters: not compared"] if checkpoints else found
    if not parameters.relative <= tolerance:
        found.append(f"parameters: {number(parameters.relative)} in {parameters.relative_name}")
    if not parameters.state <= tolerance:
        found.append(f"state of the optimizer: {number(parameters.state)} in {parameters.state_name}")
    if any(parameters.only):
        found.append("parameters: some exist in only one run")
    return found


def _has_checkpoints(run: Path) -> bool:
    """Whether the run has checkpoints, complete or not."""
    return any(checkpoint.step_of(path.name) is not None for path in (run / "checkpoints").glob("step-*"))


def _write_page(file: Path, page: str) -> bool:
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        print(f"weft compare: cannot write '{file}': {error.strerror}", file=sys.stderr)
        return False
    print(file)
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="weft compare", description="compare the curves and parameters of two runs")
    parser.add_argument("a", type=Path, help="first run folder")
    parser.add_argument("b", type=Path, help="second run folder")
    parser.add_argument("--html", type=Path, help="write an HTML page that overlays the curves to this file")
    parser.add_argument(
        "--tolerance", type=float, help="exit with status 1 if any relative difference exceeds this value"
    )
    chosen = parser.parse_args(arguments)
    try:
        first, second = Run(chosen.a), Run(chosen.b)
        curves = compare_curves(first, second)
    except (RunError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    parameters = None
    try:
        parameters = compare_parameters(checkpoint.latest(chosen.a), checkpoint.latest(chosen.b))
        lines = describe_parameters(parameters)
    except (checkpoint.CheckpointError, OSError) as error:
        lines = [f"parameters not compared: {error}"]
    _print_table(SETTINGS_HEAD, compare_settings(first, second))
    _print_table(TIMES_HEAD, compare_times(first, second))
    _say("\n".join([*lines, ""]))
    _print_table(HEAD, _table_rows(curves))
    for which, run in (("a", first), ("b", second)):
        for problem in run.problems:
            print(f"weft compare: {which}: {problem}", file=sys.stderr)
    if chosen.html and not _write_page(chosen.html, _page(first, second, curves, lines)):
        return 1
    if chosen.tolerance is None:
        return 0
    checkpoints = _has_checkpoints(chosen.a) or _has_checkpoints(chosen.b)
    exceeding = _exceeds(curves, parameters, chosen.tolerance, checkpoints)
    for text in exceeding:
        _say(f"differs by more than {chosen.tolerance}: {text}")
    return 1 if exceeding or not curves else 0


if __name__ == "__main__":
    sys.exit(main())
