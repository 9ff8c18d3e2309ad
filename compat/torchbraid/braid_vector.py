"""BraidVector under torchbraid's module name."""

from ._vector import BraidVector

__all__ = ["BraidVector"]
