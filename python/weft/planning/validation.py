"""Comparison of predictions with real runs on this machine."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .layers import LayerMeasurements
from .machine import Machine, cores_of_this_machine, run_job
from .plan import PlanError, mean_square


@dataclass(frozen=True)
class Comparison:
    """A predicted and a measured training step on this machine."""

    ranks: int
    solver: str
    setting: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.measured - 1


def validate(
    network: Any,
    x: Any,
    *,
    ranks: Sequence[int] = (2, 4),
    bound: float = 0.1,
    form: str = "residual",
    tf: float = 1.0,
    threads: int = 1,
    repeats: int = 5,
) -> list[Comparison]:
    """Predicts training steps on this machine and runs them. The loss is the mean of the output's squares.

    Raises PlanError if the layers cannot be sent to other processes, and JobError if a job fails.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        measured = LayerMeasurements(network, x, mean_square, form, tf, None, bound, repeats)
    finally:
        torch.set_num_threads(before)
    base = Machine.measure()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "network.pt"
        for count in ranks:
            machine = Machine(base.latency, base.bandwidth, cores_of_this_machine(), ranks_per_node=count)
            for each in measured.predict([count], machine)[1:]:
                _save(measured, x, dict(each.options), file)
                arguments = {"file": str(file), "path": sys.path, "threads": threads, "repeats": repeats}
                seconds = run_job(count, "weft.planning.measured_step", arguments)["seconds"]
                found.append(Comparison(count, each.solver, each.setting, each.seconds, seconds))
    return found


def _save(measured: LayerMeasurements, x: Any, options: dict[str, Any], file: Path) -> None:
    net = measured.net
    try:
        torch.save({"layers": net.layers, "forms": net.forms, "tf": net.tf, "options": options, "x": x}, file)
    except Exception as error:
        raise PlanError(f"weft: plan: the layers cannot be pickled for other processes: {error}") from error
