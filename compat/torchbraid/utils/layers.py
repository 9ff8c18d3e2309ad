"""Layers that torchbraid needs special versions of. weft does not: torch's own are right inside a network."""

from torch import nn


class LPBatchNorm2d(nn.BatchNorm2d):
    """nn.BatchNorm2d, with torchbraid's arguments. Running statistics are updated once in a pass, by its last sweep."""

    def __init__(self, channels: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__(channels, eps=eps, momentum=momentum)


class LPDropout(nn.Dropout):
    """nn.Dropout: the same mask throughout a pass, forward and backward, and another one in the next."""
