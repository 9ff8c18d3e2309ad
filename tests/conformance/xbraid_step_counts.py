"""Counts the step evaluations of the original torchbraid, i.e. of XBraid, in one forward and one backward pass.

It produced tests/multigrid/data/xbraid-step-counts.json. Run it with a Python that imports the original torchbraid
(built with Cython and XBraid), on any number of ranks that divides the numbers of steps:

    mpirun -n 1 python tests/conformance/xbraid_step_counts.py > tests/multigrid/data/xbraid-step-counts.json
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

import torch
import torchbraid
from mpi4py import MPI
from torch import Tensor, nn

COMM = MPI.COMM_WORLD
GRIDS = ((100, 3, 5), (100, 2, 4), (60, 4, 2), (48, 4, 3), (30, 2, 4), (42, 3, 3), (12, 2, 5), (96, 3, 4))
RELAXATIONS = ((0, 0), (0, 1), (1, 1))  # on the finest level and on the others


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


def counted(function: Callable[..., Any], counts: list[int], which: int) -> Callable[..., Any]:
    def count(*args: Any, **kwargs: Any) -> Any:
        counts[which] += 1
        return function(*args, **kwargs)

    return count


def evaluations(
    steps: int, levels: int, cfactor: int, iterations: int, skip: bool, fine: int, coarse: int
) -> list[int]:
    net = torchbraid.LayerParallel(COMM, Layer, steps, Tf=1.0, max_fwd_levels=levels, max_bwd_levels=levels)
    net.setMaxIters(iterations)
    net.setPrintLevel(0)
    net.setCFactor(cfactor)
    net.setSkipDowncycle(skip)
    net.setNumRelax(coarse)
    net.setNumRelax(fine, level=0)
    counts = [0, 0]
    for which, app in enumerate((net.fwd_app, net.bwd_app)):
        app.setAbsTol(0.0)
        app.eval = counted(app.eval, counts, which)
    y = net(torch.ones(2, 3, requires_grad=True))
    y.backward(torch.ones_like(y))
    return [COMM.allreduce(count) for count in counts]


def main() -> None:
    rows = []
    for (steps, levels, cfactor), iterations, skip, (fine, coarse) in itertools.product(
        GRIDS, (1, 2, 3, 5), (True, False), RELAXATIONS
    ):
        forward, backward = evaluations(steps, levels, cfactor, iterations, skip, fine, coarse)
        rows.append(
            f'{{"steps": {steps}, "levels": {levels}, "cfactor": {cfactor}, "iterations": {iterations}, '
            f'"skip": {str(skip).lower()}, "relax_fine": {fine}, "relax_coarse": {coarse}, '
            f'"forward": {forward}, "backward": {backward}}}'
        )
    if COMM.rank == 0:
        sys.stdout.write("[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    main()
