"""LPBatchNorm2d under torchbraid's module name."""

from .layers import LPBatchNorm2d

__all__ = ["LPBatchNorm2d"]
