"""SequenceSolver: runs recurrences over the pieces of all ranks with the solver of a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..communicator import Communicator
from ..layer_parallel.solve import SolveStatistics
from .chain import run_chain
from .choice import Choice, Measurement, candidates, measure
from .mgrit import MultigridSolvers, run_mgrit
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


class SequenceSolver:
    """The solver of one network, its measured choice and the statistics of its last pass."""

    def __init__(self, comm: Communicator | None, options: SolverOptions) -> None:
        self.comm = comm if comm is not None and comm.size > 1 else None
        self.options = options
        self.choice: Choice | None = None
        """The solver in use; None before the first pass."""
        self.measurements: list[Measurement] = []
        """The measurements of ``solver="auto"``."""
        self._log = SolveLog()
        self._multigrid = MultigridSolvers(self.comm, options)
        self._slot = 0  # number of solves in this pass

    def choose(self, batch: Batch, trial: Callable[[Choice], list[Tensor]], newton: bool = True) -> Choice:
        """Collective. Returns the solver in use; with ``solver="auto"``, the first call measures the candidates.

        Args:
            trial: runs a forward and backward pass and returns its outputs and gradients.
            newton: whether the network supports Newton's method.
        """
        if self.choice is None:
            self.choice = self._choose(batch, trial, newton)
        return self.choice

    def _choose(self, batch: Batch, trial: Callable[[Choice], list[Tensor]], newton: bool) -> Choice:
        options = self.options
        if options.solver in ("newton", "mgrit"):
            return Choice(options.solver)
        if self.comm is None or options.solver == "serial":
            return Choice("serial")
        if options.solver == "pipeline":
            return Choice("pipeline", options.chunks or 4 * self.comm.size)
        iterative: list[str] = []
        if batch.x.dtype in (torch.float32, torch.float64):
            iterative = ["newton", "mgrit"] if newton else ["mgrit"]
        self.measurements = measure(self.comm, candidates(batch.x.size(1), iterative), self.begin, trial)
        usable = [one for one in self.measurements if one.error <= options.max_error]
        return min(usable, key=lambda one: one.seconds).choice

    def begin(self) -> None:
        """Starts a pass: its statistics replace those of the last one."""
        self._log = SolveLog()
        self._slot = 0

    @property
    def statistics(self) -> tuple[SolveStatistics | None, SolveStatistics | None]:
        return self._log.summary()

    def run(
        self, choice: Choice, recurrence: Recurrence, x: Tensor, initial: State, batch: Batch, reverse: bool = False
    ) -> tuple[Tensor, State]:
        """Collective. Returns the outputs of this rank's steps, and the final state on every rank.

        Args:
            x: the input of the recurrence in this rank's steps, for example products with the layer's weights.
        """
        slot = self._slot
        self._slot += 1
        if choice.solver == "newton":
            return run_newton(
                recurrence, x, initial, batch.lengths, reverse, self.comm, self.options, batch.wants_grad, self._log
            )
        if choice.solver == "mgrit":
            return run_mgrit(
                recurrence, x, initial, batch.lengths, batch.steps, reverse, self.comm, self._multigrid, slot,
                batch.wants_grad, self._log,
            )  # fmt: skip
        chunks = 1 if choice.chunks is None else min(choice.chunks, max(x.size(1), 1))
        return run_chain(recurrence, x, initial, batch.lengths, reverse, self.comm, chunks)


def share(comm: Communicator | None, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the weights by name. In backward, their gradients are summed over the ranks."""
    if comm is None or not weights:
        return weights
    return dict(zip(weights, torch.ops.weft.share(list(weights.values()), comm._id), strict=True))
