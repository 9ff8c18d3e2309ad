"""Layer-parallel training: deep networks whose layers are distributed over ranks."""

from .network import LayerParallel, SerialNetwork, zero_joined_to
from .solve import Solve, SolveStatistics

__all__ = ["LayerParallel", "SerialNetwork", "Solve", "SolveStatistics", "zero_joined_to"]
