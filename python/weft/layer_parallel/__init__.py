"""Layer-parallel training: deep networks whose layers are distributed over ranks."""

from .controller import ControlRecord, IterationController
from .micro_batches import PerSample
from .network import LayerParallel, SerialNetwork, zero_joined_to
from .solve import Solve, SolveStatistics

__all__ = [
    "ControlRecord",
    "IterationController",
    "LayerParallel",
    "PerSample",
    "SerialNetwork",
    "Solve",
    "SolveStatistics",
    "zero_joined_to",
]
