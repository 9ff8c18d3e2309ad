"""Sweeps of Newton's method: all steps of a piece, linearised at given states."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from .piece import Piece, as_rows

Linearize = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Maps inputs and states, one row per step, to the next states and their Jacobians."""


class Sweep(Protocol):
    """The recurrence of a piece, linearised at given states."""

    largest: float
    """The largest residual of the given states; infinity if one of them is NaN."""
    jacobian: Tensor | None
    """The Jacobians of all steps, [steps, batch, blocks, blocks, lanes]; None if no summary was wanted."""

    def summary(self) -> tuple[Tensor, Tensor]:
        """Returns (product, change): if the state before the piece changes by d, that after it changes by
        product d + change. product: [batch, blocks, blocks, lanes]."""

    def solve(self, start: Tensor | None) -> Tensor:
        """Returns the states that solve the linearised recurrence. Call it once.

        ``start``: the change of the state before the piece; None if it stays.
        """


class LinearizedSweep:
    """A sweep with a function that linearises independent steps. ``scale``: a factor of the Jacobians."""

    def __init__(self, linearize: Linearize, piece: Piece, states: Tensor, scale: float) -> None:
        before, after = states[:-1], states[1:]
        following, jacobian = linearize(as_rows(piece.x), as_rows(before))
        following = following.view_as(after)
        jacobian = jacobian.view(*before.shape[:2], *jacobian.shape[1:])
        if piece.active is not None:
            following = torch.where(piece.active, following, before)
            identity = torch.eye(jacobian.size(2), dtype=jacobian.dtype).unsqueeze(2)
            jacobian = torch.where(piece.active[..., None, None], jacobian, identity).contiguous()
        self.jacobian: Tensor | None = jacobian if scale == 1 else jacobian * scale
        self._states = states
        self._residual = following - after
        self.largest = largest_element(self._residual)

    def summary(self) -> tuple[Tensor, Tensor]:
        return torch.ops.weft.linear_scan_summary(self.jacobian, self._residual, False)

    def solve(self, start: Tensor | None) -> Tensor:
        torch.ops.weft.linear_scan_(self.jacobian, self._residual, start, False)
        states = self._states.clone()
        states[1:] += self._residual
        if start is not None:
            states[0] += start
        return states


class FusedSweep:
    """A sweep of a cell with a diagonal Jacobian, in one pass over the steps.

    Args:
        operation: the name of the cell's operations. weight: that of the operation.
        summary: whether the state before the piece may change.
    """

    def __init__(
        self, operation: str, weight: Tensor, piece: Piece, states: Tensor, scale: float, summary: bool
    ) -> None:
        sweep = getattr(torch.ops.weft, f"{operation}_sweep")
        self._states, largest, self._change, self.jacobian, self._product = sweep(
            piece.x, states, weight, piece.lengths, piece.reverse, scale, summary
        )
        worst = largest.amax().item() if len(largest) else 0.0
        self.largest = math.inf if math.isnan(worst) else worst

    def summary(self) -> tuple[Tensor, Tensor]:
        return self._product, self._change

    def solve(self, start: Tensor | None) -> Tensor:
        if start is not None:
            torch.ops.weft.add_linear_response_(self.jacobian, self._states[1:], start)
            self._states[0] += start
        return self._states


def largest_element(x: Tensor) -> float:
    """Returns the largest absolute value; infinity if there is a NaN."""
    if x.numel() == 0:
        return 0.0
    low, high = (bound.item() for bound in torch.aminmax(x))
    return math.inf if math.isnan(low) else max(high, -low)
