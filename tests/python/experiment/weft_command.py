"""Helpers for tests that run the weft command and read its run folder."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jobs import outside_of_any_job

BUILD = Path(os.environ.get("WEFT_LIBRARY_DIR", Path(__file__).parents[3] / "build" / "release" / "lib")).parent
WEFT = BUILD / "bin" / "weft"

TOY = """
seed: 3
data: {set: blobs, images: 240, shape: [16, 12], classes: 3}
split: tiles
checkpoint_every: 15
model:
  epochs: 4
  batch_size: 8
  optimizer: {type: adam, rate: 0.003}
  layers:
    - conv: {maps: 8, kernel: 3, activation: relu}
    - max_pool: 2
    - dropout: 0.2
    - linear: {outputs: 20, activation: relu}
    - linear: 3
"""
STEPS = 120


def toy_file(folder: Path) -> Path:
    file = folder / "toy.yaml"
    file.write_text(TOY)
    return file


def command(*arguments: str | Path) -> list[str]:
    return [str(WEFT), *map(str, arguments)]


def environment() -> dict[str, str]:
    """Returns the environment without the user's data, since tests expect the sample that `make env` installs."""
    return {**outside_of_any_job(), "OMP_NUM_THREADS": "1", "WEFT_DATA": ""}


def weft(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), env=environment(), cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


def weft_together(*commands: Sequence[str | Path], cwd: Path | None = None) -> list[subprocess.CompletedProcess[str]]:
    """Runs independent commands at the same time, since each spends most of its time on waiting for others to start."""
    with ThreadPoolExecutor(len(commands)) as threads:
        return list(threads.map(lambda arguments: weft(*arguments, cwd=cwd), commands))


def curve(run: Path, name: str = "train/cost") -> dict[int, float]:
    text = (run / "metrics.jsonl").read_text()
    lines = text[: text.rfind("\n") + 1].splitlines()  # the last line of a killed run may be incomplete
    points = [point for point in map(json.loads, lines) if point["name"] == name]
    return {point["step"]: float(point["value"]) for point in points}


def checkpoint_steps(run: Path) -> list[int]:
    return sorted(int(path.parent.name.removeprefix("step-")) for path in run.glob("checkpoints/step-*/index.json"))
