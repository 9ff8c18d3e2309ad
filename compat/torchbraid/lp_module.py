"""LPModule under torchbraid's module name."""

from ._module import LPModule

__all__ = ["LPModule"]
