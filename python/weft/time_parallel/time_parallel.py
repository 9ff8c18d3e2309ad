"""TimeParallel: a user's recurrent cell, whose sequence may be split over ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .._tape import grad, tape
from ..communicator import Communicator
from ..layer_parallel.solve import SolveStatistics
from .agreement import agree
from .cell import Cell, CellRecurrence, cell_name
from .choice import Choice, Measurement
from .options import SolverOptions
from .recurrence import State
from .solver import Batch, SequenceSolver, share


class TimeParallel(nn.Module):
    """Applies a cell to all steps of a sequence, which may be split over the ranks of ``comm``.

    Args:
        cell: a module or function ``cell(x_t, state) -> state``, in which ``x_t`` is [batch, ...] and a state is a
            tensor [batch, ...] or a tuple of tensors. The rows of a batch must be independent, and the state keeps its
            shape. A cell with an argument ``dt`` gets the number of steps that a coarse step of multigrid stands for.
            All ranks hold the parameters; after ``weft.backward`` every rank has the same total gradient.
        outputs: "all" or "last"; see SolverOptions.
        batch_first: x is [batch, steps, ...] instead of [steps, batch, ...].
        comm, solver, options: as in weft.GRU.

    Raises ValueError for arguments that do not fit.
    """

    def __init__(
        self, cell: Cell, *, comm: Communicator | None = None, solver: str = "auto", batch_first: bool = False,
        outputs: str = "all", **options: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.cell = cell
        self.comm = comm
        self.batch_first = batch_first
        self._solver = SequenceSolver(comm, SolverOptions(solver=solver, outputs=outputs, **options))

    def forward(self, x: Tensor, state: Any = None, *, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        """Collective. Returns the first tensor of the state after each of this rank's steps, and the final state.

        Args:
            x: this rank's steps; ranks may have different numbers of steps, or none.
            state: the initial state; rank 0 must pass it, and that of rank 0 counts.
            lengths: the number of steps of each row of the whole sequence; outputs of later steps are 0.

        Raises ValueError on all ranks if the arguments of a rank do not fit, LayerError if the cell fails on a rank,
        and NotConverged.
        """
        if self.batch_first and isinstance(x, Tensor) and x.dim() >= 2:
            x = x.transpose(0, 1)
        initial = None if state is None else [state] if isinstance(state, Tensor) else list(state)
        single = self._single(state)
        wants_grad = torch.is_grad_enabled() and any(
            t.requires_grad for t in (x, *(initial or []), *self.parameters()) if isinstance(t, Tensor)
        )
        problem = self._problem(x, initial, lengths)
        batch, states = agree(
            self.comm, "TimeParallel", lambda: self._facts(x, lengths), problem, x, initial, lengths, wants_grad
        )
        if states is None:
            raise ValueError("weft: TimeParallel: expected an initial state on rank 0, got None")
        single = len(states) == 1 if single is None else single
        shapes = [tensor.shape[1:] for tensor in states]
        weights = share(self._solver.comm, self._parameters_of_cell())
        choice = self._solver.choose(batch, lambda choice: self._trial(choice, batch, states, shapes, single))
        self._solver.begin()
        recurrence = CellRecurrence(self.cell, shapes, single, weights)
        y, final = self._run(choice, recurrence, batch, states)
        result = tuple(part.reshape(part.size(0), *shape) for part, shape in zip(final, shapes, strict=True))
        if self._solver.options.outputs == "last":
            return result[0], result[0] if single else result
        y = y.reshape(*y.shape[:2], *shapes[0])
        return (y.transpose(0, 1) if self.batch_first else y), result[0] if single else result

    @property
    def choice(self) -> str | None:
        """The solver in use. With ``solver="auto"`` it is known after the first forward pass."""
        return self._solver.choice.solver if self._solver.choice else None

    @property
    def measurements(self) -> list[Measurement]:
        """Times and errors of the solvers that ``solver="auto"`` measured in the first forward pass."""
        return self._solver.measurements

    @property
    def statistics(self) -> tuple[SolveStatistics | None, SolveStatistics | None]:
        """Statistics of the last forward and backward solve of an iterative solver; None if there was none."""
        return self._solver.statistics

    def _parameters_of_cell(self) -> dict[str, Tensor]:
        return dict(self.cell.named_parameters()) if isinstance(self.cell, nn.Module) else {}

    @staticmethod
    def _single(state: Any) -> bool | None:
        return None if state is None else isinstance(state, Tensor)

    def _run(
        self, choice: Choice, recurrence: CellRecurrence, batch: Batch, states: list[Tensor]
    ) -> tuple[Tensor, State]:
        initial = tuple(
            tensor.reshape(len(tensor), width) for tensor, width in zip(states, recurrence.widths, strict=True)
        )
        return self._solver.run(choice, recurrence, batch.x, initial, batch)

    def _trial(
        self, choice: Choice, batch: Batch, states: list[Tensor], shapes: list[torch.Size], single: bool
    ) -> list[Tensor]:
        """Collective. A forward and backward pass without effects. Returns its outputs and gradients."""
        with torch.enable_grad(), tape():
            copies = {name: w.detach().requires_grad_() for name, w in self._parameters_of_cell().items()}
            x = batch.x.detach().requires_grad_()
            detached = Batch(x, batch.steps, batch.offset, batch.lengths, wants_grad=True)
            recurrence = CellRecurrence(self.cell, shapes, single, copies)
            y, _ = self._run(choice, recurrence, detached, [state.detach() for state in states])
            return [y.detach(), *grad(y.sum(), [x, *copies.values()])]

    def _facts(self, x: Any, lengths: Tensor | None) -> dict[str, Any]:
        """Returns the values that must be equal on all ranks."""
        return {
            "batch": x.size(1) if isinstance(x, Tensor) and x.dim() >= 2 else None,
            "dtype": str(x.dtype) if isinstance(x, Tensor) else None,
            "features": tuple(x.shape[2:]) if isinstance(x, Tensor) else None,
            "cell": (cell_name(self.cell), [tuple(p.shape) for p in self.parameters()]),
            "solver": self._solver.options.facts(),
            "masked": lengths is not None,
        }

    def _problem(self, x: Any, initial: list[Any] | None, lengths: Tensor | None) -> str:
        if not isinstance(x, Tensor) or x.dim() < 2 or not x.is_floating_point():
            got = f"{x.dtype}{list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            return f"expected a floating-point sequence of at least 2 dimensions, got {got}"
        for tensor in initial or []:
            if not isinstance(tensor, Tensor):
                return f"expected a state of tensors, got {type(tensor).__name__}"
            if tensor.dim() < 1 or tensor.size(0) != x.size(1):
                return f"expected a state of {x.size(1)} rows (the batch), got {tuple(tensor.shape)}"
            if tensor.dtype != x.dtype:
                return f"expected the input's dtype {x.dtype} for the state, got {tensor.dtype}"
        if initial is not None and not initial:
            return "expected a state of at least one tensor, got an empty tuple"
        if lengths is not None and (lengths.dim() != 1 or lengths.size(0) != x.size(1) or lengths.is_floating_point()):
            got = f"{lengths.dtype} of shape {tuple(lengths.shape)}"
            return f"expected {x.size(1)} integer lengths, one per row, got {got}"
        return ""
