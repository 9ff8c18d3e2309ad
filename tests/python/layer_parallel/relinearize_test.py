"""relinearize=True: the coarse steps of the backward solve use the states after the last forward sweep."""

from __future__ import annotations

import warnings

import pytest
import torch
from layer_parallel.networks import Block, plain_loop
from torch import Tensor

import weft
from weft import LayerParallel, Solve

STEPS = 14


def gradients(comm: weft.Communicator, iterations: int, relinearize: bool) -> dict[int, Tensor]:
    """Returns the gradients of the first weights of this rank's layers, by number."""
    torch.manual_seed(3)
    solve = Solve(iterations=iterations, tolerance=0, relative_tolerance=0, relaxations=0)
    layers = [Block(4) for _ in range(STEPS)]
    net = LayerParallel(
        comm, layers, tf=4.0, levels=3, cfactor=2, forward=solve, backward=solve, relinearize=relinearize
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations do not converge
        weft.backward(net(torch.ones(2, 4, dtype=torch.float64)).sum())
    return {number: next(net.layers[str(number)].parameters()).grad for number in net.own}


@pytest.fixture
def alone(comm: weft.Communicator) -> weft.Communicator:
    return comm.split(comm.rank)


def test_converged_gradients_are_those_of_the_loop(comm: weft.Communicator) -> None:
    torch.manual_seed(3)
    layers = [Block(4) for _ in range(STEPS)]
    copies, _, y = plain_loop(layers, ["residual"] * STEPS, 4.0, torch.ones(2, 4, dtype=torch.float64))
    y.sum().backward()
    for number, gradient in gradients(comm, 20, relinearize=True).items():
        torch.testing.assert_close(gradient, next(copies[number].parameters()).grad)


def test_unconverged_gradients_do_not_depend_on_the_ranks(comm: weft.Communicator, alone: weft.Communicator) -> None:
    expected = gradients(alone, 1, relinearize=True)
    for number, gradient in gradients(comm, 1, relinearize=True).items():
        torch.testing.assert_close(gradient, expected[number], rtol=1e-12, atol=1e-12)
    recorded = gradients(alone, 1, relinearize=False)
    assert any(not torch.allclose(expected[number], recorded[number]) for number in expected)
