"""SequenceSolver: runs recurrences over the pieces of all ranks with the solver of a network."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .._solve import SolveStatistics
from ..communicator import Communicator
from .chain import run_chain
from .newton import run_newton
from .options import SolveLog, SolverOptions
from .recurrence import Recurrence, State


@dataclass(frozen=True)
class Batch:
    """The input of a forward pass in time-major order, with the facts that all ranks have agreed on."""

    x: Tensor
    """This rank's steps: [steps, batch, ...]."""
    steps: tuple[int, ...]
    """Numbers of steps of all ranks."""
    offset: int
    """Position of this rank's first step in the sequence."""
    lengths: Tensor | None
    """Number of this rank's steps in each row (int64, CPU)."""
    wants_grad: bool
    """Whether any rank needs gradients."""


@dataclass(frozen=True)
class Choice:
    """A solver with its number of chunks."""

    solver: str
    chunks: int | None = None

    def __str__(self) -> str:
        return self.solver if self.chunks is None else f"{self.solver}(chunks={self.chunks})"


class SequenceSolver:
    """The solver of one network, and the statistics of its last pass."""

    def __init__(self, comm: Communicator | None, options: SolverOptions) -> None:
        self.comm = comm if comm is not None and comm.size > 1 else None
        self.options = options
        self.log = SolveLog()

    def begin(self) -> None:
        """Starts a pass: its statistics replace those of the last one."""
        self.log = SolveLog()

    @property
    def statistics(self) -> tuple[SolveStatistics | None, SolveStatistics | None]:
        return self.log.summary()

    def run(
        self, choice: Choice, recurrence: Recurrence, x: Tensor, initial: State, batch: Batch, reverse: bool = False
    ) -> tuple[Tensor, State]:
        """Collective. Returns the outputs of this rank's steps, and the final state on every rank.

        Args:
            x: the input of the recurrence in this rank's steps, for example products with the layer's weights.
        """
        if choice.solver == "newton":
            return run_newton(
                recurrence, x, initial, batch.lengths, reverse, self.comm, self.options, batch.wants_grad, self.log
            )
        chunks = 1 if choice.chunks is None else min(choice.chunks, max(x.size(1), 1))
        return run_chain(recurrence, x, initial, batch.lengths, reverse, self.comm, chunks)
