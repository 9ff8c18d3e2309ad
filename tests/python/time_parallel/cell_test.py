"""weft.TimeParallel: cells of users with all solvers, against a loop over the whole sequence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from recurrent_reference import split
from torch import Tensor, nn

import weft

CLOSE = {"rtol": 1e-9, "atol": 1e-10}
MGRIT = {"forward": weft.Solve(iterations=40, relative_tolerance=0, tolerance=1e-13), "cfactor": 3}
MGRIT["backward"] = MGRIT["forward"]
SOLVERS: list[tuple[str, dict[str, Any]]] = [
    ("serial", {}),
    ("pipeline", {"chunks": 2}),
    ("newton", {"tolerance": 1e-12}),
    ("newton", {"tolerance": 1e-12, "jacobian": "full"}),
    ("mgrit", MGRIT),
]


class Elman(nn.Module):
    """A cell with one tensor as its state."""

    def __init__(self) -> None:
        super().__init__()
        self.input = nn.Linear(3, 4, dtype=torch.float64)
        self.state = nn.Linear(4, 4, dtype=torch.float64)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(self.input(x) + self.state(h))


class Pair(nn.Module):
    """A cell with a tuple of tensors of different shapes, the first of which has three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 2, dtype=torch.float64) / 2)
        self.mix = nn.Parameter(torch.randn(3, 2, dtype=torch.float64) / 2)
        self.unused = nn.Parameter(torch.ones(2, dtype=torch.float64))

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        a, b = state
        b = torch.tanh(b / 2 + x @ self.mix)
        return torch.sin(a / 2 + (b @ self.weight.T).view(-1, 2, 2)), b


def step(x: Tensor, h: Tensor) -> Tensor:
    return torch.sin(x + h / 2)


CASES = [(Elman, [(4,)], (3,)), (Pair, [(2, 2), (2,)], (3,)), (lambda: step, [(2, 3)], (2, 3))]


