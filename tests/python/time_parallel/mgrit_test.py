"""solver="mgrit" against torch.nn and the serial solver on the whole sequence, for all splits."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from recurrent_reference import compare

import weft

CLOSE = {"rtol": 1e-9, "atol": 1e-9}
EXACT = weft.Solve(iterations=60, relative_tolerance=0, tolerance=1e-13)


def mgrit(kind: int, steps: int, batch: int, hidden: int, seed: int = 0, grid: Any = None, **options: Any) -> Any:
    return compare(
        kind, steps, batch, 3, hidden, weft.world(), seed=seed, solver="mgrit", close=CLOSE,
        solver_options={"forward": EXACT, "backward": EXACT, **(grid or {})}, **options,
    )  # fmt: skip


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(("steps", "batch", "hidden"), [(1, 1, 1), (7, 3, 5), (33, 2, 6)])
def test_values_and_gradients(kind: int, steps: int, batch: int, hidden: int) -> None:
    net = mgrit(kind, steps, batch, hidden, seed=steps)
    forward, backward = net.statistics
    assert forward.converged and backward.converged
    assert net.choice == "mgrit"


@pytest.mark.parametrize("kind", [0, 1])
def test_layers_directions_lengths_and_levels(kind: int) -> None:
    mgrit(kind, 14, 3, 4, seed=1, num_layers=2, bidirectional=True, lengths=torch.tensor([14, 5, 1]))
    mgrit(kind, 40, 2, 3, seed=2, grid={"levels": 3, "cfactor": {0: 2, 1: 3}, "backward_levels": 2})


def test_relaxation_cycles_and_guesses() -> None:
    for solve in (
        weft.Solve(iterations=60, relative_tolerance=0, tolerance=1e-13, relaxations=0),
        weft.Solve(iterations=60, relative_tolerance=0, tolerance=1e-13, cycle="F", guess="coarse"),
        weft.Solve(iterations=60, relative_tolerance=0, tolerance=1e-13, guess="zero", storage="c-points"),
    ):
        mgrit(0, 21, 2, 4, grid={"forward": solve, "backward": solve, "cfactor": 2, "levels": 3})


def test_the_previous_states_are_a_guess() -> None:
    torch.manual_seed(0)
    previous = weft.Solve(iterations=60, tolerance=1e-9, relative_tolerance=0, guess="previous")
    net = weft.GRU(3, 4, dtype=torch.float64, comm=weft.world(), solver="mgrit", forward=previous)
    x = torch.randn(16, 2, 3, dtype=torch.float64)
    iterations = []
    with torch.no_grad():
        for _ in range(2):
            net(x)
            iterations.append(net.statistics[0].iterations)
    assert iterations[1] < iterations[0]


def test_a_network_can_be_copied() -> None:
    torch.manual_seed(0)
    net = weft.GRU(3, 4, dtype=torch.float64, comm=weft.world(), solver="mgrit")
    x = torch.randn(6, 2, 3, dtype=torch.float64)
    with torch.no_grad():
        y, _ = net(x)
        other, _ = copy.deepcopy(net)(x)
    torch.testing.assert_close(other, y)


@pytest.mark.parametrize("solver", ["serial", "newton", "mgrit"])
def test_implicit_gru(solver: str) -> None:
    """Against the equation of the paper in torch's operations."""
    torch.manual_seed(1)
    options: dict[str, Any] = {"forward": EXACT, "backward": EXACT} if solver == "mgrit" else {}
    net = weft.ImplicitGRU(3, 4, dtype=torch.float64, comm=weft.world(), solver=solver, step=0.5, **options)
    size, rank = weft.world().size, weft.world().rank
    whole = torch.randn(8 * size, 2, 3, dtype=torch.float64)
    x = whole[8 * rank : 8 * rank + 8].clone().requires_grad_()
    y, _ = net(x)

    whole.requires_grad_()
    h = torch.zeros(2, 4, dtype=torch.float64)
    ys = []
    for x_t in whole:
        a = torch.nn.functional.linear(x_t, net.weight_ih_l0, net.bias_ih_l0).chunk(3, 1)
        b = torch.nn.functional.linear(h, net.weight_hh_l0, net.bias_hh_l0).chunk(3, 1)
        r, z = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
        n = torch.tanh(a[2] + r * b[2])
        h = (h + 0.5 * (1 - z) * n) / (1 + 0.5 * (1 - z))
        ys.append(h)
    expected = torch.stack(ys)
    torch.testing.assert_close(y, expected[8 * rank : 8 * rank + 8].detach(), **CLOSE)
    gradients = torch.autograd.grad(expected.pow(2).sum(), [whole, *net.parameters()])
    weft.backward(y.pow(2).sum())
    torch.testing.assert_close(x.grad, gradients[0][8 * rank : 8 * rank + 8], **CLOSE)
    for parameter, other in zip(net.parameters(), gradients[1:], strict=True):
        torch.testing.assert_close(parameter.grad, other, **CLOSE)


def test_implicit_gru_has_second_derivatives() -> None:
    torch.manual_seed(2)
    net = weft.ImplicitGRU(2, 2, dtype=torch.float64, step=2.0)
    x = torch.randn(3, 1, 2, dtype=torch.float64, requires_grad=True)

    def gradient(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(net(x)[0].pow(2).sum(), x, create_graph=True)[0]

    assert torch.autograd.gradcheck(lambda x: net(x)[0], x)
    assert torch.autograd.gradcheck(gradient, x)
    with pytest.raises(ValueError, match="expected a step above 0, got -1"):
        weft.ImplicitGRU(2, 2, step=-1)


def test_an_unconverged_solve_warns() -> None:
    torch.manual_seed(3)
    once = weft.Solve(iterations=1, relaxations=0, guess="zero")
    net = weft.LSTM(3, 8, dtype=torch.float64, comm=weft.world(), solver="mgrit", forward=once)
    with torch.no_grad():
        for weight in net.parameters():
            weight *= 4
        with pytest.warns(UserWarning, match="the forward multigrid solve did not converge in 1 iterations"):
            net(torch.randn(32, 2, 3, dtype=torch.float64))


def test_nan_in_the_input_raises_on_all_ranks(rank: int, size: int) -> None:
    net = weft.GRU(3, 4, dtype=torch.float64, comm=weft.world(), solver="mgrit")
    x = torch.randn(12, 2, 3, dtype=torch.float64)
    if rank == size - 1:
        x[3, 0, 1] = float("nan")
    with pytest.raises(weft.NotConverged, match="a state is NaN or infinite"):
        net(x)
    net(torch.randn(12, 2, 3, dtype=torch.float64))  # the next batch works
    weft.reset_tape()


@pytest.mark.parametrize("factor", [3, 4])
def test_backward_uses_the_graphs_of_the_last_forward_sweep(factor: int, rank: int) -> None:
    spans: list[float] = []

    def cell(x: torch.Tensor, h: torch.Tensor, dt: float = 1) -> torch.Tensor:
        spans.append(dt)
        return torch.tanh(x + h / 2)

    solve = weft.Solve(iterations=20, relative_tolerance=0, tolerance=1e-12)
    net = weft.TimeParallel(cell, comm=weft.world(), solver="mgrit", cfactor=factor, forward=solve, backward=solve)
    x = torch.randn(12 + 12 * rank, 2, 3, dtype=torch.float64, requires_grad=True)
    y, _ = net(x, torch.zeros(2, 3, dtype=torch.float64))
    spans.clear()
    weft.backward(y.sum())
    assert spans and all(dt == factor for dt in spans)
