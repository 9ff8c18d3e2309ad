"""Layers that have special versions in torchbraid. weft uses those of torch."""

from torch import nn


class LPBatchNorm2d(nn.BatchNorm2d):
    """nn.BatchNorm2d, with torchbraid's arguments. The last sweep of a pass updates running statistics once."""

    def __init__(self, channels: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__(channels, eps=eps, momentum=momentum)


class LPDropout(nn.Dropout):
    """nn.Dropout. The mask is constant during a pass, forward and backward, and changes between passes."""
