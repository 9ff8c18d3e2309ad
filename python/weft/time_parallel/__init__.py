"""Recurrent networks with fused recurrences, and with the sequence split over ranks."""

from .gru import GRU, ImplicitGRU
from .lstm import LSTM
from .options import SolverOptions
from .para import ParaGRU, ParaLSTM
from .time_parallel import TimeParallel

__all__ = ["GRU", "LSTM", "ImplicitGRU", "ParaGRU", "ParaLSTM", "SolverOptions", "TimeParallel"]
