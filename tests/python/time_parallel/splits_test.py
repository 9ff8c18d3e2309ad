"""All solvers on more ranks than most tests use: uneven pieces, empty ranks, masks, layers and directions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from recurrent_reference import compare

import weft

CLOSE = {"rtol": 1e-9, "atol": 1e-9}
EXACT = weft.Solve(iterations=40, relative_tolerance=0, tolerance=1e-13)
SOLVERS: list[tuple[str, dict[str, Any]]] = [
    ("serial", {}),
    ("pipeline", {"chunks": 2}),
    ("newton", {"tolerance": 1e-12, "jacobian": "full"}),
    ("newton", {"tolerance": 1e-11}),
    ("mgrit", {"forward": EXACT, "backward": EXACT, "cfactor": 2}),
]


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(("solver", "options"), SOLVERS)
def test_fewer_steps_than_ranks_and_masks(kind: int, solver: str, options: dict[str, Any]) -> None:
    comm = weft.world()
    compare(kind, 2, 2, 3, 4, comm, seed=kind, solver=solver, solver_options=options, close=CLOSE)
    lengths = torch.tensor([9, 2, 5])
    compare(
        kind, 9, 3, 2, 3, comm, seed=1 + kind, solver=solver, solver_options=options, close=CLOSE, lengths=lengths,
        num_layers=2, bidirectional=kind == 0,
    )  # fmt: skip


def test_a_sequence_without_steps() -> None:
    for solver, options in SOLVERS:
        net = weft.GRU(3, 4, dtype=torch.float64, comm=weft.world(), solver=solver, **options)
        h0 = torch.randn(1, 2, 4, dtype=torch.float64, requires_grad=True)
        y, h = net(torch.zeros(0, 2, 3, dtype=torch.float64), h0)
        assert y.shape == (0, 2, 4)
        weft.backward(h.sum())
        if weft.world().rank == 0:
            torch.testing.assert_close(h0.grad, torch.full_like(h0, weft.world().size))
