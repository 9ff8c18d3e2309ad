"""Line searches for the coarse-grid correction of MG/OPT."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Trial:
    """A direction in which a line search moves the parameters. All ranks see the same loss and slope."""

    parameters: Sequence[Tensor]
    direction: Sequence[Tensor]
    loss: Callable[[], float]
    """Collective. Returns the objective at the present parameters."""
    old_loss: float
    slope: float
    """The derivative of the objective in the direction."""
    optimizer: torch.optim.Optimizer
    report: Callable[[str], None] = lambda text: None

    @torch.no_grad()
    def move(self, alpha: float) -> None:
        """Adds a multiple of the direction to the parameters."""
        for parameter, step in zip(self.parameters, self.direction, strict=True):
            parameter.add_(step, alpha=alpha)


LineSearch = Callable[[Trial], float]
"""Collective. Moves the parameters and returns the step length."""


@dataclass(frozen=True)
class Weighting:
    """Moves by ``alpha`` without a search."""

    alpha: float = 1.0

    def __call__(self, trial: Trial) -> float:
        trial.move(self.alpha)
        return self.alpha


@dataclass(frozen=True)
class BestOf:
    """Tries all step lengths and takes the one with the smallest loss, or none if every loss is NaN."""

    alphas: Sequence[float]

    def __call__(self, trial: Trial) -> float:
        best, best_loss = 0.0, math.inf
        for alpha in self.alphas:
            trial.move(alpha)
            loss = trial.loss()
            trial.report(f"  LS Alpha Test:        {alpha}  Loss = {loss}")
            if loss < best_loss:
                best, best_loss = alpha, loss
            trial.move(-alpha)
        trial.move(best)
        trial.report(f"  LS Alpha chosen:        {best}  Loss = {best_loss}")
        return best


@dataclass(frozen=True)
class Backtracking:
    """Halves the step until the loss falls enough (Armijo's rule). Returns 0 and does not move if it never does, or if
    the direction is not a descent direction."""

    steps: int = 6
    alpha: float = 1.0
    c1: float = 0.0001

    def __call__(self, trial: Trial) -> float:
        alpha = self.alpha if trial.slope < 0 else 0.0
        for _ in range(self.steps if alpha else 0):
            trial.move(alpha)
            if trial.loss() < trial.old_loss + self.c1 * alpha * trial.slope:
                break
            trial.move(-alpha)
            alpha /= 2
        else:
            alpha = 0.0
        trial.report(f"  LS Alpha used:     {alpha:.4f}  e_dot_gradf:  {trial.slope:.4e}")
        return alpha


@dataclass(frozen=True)
class OptimizerStep:
    """Gives the direction to the optimizer of the level as a gradient."""

    def __call__(self, trial: Trial) -> float:
        for parameter, step in zip(trial.parameters, trial.direction, strict=True):
            parameter.grad = -step
        trial.optimizer.step()
        return 1.0
