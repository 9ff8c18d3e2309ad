"""GRU_Parallel and GRU_Serial under torchbraid's module name."""

from ._gru import GRU_Parallel, GRU_Serial

__all__ = ["GRU_Parallel", "GRU_Serial"]
