"""Recurrence: one layer and direction of a recurrent network, as the solvers see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from .piece import Piece
from .sweep import LinearizedSweep, Sweep

State = tuple[Tensor, ...]
"""The state of one layer and direction: (h,) or (h, c), each [batch, size]."""


class Recurrence(ABC):
    """A map from an input and a state to the next state, with its weights. Rows of a batch are independent.

    Solvers that compute many steps at once treat steps as further rows, and the tensors of a state as one matrix
    [rows, sum of widths].
    """

    name: str
    """Name of the cell in error messages."""
    widths: tuple[int, ...]
    """Sizes of the tensors of a state."""
    weights: tuple[Tensor, ...]
    """The tensors that ``step`` depends on, besides its arguments."""
    fallible: bool = False
    """Whether ``run`` may raise, because it calls code of the user."""
    exact: bool = False
    """Whether sweeps use the exact Jacobian also if ``full`` is false, and ``adjoint`` exists."""

    @abstractmethod
    def run(self, x: Tensor, state: State, lengths: Tensor | None, reverse: bool) -> tuple[Tensor, State]:
        """Runs all steps of x [steps, batch, ...]. Returns the outputs and the final state. Differentiable.

        Args:
            lengths: the number of steps of each row; the outputs of later steps are 0.
            reverse: from the last step of each row to its first.
        """

    @abstractmethod
    def step(self, x: Tensor, state: Tensor, weights: Sequence[Tensor], dt: float = 1) -> Tensor:
        """Takes one step in each row. Differentiable.

        Args:
            x: [rows, ...]. state: [rows, sum of widths]. weights: replace those of the recurrence.
            dt: the number of steps that this step stands for; above 1 on the coarse levels of multigrid.
        """

    def linearize(self, x: Tensor, state: Tensor, full: bool) -> tuple[Tensor, Tensor]:
        """Takes one step in each row. Returns the next states and the Jacobians [rows, blocks, blocks, lanes].

        Jacobians consist of diagonal blocks with ``lanes`` elements; a full Jacobian has one lane.
        """
        raise NotImplementedError

    def blocks(self, full: bool) -> int:
        """Returns the number of diagonal blocks in a row of the Jacobian."""
        if full:
            return sum(self.widths)
        return len(self.widths) if len(set(self.widths)) == 1 else 1

    def sweep(self, piece: Piece, states: Tensor, full: bool, scale: float, summary: bool) -> Sweep:
        """Linearises all steps.

        Args:
            states: the state before the piece and after each step, [1 + steps, batch, sum of widths].
            full: use the full Jacobian instead of diagonal blocks. scale: a factor of the Jacobians.
            summary: whether the summary and the Jacobians of the sweep are needed.
        """
        return LinearizedSweep(lambda x, before: self.linearize(x, before, full), piece, states, scale)

    def adjoint(
        self, piece: Piece, states: Tensor, of_outputs: Tensor, of_last: Tensor
    ) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
        """Returns the gradients of x, in the order of the sequence, of the state before the piece and of the weights.

        Args:
            states: the state before the piece and after each step.
            of_outputs: gradients of the outputs, in the order of the sequence. of_last: of the state after the piece.
        """
        raise NotImplementedError

    @abstractmethod
    def with_weights(self, weights: Sequence[Tensor]) -> Recurrence:
        """Returns the same recurrence with other weights."""

    def outputs(self, states: Tensor) -> Tensor:
        """Returns the outputs: the first tensor of the states [..., sum of widths]."""
        return states if len(self.widths) == 1 else states[..., : self.widths[0]]

    def join(self, state: State) -> Tensor:
        """Returns the tensors of a state as one matrix."""
        return state[0] if len(state) == 1 else torch.cat(state, dim=-1)

    def split(self, state: Tensor) -> State:
        """The inverse of ``join``."""
        return tuple(state.split(self.widths, dim=-1))
