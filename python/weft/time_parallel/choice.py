"""Choice of a solver by measurement."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from ..communicator import Communicator
from ..errors import LayerError, NotConverged

CHUNKS: Final = (2, 4, 8, 16)
"""Numbers of chunks that ``solver="auto"`` measures."""
HOPELESS: Final = 3.0
"""A candidate whose first pass takes this many times as long as the best one gets no second pass."""


@dataclass(frozen=True)
class Choice:
    """A solver with its number of chunks."""

    solver: str
    chunks: int | None = None

    def __str__(self) -> str:
        return self.solver if self.chunks is None else f"{self.solver}(chunks={self.chunks})"


@dataclass(frozen=True)
class Measurement:
    """The time and the error of a candidate. Equal on all ranks."""

    choice: Choice
    seconds: float
    """Time of a forward and backward pass on the slowest rank."""
    error: float
    """Largest difference of outputs and gradients from the serial solver, relative to their largest element; infinity
    if the candidate did not converge."""


def candidates(rows: int, iterative: Sequence[str]) -> list[Choice]:
    """Returns the candidates for a batch of ``rows`` rows; the serial solver is the first.

    ``iterative``: the iterative solvers that the network supports.
    """
    pipelines = [Choice("pipeline", chunks) for chunks in CHUNKS if chunks <= rows]
    return [Choice("serial"), *pipelines, *map(Choice, iterative)]


def measure(
    comm: Communicator,
    choices: Sequence[Choice],
    begin: Callable[[], None],
    trial: Callable[[Choice], list[Tensor]],
) -> list[Measurement]:
    """Collective. Times a forward and backward pass with each candidate. The first candidate must be exact.

    Args:
        begin: called before each pass.
        trial: runs a pass with a candidate and returns its outputs and gradients.
    """
    found: list[Measurement] = []
    exact: list[Tensor] = []
    for choice in choices:
        seconds = error = math.inf
        best = min((one.seconds for one in found), default=math.inf)
        try:
            for _ in range(2):  # the first pass warms up, and is enough for a candidate that is far behind
                begin()
                comm.barrier()
                start = time.perf_counter()
                with warnings.catch_warnings(action="ignore"):
                    results = trial(choice)
                seconds = _largest(comm, time.perf_counter() - start)
                if seconds > HOPELESS * best:
                    break
            exact = exact or results
            error = _largest(comm, _error(results, exact))
        except (NotConverged, LayerError):  # on all ranks
            if not found:
                raise
        found.append(Measurement(choice, seconds, error))
    return found


def _largest(comm: Communicator, value: float) -> float:
    """Collective. Returns the largest value of all ranks."""
    return comm.all_reduce(torch.tensor(value, dtype=torch.float64), "max").item()


def _error(results: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """Returns the largest difference relative to the largest element; infinity instead of NaN."""
    largest = 0.0
    for result, other in zip(results, exact, strict=True):
        if other.numel():
            scale = other.abs().max().item()
            largest = max(largest, (result - other).abs().max().item() / (scale or 1.0))
    return largest if math.isfinite(largest) else math.inf
