"""Terms of a loss."""

import math
from typing import Any

import torch
from torch import Tensor, nn


class _WithValue(torch.autograd.Function):
    """Returns ``value`` with the gradient of ``x``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: float) -> Tensor:
        return torch.full_like(x, value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def l2_reg(module: nn.Module, comm: Any = None) -> Tensor:
    """Returns the sum of squares of all parameters; with an mpi4py communicator (collective), over all its ranks.

    The gradient on each rank is that of its own parameters. The value is summed exactly and rounded once, so that it is
    the same for any split of the network.
    """
    parameters = list(module.parameters())
    squares = [parameter.detach().double().square().sum().item() for parameter in parameters]
    if comm is not None:
        squares = [square for part in comm.allgather(squares) for square in part]
    own = sum((parameter.square().sum() for parameter in parameters), torch.zeros(()))
    return _WithValue.apply(own, math.fsum(squares))
