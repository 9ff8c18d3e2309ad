"""Multigrid evaluates no more steps than XBraid with the same settings.

The counts of XBraid come from tests/conformance/xbraid_step_counts.py.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft

GOLDEN = Path(__file__).parents[2] / "multigrid" / "data" / "xbraid-step-counts.json"
CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text())


class Layer(nn.Module):
    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        Layer.calls += 1
        return torch.tanh(self.linear(x))


def network(comm: weft.Communicator, case: dict[str, Any]) -> weft.LayerParallel:
    solve = weft.Solve(
        iterations=case["iterations"],
        tolerance=0.0,
        relative_tolerance=0.0,
        relaxations={0: case["relax_fine"]} | dict.fromkeys(range(1, case["levels"]), case["relax_coarse"]),
        skip_downcycle=case["skip"],
        guess="zero",
    )
    layers = [Layer() for _ in range(case["steps"])]
    return weft.LayerParallel(
        comm, layers, levels=case["levels"], cfactor=case["cfactor"], forward=solve, backward=solve
    )


def total(comm: weft.Communicator, count: int) -> int:
    return int(comm.all_reduce(torch.tensor(count)))


@pytest.mark.parametrize("grid", sorted({(c["steps"], c["levels"], c["cfactor"]) for c in CASES}), ids=str)
def test_multigrid_takes_no_more_steps_than_xbraid(comm: weft.Communicator, grid: tuple[int, int, int]) -> None:
    for case in (c for c in CASES if (c["steps"], c["levels"], c["cfactor"]) == grid):
        net = network(comm, case)
        for number in range(2):
            Layer.calls = 0
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # few iterations do not converge
                weft.backward(net(torch.ones(2, 3, requires_grad=True)).sum())
            forward, backward = (total(comm, sum(statistics.steps)) for statistics in net.statistics)
            assert forward <= case["forward"], case
            assert backward <= case["backward"], case
            # The first pass evaluates one layer of each kind to find the shapes of the states, as torchbraid does.
            shapes = comm.size if number == 0 else 0
            assert total(comm, Layer.calls) == forward + shapes, case


def test_the_shapes_of_equal_layers_take_one_evaluation(comm: weft.Communicator) -> None:
    net = weft.LayerParallel(comm, [Layer() for _ in range(40)], levels=2, cfactor=4, forward=weft.Solve(iterations=1))
    for rows in (2, 3, 2):  # a layout that differs from the last one
        Layer.calls = 0
        with torch.no_grad():
            net(torch.ones(rows, 3))
        assert Layer.calls == sum(net.statistics[0].steps) + 1


def test_layers_with_other_attributes_are_evaluated(comm: weft.Communicator) -> None:
    class Scaled(Layer):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    net = weft.LayerParallel(
        comm, [Scaled(i) for i in range(40)], levels=2, cfactor=4, forward=weft.Solve(iterations=1)
    )
    Layer.calls = 0
    with torch.no_grad():
        net(torch.ones(2, 3))
    assert Layer.calls == sum(net.statistics[0].steps) + len(net.own)
