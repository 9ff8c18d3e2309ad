"""Recurrent networks with fused recurrences, and with the sequence split over ranks."""

from .failure import NotConverged
from .gru import GRU
from .lstm import LSTM
from .options import SolverOptions
from .para import ParaGRU, ParaLSTM

__all__ = ["GRU", "LSTM", "NotConverged", "ParaGRU", "ParaLSTM", "SolverOptions"]
