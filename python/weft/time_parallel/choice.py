"""Choice of a solver by measurement."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import torch

from ..communicator import Communicator
from .solver import Choice

CHUNKS: Final = (2, 4, 8, 16)
"""Numbers of chunks that ``solver="auto"`` measures."""


def measure(comm: Communicator, rows: int, trial: Callable[[Choice], None]) -> Choice:
    """Collective. Times a forward and backward pass with each candidate and returns the fastest.

    Args:
        rows: the rows of the batch.
        trial: runs a pass with a candidate.
    """
    candidates = [Choice("serial"), *(Choice("pipeline", chunks) for chunks in CHUNKS if chunks <= rows)]
    times = []
    for candidate in candidates:
        elapsed = 0.0
        for _ in range(2):  # the first pass warms up
            comm.barrier()
            start = time.perf_counter()
            trial(candidate)
            elapsed = time.perf_counter() - start
        times.append(comm.all_reduce(torch.tensor(elapsed, dtype=torch.float64), "max").item())
    return candidates[times.index(min(times))]
