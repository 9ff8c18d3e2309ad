"""Recurrence: one layer and direction of a recurrent network, as the solvers see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

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
    """Whether ``linearize`` returns the exact Jacobian also if ``full`` is false."""

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

    @abstractmethod
    def linearize(self, x: Tensor, state: Tensor, full: bool) -> tuple[Tensor, Tensor]:
        """Takes one step in each row. Returns the next states and the Jacobians [rows, blocks, blocks, lanes].

        Jacobians consist of diagonal blocks with ``lanes`` elements; a full Jacobian has one lane.
        """

    @abstractmethod
    def with_weights(self, weights: Sequence[Tensor]) -> Recurrence:
        """Returns the same recurrence with other weights."""

    def outputs(self, states: Tensor) -> Tensor:
        """Returns the outputs: the first tensor of the states [..., sum of widths]."""
        return states[..., : self.widths[0]]

    def join(self, state: State) -> Tensor:
        """Returns the tensors of a state as one matrix."""
        return state[0] if len(state) == 1 else torch.cat(state, dim=-1)

    def split(self, state: Tensor) -> State:
        """The inverse of ``join``."""
        return tuple(state.split(self.widths, dim=-1))