def loop(cell: Any, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
    ys = []
    for t in range(len(x)):
        new = cell(x[t], state)
        single = isinstance(new, Tensor)
        news, olds = ((new,), (state,)) if single else (new, state)

        def active(tensor: Tensor, t: int = t) -> Any:
            if lengths is None:
                return torch.ones((), dtype=torch.bool)
            return (lengths > t).view(-1, *[1] * (tensor.dim() - 1))

        ys.append(news[0].where(active(news[0]), 0))
        kept = tuple(torch.where(active(n), n, o) for n, o in zip(news, olds, strict=True))
        state = kept[0] if single else kept
    return torch.stack(ys), state


def compare(case: int, solver: str, options: dict[str, Any], *, steps: int = 23, lengths: Tensor | None = None) -> Any:
    make, shapes, features = CASES[case]
    comm = weft.world()
    torch.manual_seed(case)
    cell = make()
    net = weft.TimeParallel(cell, comm=comm, solver=solver, **options)
    batch = 3
    whole = torch.randn(steps, batch, *features, dtype=torch.float64, requires_grad=True)
    start = [torch.randn(batch, *shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    y_all, final_all = loop(cell, whole, start[0] if len(start) == 1 else tuple(start), lengths)
    finals = [final_all] if isinstance(final_all, Tensor) else list(final_all)
    weights = [torch.randn_like(t) for t in (y_all, *finals)]
    loss = sum((t * w).sum() for t, w in zip((y_all, *finals), weights, strict=True))
    parameters = list(net.parameters())
    expected = torch.autograd.grad(loss, [whole, *start, *parameters], allow_unused=True, materialize_grads=True)

    pieces = split(steps, comm.size, case)
    begin = sum(pieces[: comm.rank])
    mine = slice(begin, begin + pieces[comm.rank])
    x = whole.detach()[mine].clone().requires_grad_()
    leaves = [h.detach().clone().requires_grad_() for h in start]
    given: Any = leaves[0] if len(leaves) == 1 else tuple(leaves)
    y, final = net(x, given if comm.rank == 0 else None, lengths=lengths)
    torch.testing.assert_close(y, y_all[mine].detach(), **CLOSE)
    mine_final = [final] if isinstance(final, Tensor) else list(final)
    for h, other in zip(mine_final, finals, strict=True):
        torch.testing.assert_close(h, other.detach(), **CLOSE)
    total = (y * weights[0][mine]).sum()
    weft.backward(total + sum((h * w).sum() / comm.size for h, w in zip(mine_final, weights[1:], strict=True)))
    torch.testing.assert_close(x.grad, expected[0][mine], **CLOSE)
    if comm.rank == 0:
        for leaf, other in zip(leaves, expected[1:], strict=False):
            torch.testing.assert_close(leaf.grad, other, **CLOSE)
    for parameter, other in zip(parameters, expected[1 + len(start) :], strict=True):
        found = torch.zeros_like(other) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(found, other, **CLOSE)
    return net


@pytest.mark.parametrize("case", [0, 1, 2])
@pytest.mark.parametrize(("solver", "options"), SOLVERS)
def test_values_and_gradients(case: int, solver: str, options: dict[str, Any]) -> None:
    net = compare(case, solver, options)
    assert net.choice == ("serial" if solver == "pipeline" and weft.world().size == 1 else solver)
    if solver in ("newton", "mgrit"):
        assert net.statistics[0].iterations > 0 and net.statistics[1].converged


@pytest.mark.parametrize(("solver", "options"), SOLVERS)
def test_lengths(solver: str, options: dict[str, Any]) -> None:
    compare(1, solver, options, steps=9, lengths=torch.tensor([9, 2, 0]))


def test_cell_with_a_time_step_on_coarse_levels() -> None:
    counts = set()

    def decay(x: Tensor, h: Tensor, dt: float = 1) -> Tensor:
        counts.add(dt)
        return torch.exp(torch.tensor(-0.1 * dt)) * h + 0.01 * dt * x

    options = {key: value for key, value in MGRIT.items() if key != "cfactor"}
    net = weft.TimeParallel(decay, comm=weft.world(), solver="mgrit", cfactor=4, **options)
    x = torch.ones(16, 1, 1, dtype=torch.float64)
    net(x, torch.ones(1, 1, dtype=torch.float64))
    weft.reset_tape()
    assert counts == {1.0, 4.0}
    assert net.statistics[0].converged


class Faulty(Elman):
    """Fails on one rank, in the way that ``fault`` selects."""

    fault: str | None = None

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        if self.fault == "raise":
            raise ArithmeticError("the sensor is offline")
        following = super().forward(x, h)
        return following[:, :3] if self.fault == "shape" else following


@pytest.mark.parametrize(("solver", "options"), SOLVERS)
@pytest.mark.parametrize(
    ("fault", "message"),
    [("raise", "ArithmeticError: the sensor is offline"), ("shape", "keep the shape and type of its state")],
)
def test_a_cell_that_fails_on_one_rank_raises_on_all(
    solver: str, options: dict[str, Any], fault: str, message: str, rank: int, size: int
) -> None:
    torch.manual_seed(0)
    cell = Faulty()
    net = weft.TimeParallel(cell, comm=weft.world(), solver=solver, **options)
    x, h = torch.randn(4, 3, 3, dtype=torch.float64), torch.zeros(3, 4, dtype=torch.float64)
    cell.fault = fault if rank == size - 1 else None
    with pytest.raises(weft.LayerError, match=message):
        net(x, h)
    cell.fault = None
    weft.reset_tape()
    y, _ = net(x, h)  # the next batch works
    weft.backward(y.sum())


@pytest.mark.parametrize(
    ("x", "state", "message"),
    [
        (torch.zeros(3), torch.zeros(2, 4), "expected a floating-point sequence of at least 2 dimensions"),
        (torch.zeros(3, 2, 3), torch.zeros(5, 4), r"expected a state of 2 rows \(the batch\)"),
        (torch.zeros(3, 2, 3), torch.zeros(2, 4, dtype=torch.float64), "expected the input's dtype torch.float32"),
        (torch.zeros(3, 2, 3), None, "expected an initial state on rank 0"),
    ],
)
def test_bad_input_raises_on_all_ranks(x: Tensor, state: Any, message: str) -> None:
    net = weft.TimeParallel(step, comm=weft.world())
    with pytest.raises(ValueError, match=message):
        net(x, state)


def test_different_cells_raise_on_all_ranks(rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("needs several ranks")
    torch.manual_seed(0)
    net = weft.TimeParallel(Elman() if rank else Pair(), comm=weft.world(), solver="serial")
    with pytest.raises(ValueError, match="cell differs between ranks"):
        net(torch.zeros(2, 1, 3, dtype=torch.float64), torch.zeros(1, 4, dtype=torch.float64))
