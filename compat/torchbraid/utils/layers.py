"""Layers that have special versions in torchbraid."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .done_flag import DoneFlag, DoneFlagMixin


class LPBatchNorm2d(DoneFlagMixin, nn.Module):
    """Batch normalisation of inputs with any number of dimensions, with torchbraid's arguments and buffers.

    weft updates the running statistics once per pass, with the last sweep.
    """

    running_statistics = ("mean", "var")

    def __init__(self, channels: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.channels = channels
        self.momentum = momentum
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))
        self.register_buffer("done_flag", DoneFlag.allocate())

    def reset_running_stats(self) -> None:
        self.mean.zero_()
        self.var.fill_(1)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.batch_norm(
            x, self.mean, self.var, self.weight, self.bias, self.training, self.momentum, self.eps
        )


class LPDropout(nn.Dropout):
    """nn.Dropout. The mask is constant during a pass, forward and backward, and changes between passes."""
