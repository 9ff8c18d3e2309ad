"""The networks of the layer-parallel benchmarks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from weft import Solve

WIDTH, BATCH = 64, 100


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))))


def dense_input() -> Tensor:
    return torch.randn(BATCH, WIDTH)


def image_input(batch: int = 50) -> Tensor:
    return torch.randn(batch, 4, 28, 28)


FORWARD = Solve(iterations=2, relaxations=0, skip_downcycle=True, residual=False, storage="c-points")
BACKWARD = Solve(iterations=1, relaxations=0, skip_downcycle=True, residual=False, storage="c-points")


def plain(layers: list[nn.Module], x: Tensor) -> Tensor:
    dt = 1 / len(layers)
    for layer in layers:
        x = x + dt * layer(x)
    return x
