"""Prints the demo's table: test error and time of each run, and the distance of its cost curve from the first run's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def curve(run: Path, name: str) -> dict[int, float]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    points = [point for point in map(json.loads, lines) if point["name"] == name]
    return {point["step"]: float(point["value"]) for point in points}


def seconds(run: Path) -> float:
    times = [json.loads(line)["time"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    return times[-1] - times[0]


def difference(run: Path, reference: Path) -> str:
    ours, theirs = curve(run, "train/cost"), curve(reference, "train/cost")
    if run == reference or ours.keys() != theirs.keys():
        return "-"
    return f"{max(abs(ours[step] - theirs[step]) / abs(theirs[step]) for step in ours):.1e}"


def main(runs: list[Path]) -> None:
    print(f"{'run':<10} {'test error':>10} {'seconds':>8} {'cost curve vs. first run':>32}")
    for run in runs:
        error = list(curve(run, "final/test_error").values())[-1]
        print(f"{run.name:<10} {error:>10.2%} {seconds(run):>8.1f} {difference(run, runs[0]):>32}")
    report = subprocess.run(
        [sys.executable, "-m", "weft.tools.report", str(runs[1])], check=False, capture_output=True, text=True
    )
    if report.returncode == 0:
        print(f"\nReport of the run on 4 ranks: {runs[1] / 'report.html'}")
    else:
        print(f"\nNo report: {report.stderr.strip()}")


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
