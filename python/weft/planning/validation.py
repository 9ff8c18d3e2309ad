"""Comparison of predictions with real runs on this machine."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .layers import LayerMeasurements
from .machine import Machine, cores_of_this_machine, run_job
from .plan import PlanError, Prediction, is_recurrent, mean_square
from .recurrent import plan_recurrent


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

    Raises PlanError if the network cannot be sent to other processes, and JobError if a job fails.
    """
    if is_recurrent(network):
        saved = {"network": network, "x": x}

        def predict(count: int, machine: Machine) -> list[Prediction]:
            return plan_recurrent(network, x, mean_square, machine, [count], repeats)[0]
    else:
        with _threads(threads):
            measured = LayerMeasurements(network, x, mean_square, form, tf, None, bound, repeats)
        net = measured.net
        saved = {"layers": net.layers, "forms": net.forms, "tf": net.tf, "x": x}

        def predict(count: int, machine: Machine) -> list[Prediction]:
            return measured.predict([count], machine)

    base = Machine.measure()
    found = []
    with tempfile.TemporaryDirectory() as folder, _threads(threads):
        file = Path(folder) / "network.pt"
        for count in ranks:
            machine = Machine(base.latency, base.bandwidth, cores_of_this_machine(), ranks_per_node=count)
            for each in predict(count, machine)[1:]:
                _save({**saved, "solver": each.solver, "options": dict(each.options)}, file)
                arguments = {"file": str(file), "path": sys.path, "threads": threads, "repeats": repeats}
                seconds = run_job(count, "weft.planning.measured_step", arguments)["seconds"]
                found.append(Comparison(count, each.solver, each.setting, each.seconds, seconds))
    return found


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _save(contents: dict[str, Any], file: Path) -> None:
    try:
        torch.save(contents, file)
    except Exception as error:
        raise PlanError(f"weft: plan: the network cannot be pickled for other processes: {error}") from error
