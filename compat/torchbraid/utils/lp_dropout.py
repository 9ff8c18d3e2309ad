"""LPDropout under torchbraid's module name."""

from .layers import LPDropout

__all__ = ["LPDropout"]
