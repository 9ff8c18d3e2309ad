"""Outcomes of tests and the report of a run.

As a program, prints the skips of several runs (files written by --json) as a Markdown table.
"""

from __future__ import annotations

import collections
import json
import re
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

RESULTS = ("passed", "failed", "skipped")

# PyTorch words the same reason in many ways: one pattern per kind. Other reasons are shown verbatim.
SKIP_KINDS = {
    "needs GPUs: `Need at least N CUDA devices`, `CUDA is not available.`": r"Need at least|CUDA is not available",
    "nccl only, on CUDA tensors: `Only Nccl supports …`, `NCCL … Only`, `… one of {'nccl'}`, `Coalescing manager …`": (
        r"Only Nccl supports|Only NCCL|NCCL|.*one of \{'nccl'\}|Coalescing"
    ),
    "limited to the name `mpi`: `Only MPI supports …`": r"Only MPI supports",
    "fewer than 8 ranks: `Skipped due to small world size.`": r"Skipped due to small world size",
    "fewer than 4 ranks: `Test requires world size of 4`": r"Test requires world size of",
    "not exactly 4 ranks: `Test requires an exact world size of 4`": r"Test requires an exact world size of",
    "disabled by PyTorch: a link to an issue, `Test is failing …`, `Skipped due to flakiness`": (
        r"https://|Test is failing|Skipped due to flakiness"
    ),
}


@dataclass
class Outcome:
    """Outcome of a test on one rank, or combined over all ranks."""

    name: str
    result: str  # passed, failed, skipped
    reason: str = ""  # PyTorch's reason of a skip, or the traceback of a failure
    seconds: float = 0.0


@dataclass
class Report:
    """Combined outcomes of a run."""

    backend: str
    ranks: int
    tests: list[Outcome] = field(default_factory=list)

    def count(self, result: str) -> int:
        return sum(outcome.result == result for outcome in self.tests)

    def summary(self) -> str:
        return ", ".join(f"{self.count(result)} {result}" for result in RESULTS)

    def skips(self) -> collections.Counter[str]:
        return collections.Counter(outcome.reason for outcome in self.tests if outcome.result == "skipped")

    def write(self, path: Path) -> None:
        counts = {result: self.count(result) for result in RESULTS}
        content = {**asdict(self), **counts, "torch": torch.__version__, "skips": dict(self.skips().most_common())}
        path.write_text(json.dumps(content, indent=1) + "\n")


def combined(outcomes: list[Outcome]) -> Outcome:
    """Combines the outcomes of all ranks: passed or skipped if all ranks agree, otherwise failed."""
    name, seconds = outcomes[0].name, max(outcome.seconds for outcome in outcomes)
    results = {outcome.result for outcome in outcomes}
    if results == {"passed"}:
        return Outcome(name, "passed", "", seconds)
    if results == {"skipped"}:
        reasons = dict.fromkeys(outcome.reason for outcome in outcomes)
        return Outcome(name, "skipped", "; ".join(reasons), seconds)
    lines = [f"rank {rank}: {outcome.result}\n{indented(outcome.reason)}" for rank, outcome in enumerate(outcomes)]
    return Outcome(name, "failed", "\n".join(lines), seconds)


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def skip_kind(reason: str) -> str:
    return next((kind for kind, pattern in SKIP_KINDS.items() if re.match(pattern, reason)), f"`{reason}`")


def skip_table(runs: list[dict[str, Any]]) -> str:
    """Returns a table of skips by kind, one column per run."""
    counts: dict[str, list[int]] = {kind: [0] * len(runs) for kind in SKIP_KINDS}
    for column, run in enumerate(runs):
        for reason, count in run["skips"].items():
            counts.setdefault(skip_kind(reason), [0] * len(runs))[column] += count
    head = [f"{run['backend']}, {run['ranks']} ranks" for run in runs]
    rows = [["skipped because", *head], ["---"] * (len(runs) + 1)]
    rows += [[kind, *map(str, row)] for kind, row in counts.items() if any(row)]
    rows.append(["total", *(str(run["skipped"]) for run in runs)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    print(skip_table([json.loads(Path(name).read_text()) for name in sys.argv[1:]]))
