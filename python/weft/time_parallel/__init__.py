"""Recurrent networks with fused recurrences, and with the sequence split over ranks."""

from .failure import NotConverged
from .gru import GRU
from .lstm import LSTM
from .options import SolverOptions

__all__ = ["GRU", "LSTM", "NotConverged", "SolverOptions"]
