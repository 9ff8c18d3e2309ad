"""MG/OPT: multigrid for optimization. Coarse levels are networks of smaller depth.

Level h minimizes f_h(x) - <v, x>. The term v (the tau correction) makes the gradient of a coarse level agree with the
restricted gradient of the level above it, so that a minimum of the fine level is a fixed point of the cycle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from weft.communicator import Communicator

from .line_search import LineSearch, Trial, Weighting

Tensors = list[Tensor]


@dataclass
class Level:
    """A network of the hierarchy. Functions are collective."""

    parameters: Callable[[], Tensors]
    """Returns the parameters of this rank, always in the same order."""
    objective: Callable[[Any, bool, Tensor | None], Tensor]
    """objective(batch, gradients, term): returns the loss minus the term (if any) as a tensor that supports backward;
    the value is that of rank 0."""
    optimizer: Callable[[], torch.optim.Optimizer]
    restrict_parameters: Callable[[], Tensors] = list
    """Returns the parameters of the next coarser level; not used on the coarsest level. Likewise below."""
    restrict_gradients: Callable[[], Tensors] = list
    interpolate: Callable[[], Tensors] = list
    """Returns the values of the next coarser level's parameters on this level."""
    line_search: LineSearch = field(default_factory=Weighting)
    steps: list[float] = field(default_factory=list)
    """The step lengths of the line searches so far."""


class MGOPT:
    """MG/OPT cycles over levels, from fine to coarse. Collective over ``comm``, over which the parameters are split.

    If the line search of a level finds no smaller loss, the level keeps its parameters, records a step of 0 and
    continues with its relaxation. If a layer or the line search raises, the parameters of that level are restored.

    Args:
        pre, post: optimizer steps before and after the coarse-grid correction.
        coarse: optimizer steps on the coarsest level.
        report: called with progress messages.
    """

    def __init__(
        self,
        comm: Communicator,
        levels: Sequence[Level],
        *,
        pre: int = 1,
        post: int = 1,
        coarse: int = 5,
        report: Callable[[str], None] = lambda text: None,
    ) -> None:
        if not levels:
            raise ValueError("weft: MG/OPT needs at least one level")
        self._comm = comm
        self._levels = list(levels)
        self._pre, self._post, self._coarse = pre, post, coarse
        self._report = report

    def cycle(self, batch: Any) -> float:
        """Collective. Improves the parameters of the finest level with one V-cycle on a batch; returns the last loss.

        With a single level it takes ``coarse`` optimizer steps.
        """
        return self._solve(0, batch, None)

    def _solve(self, number: int, batch: Any, v: Tensors | None) -> float:
        level = self._levels[number]
        optimizer = level.optimizer()
        self._report(f"\n  Level:  {number}")
        if number + 1 == len(self._levels):
            return self._relax(level, optimizer, batch, v, self._coarse, "Coarsest grid solve loss: ")
        self._relax(level, optimizer, batch, v, self._pre, "Pre-relax loss:       ")
        loss = self._gradients(level, batch, v)
        self._report(f"  Pre-relax done loss:  {loss}")
        gradients = _gradients_of(level.parameters())
        correction = self._correct(number, batch)
        trial = Trial(
            level.parameters(),
            correction,
            lambda: self._value(level, batch, v),
            loss,
            self._dot(correction, gradients),
            optimizer,
            self._report,
        )
        level.steps.append(_search(number, level.line_search, trial))
        return self._relax(level, optimizer, batch, v, self._post, "Post-relax loss:      ") if self._post else loss

    def _correct(self, number: int, batch: Any) -> Tensors:
        """Returns the correction of the level's parameters that the coarser levels compute."""
        level, coarse = self._levels[number], self._levels[number + 1]
        restricted = level.restrict_gradients()
        start = level.restrict_parameters()
        _assign(coarse.parameters(), start)
        self._gradients(coarse, batch, None)
        v = [mine - other for mine, other in zip(_gradients_of(coarse.parameters()), restricted, strict=True)]
        self._solve(number + 1, batch, v)
        self._report("  Recursion exited\n")
        solution = [parameter.detach().clone() for parameter in coarse.parameters()]
        # The interpolation reads the coarse network, so it holds the error for a moment.
        _assign(coarse.parameters(), [new - old for new, old in zip(solution, start, strict=True)])
        correction = level.interpolate()
        _assign(coarse.parameters(), solution)
        self._report(f"  Norm of error correction:       {self._dot(correction, correction) ** 0.5}")
        return correction

    def _relax(
        self, level: Level, optimizer: torch.optim.Optimizer, batch: Any, v: Tensors | None, steps: int, text: str
    ) -> float:
        loss = 0.0
        for _ in range(steps):
            loss = self._gradients(level, batch, v)
            self._report(f"  {text}{loss}")
            optimizer.step()
        return loss

    def _gradients(self, level: Level, batch: Any, v: Tensors | None) -> float:
        """Computes the gradients of the objective; returns its value."""
        parameters = level.parameters()
        for parameter in parameters:
            parameter.grad = None
        loss = level.objective(batch, True, self._term(parameters, v))
        loss.backward()
        return self._agree(loss)

    def _value(self, level: Level, batch: Any, v: Tensors | None) -> float:
        with torch.no_grad():
            return self._agree(level.objective(batch, False, self._term(level.parameters(), v)))

    def _term(self, parameters: Tensors, v: Tensors | None) -> Tensor | None:
        """Returns <v, x>: the value is that of all ranks, the gradient that of this rank's parameters."""
        if v is None:
            return None
        own = sum(
            (torch.sum(factor * parameter) for factor, parameter in zip(v, parameters, strict=True)), torch.zeros(())
        )
        return own + (self._sum(own.detach()) - own.detach())

    def _dot(self, x: Sequence[Tensor], y: Sequence[Tensor]) -> float:
        own = sum((torch.sum(a * b) for a, b in zip(x, y, strict=True)), torch.zeros(()))
        return self._sum(own.detach()).item()

    def _sum(self, value: Tensor) -> Tensor:
        with torch.no_grad():
            return self._comm.all_reduce(value.double()).to(value.dtype)

    def _agree(self, loss: Tensor) -> float:
        """Returns the loss of rank 0 on all ranks."""
        with torch.no_grad():
            return self._comm.broadcast(loss.detach().double().reshape(1), root=0).item()


def _search(number: int, line_search: LineSearch, trial: Trial) -> float:
    """Runs a line search. The parameters keep their values if it fails, and if it finds no step (0)."""
    before = [parameter.detach().clone() for parameter in trial.parameters]
    step = math.nan
    try:
        step = float(line_search(trial))
        if not math.isfinite(step):
            raise ValueError(f"weft: MG/OPT: the line search of level {number} returned {step}")
    finally:
        if step == 0 or not math.isfinite(step):
            _assign(trial.parameters, before)
    return step


def _gradients_of(parameters: Sequence[Tensor]) -> Tensors:
    return [torch.zeros_like(p) if p.grad is None else p.grad.detach().clone() for p in parameters]


@torch.no_grad()
def _assign(parameters: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)
