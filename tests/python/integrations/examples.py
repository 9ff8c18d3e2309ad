"""Runs the programs of examples/integrations on several ranks and reads the line that each rank prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from jobs import LAUNCHER, outside_of_any_job

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "integrations"
_LINE = re.compile(r"rank (\d+) of (\d+)(?: \((\w+)\))?: (.*)")
_LOSS = re.compile(r"loss ([-\d.e+]+)")


class RankOutput(NamedTuple):
    """The line of one rank."""

    rank: int
    ranks: int
    backend: str | None
    text: str

    @property
    def loss(self) -> float:
        found = _LOSS.search(self.text)
        assert found, self.text
        return float(found[1])


def run(name: str, ranks: int, *options: str, **environment: str) -> list[RankOutput]:
    """Returns the output of each rank, in rank order. Fails if a rank fails or prints no line."""
    job = subprocess.run(
        [str(LAUNCHER), "-n", str(ranks), sys.executable, str(FOLDER / f"{name}.py"), *options],
        env={**outside_of_any_job(), "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    text = job.stdout + job.stderr
    assert job.returncode == 0, text
    found = [RankOutput(int(rank), int(size), backend, rest) for rank, size, backend, rest in _LINE.findall(text)]
    assert sorted((line.rank, line.ranks) for line in found) == [(rank, ranks) for rank in range(ranks)], text
    return sorted(found)


def losses_on_two_ranks(name: str, *options: str) -> list[float]:
    """Runs an example on 2 ranks and returns their losses. The ranks must use weft."""
    output = run(name, 2, *options)
    assert [line.backend for line in output] == ["weft", "weft"]
    return [line.loss for line in output]


def loss_of_one_process(name: str, *options: str) -> float:
    return run(name, 1, *options)[0].loss
