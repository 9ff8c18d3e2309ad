"""Vector-Jacobian products of all steps at once, for the adjoints of the solvers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from .._tape import tape
from .piece import as_rows
from .recurrence import Recurrence

UNUSED: Final[dict[str, Any]] = {"allow_unused": True, "materialize_grads": True}
"""Options of torch.autograd.grad: a cell need not use all of its weights."""


class StepGradients:
    """The steps of a recurrence at given states, with their graph.

    Args:
        x: [steps, batch, ...]. before: the states before each step, [steps, batch, sum of widths].
        active: [steps, batch, 1], false after the end of a row; None if all steps are active.
    """

    def __init__(self, recurrence: Recurrence, x: Tensor, before: Tensor, active: Tensor | None) -> None:
        self._active = active
        self._shapes = (x.shape, before.shape)
        with torch.enable_grad(), tape(False):
            self._x = as_rows(x).detach().requires_grad_()
            self._before = as_rows(before).detach().requires_grad_()
            self._weights = [weight.detach().requires_grad_() for weight in recurrence.weights]
            self._after = recurrence.step(self._x, self._before, self._weights)
        self._found: Sequence[Tensor] | None = None  # the last gradients of x and of the weights

    def of_states_before(self, of_states: Tensor, with_inputs: bool) -> Tensor:
        """Returns the gradients of the states before each step for given gradients of the states after it.

        Args:
            with_inputs: also compute the gradients that ``of_inputs`` returns, at a lower cost than separately.
        """
        wanted = [self._before, *([self._x, *self._weights] if with_inputs else [])]
        found = torch.autograd.grad(self._after, wanted, self._vector(of_states), retain_graph=True, **UNUSED)
        self._found = found[1:] if with_inputs else None
        passed = found[0].view(self._shapes[1])
        return passed if self._active is None else torch.where(self._active, passed, of_states)

    def of_inputs(self, of_states: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        """Returns the gradients of x and of the weights. Call it last."""
        found = self._found
        if found is None:
            found = torch.autograd.grad(self._after, [self._x, *self._weights], self._vector(of_states), **UNUSED)
        return found[0].view(self._shapes[0]), found[1:]

    def _vector(self, of_states: Tensor) -> Tensor:
        return as_rows(of_states if self._active is None else of_states.where(self._active, 0))
