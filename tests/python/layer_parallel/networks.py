"""Small layers and the plain loop that tests compare LayerParallel with."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width).double()

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


class Stepped(Block):
    """Uses the step size, so that the function differs between levels."""

    def forward(self, x: Tensor, dt: float) -> Tensor:  # type: ignore[override]
        return x * (1 - 0.3 * dt) + dt * torch.tanh(self.linear(x))


class Pair(nn.Module):
    """A state of two tensors."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.b = (nn.Linear(width, width).double() for _ in range(2))

    def forward(self, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        x, v = state
        return v, -torch.sin(self.a(x)) + 0.1 * self.b(v)


def plain_loop(
    layers: Sequence[nn.Module], forms: Sequence[str], tf: float, x: Any, *extras: Any, detach: bool = True
) -> tuple[list[nn.Module], Any, Any]:
    """Returns copies of the layers, the input as a leaf, and the result of applying the layers in order."""
    copies = list(copy.deepcopy(nn.ModuleList(layers)))
    for layer in copies:
        layer.zero_grad()
    leaf = x
    if detach:
        leaf = tuple(t.clone().requires_grad_() for t in x) if isinstance(x, tuple) else x.clone().requires_grad_()
    dt = tf / len(copies)
    y = leaf
    for layer, form in zip(copies, forms, strict=True):
        if form == "step":
            y = layer(y, dt, *extras)
        elif form == "plain":
            y = layer(y, *extras)
        elif isinstance(y, tuple):
            y = tuple(a + dt * b for a, b in zip(y, layer(y, *extras), strict=True))
        else:
            y = y + dt * layer(y, *extras)
    return copies, leaf, y


def same_gradients(module: nn.Module, expected: nn.Module, **tolerance: float) -> None:
    for mine, other in zip(module.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, **tolerance)


class Trap(torch.autograd.Function):
    """The identity, whose backward raises the exception `armed`."""

    armed: type[BaseException] | None = None

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        if Trap.armed is not None:
            raise Trap.armed("no gradient today")
        return gradient
