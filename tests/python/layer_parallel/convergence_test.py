"""Solves that do not converge are reported in every setting, forward and backward; others are not."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from layer_parallel.networks import Block, plain_loop
from torch import Tensor, nn

import weft
from weft import LayerParallel, Solve

EXACT = Solve(iterations=40, tolerance=0, relative_tolerance=0)
SHORT = {"tolerance": 0.0, "relative_tolerance": 0.0}
pytestmark = pytest.mark.usefixtures("works_afterwards")


class Wild(nn.Module):
    """A layer whose coarse steps are far from its fine ones."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return 30 * self.gain * torch.sin(5 * x)


def wild(comm: weft.Communicator, forward: Solve, backward: Solve) -> LayerParallel:
    return LayerParallel(
        comm, [Wild() for _ in range(32)], tf=4.0, levels=2, cfactor=4, forward=forward, backward=backward
    )


def input_of(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


SETTINGS: list[dict[str, Any]] = [
    {"iterations": 2},
    {"iterations": 1},
    {"iterations": 2, "skip_downcycle": True},
    {"iterations": 1, "skip_downcycle": True},
    {"iterations": 1, "skip_downcycle": True, "residual": False},
    {"iterations": 2, "residual": False, "storage": "c-points"},
    {"iterations": 2, "cycle": "F", "guess": "coarse"},
]


@pytest.mark.parametrize("given", SETTINGS, ids=str)
def test_an_unconverged_forward_solve_warns(comm: weft.Communicator, given: dict[str, Any]) -> None:
    net = wild(comm, Solve(**given, **SHORT), EXACT)
    with pytest.warns(UserWarning, match=r"the forward solve of LayerParallel did not converge: .*\d+%") as caught:
        net(input_of(2, 2))
    assert {warning.filename for warning in caught} == {__file__}
    assert net.statistics[0].stalled and net.statistics[0].last_change > 0.1  # type: ignore[operator]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net(input_of(2, 2))  # once per network and direction


@pytest.mark.parametrize("given", SETTINGS, ids=str)
@pytest.mark.parametrize("plain", [False, True], ids=["weft.backward", "Tensor.backward"])
def test_an_unconverged_backward_solve_warns(comm: weft.Communicator, given: dict[str, Any], plain: bool) -> None:
    net = wild(comm, EXACT, Solve(**given, **SHORT))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss = net.compose(torch.sum, net(input_of(2, 2)))
    with pytest.warns(UserWarning, match="the backward solve of LayerParallel did not converge") as caught:
        loss.backward() if plain else weft.backward(loss)
    assert {warning.filename for warning in caught} == {__file__}
    assert net.statistics[1].stalled


@pytest.mark.parametrize("given", SETTINGS, ids=str)
def test_a_sufficient_solve_does_not_warn(comm: weft.Communicator, given: dict[str, Any]) -> None:
    torch.manual_seed(2)
    solve = Solve(**given, **SHORT)
    layers = [Block(8) for _ in range(32)]
    net = LayerParallel(comm, layers, tf=0.5, levels=2, cfactor=4, forward=solve, backward=solve)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weft.backward(net.compose(torch.sum, net(input_of(4, 8))))
    for statistics in net.statistics:
        assert not statistics.stalled and statistics.last_change is not None


def test_the_last_change_estimates_the_error(comm: weft.Communicator) -> None:
    torch.manual_seed(3)
    for iterations in (1, 2, 3):
        for gain in (1.0, 3.0):
            layers: list[nn.Module] = [Block(8) for _ in range(32)]
            for layer in layers:
                layer.linear.weight.data *= gain  # type: ignore[union-attr,operator]
            solve = Solve(iterations=iterations, relaxations=0, **SHORT)
            net = LayerParallel(comm, layers, tf=2.0, cfactor=4, forward=solve, backward=EXACT)
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                y = net(input_of(4, 8))
            expected = plain_loop(layers, net._forms, net.tf, input_of(4, 8))[2].detach()
            error = comm.broadcast((y - expected).norm() / expected.norm()).item()
            change = net.statistics[0].last_change
            assert change is not None and error / 10 < change < 30 * error, (iterations, gain, error, change)


class Normalizing(Block):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x / x.norm(dim=1, keepdim=True)))


def test_the_default_guess_suits_layers_that_are_undefined_at_zero(comm: weft.Communicator) -> None:
    torch.manual_seed(4)
    layers: list[nn.Module] = [Normalizing(4) for _ in range(16)]
    net = LayerParallel(comm, layers, levels=3, cfactor=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = net(input_of(3, 4))
        weft.backward(net.compose(torch.sum, y))
    expected = plain_loop(layers, net._forms, net.tf, input_of(3, 4))[2].detach()
    if comm.rank == 0:
        torch.testing.assert_close(y.detach(), expected, rtol=1e-5, atol=1e-5)


def test_states_that_are_not_finite_warn(comm: weft.Communicator) -> None:
    net = LayerParallel(comm, [Normalizing(4) for _ in range(16)], forward=Solve(guess="zero"))
    with pytest.warns(UserWarning, match="forward solve .* a state is NaN or infinite"):
        net(input_of(3, 4))


def test_a_residual_of_zero_is_converged(comm: weft.Communicator) -> None:
    class Still(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.zeros_like(x)

    net = LayerParallel(comm, [Still() for _ in range(16)], forward=EXACT, backward=EXACT)
    net(input_of(2, 2))
    forward = net.statistics[0]
    assert forward.converged and set(forward.residuals) == {0.0} and forward.last_change == 0.0


def test_shapes_may_change_with_the_default_guess(comm: weft.Communicator) -> None:
    class Growing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x, x], -1)

    layers: list[nn.Module] = [*(Block(4) for _ in range(4)), Growing(), *(Block(8) for _ in range(3))]
    net = LayerParallel(comm, layers, levels=2, cfactor=2, form="plain", forward=EXACT, backward=EXACT)
    y = net(input_of(2, 4))
    weft.backward(net.compose(torch.sum, y))
    expected = plain_loop(layers, net._forms, net.tf, input_of(2, 4))[2].detach()
    if comm.rank == 0:
        torch.testing.assert_close(y.detach(), expected)
