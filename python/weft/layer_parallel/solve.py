"""Options and statistics of the two solves of LayerParallel."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T", int, float)

CYCLES = ("V", "F")
STORAGES = ("all", "c-points")
GUESSES = ("zero", "constant", "coarse", "callback", "previous")
NORMS = (1, 2, math.inf)
UNCONVERGED = {"forward": 0.1, "backward": 0.3}
"""Change of the states in the last sweep above which a solve counts as stalled. It is about the error of the output,
but two to three times the error of the gradients."""


@dataclass(frozen=True)
class Solve:
    """Options of a multigrid solve, forward or backward. Raises ValueError for values out of range.

    Values that may differ between levels are numbers or ``{level: number}``. Level 0 is the finest; levels that are not
    in the mapping use the default.
    """

    iterations: int = 10
    """Maximum number of iterations."""
    tolerance: float = 1e-12
    """Stop when the residual falls below this value."""
    relative_tolerance: float = 1e-6
    """Stop when the residual falls below this fraction of the first residual."""
    residual: bool = True
    """Compute residuals. Without them the solve always runs ``iterations``, each of which is slightly cheaper."""
    relaxations: int | Mapping[int, int] = 1
    """0 is F-relaxation; n is n times F- and C-relaxation, then F-relaxation."""
    c_weight: float | Mapping[int, float] = 1.0
    """Weight of the new value in C-relaxation."""
    cycle: str = "V"
    """"V", or "F" (full multigrid)."""
    skip_downcycle: bool = False
    """Start the first iteration on the coarsest level."""
    relax_coarsest_only: bool = False
    """Relax the coarsest level instead of solving it."""
    storage: str = "all"
    """"all" stores every point; "c-points" uses less memory and recomputes the other points."""
    guess: str | Callable[[float], Any] = "constant"
    """"constant" (the input at every point; "coarse" if the shape of the state changes), "zero", "coarse" (the solution
    of the coarsest level), "previous" (the result of the last solve), or, for forward only, a function from the time to
    a state."""
    norm: float = 2
    """Norm over time: 1, 2 or inf."""

    def __post_init__(self) -> None:
        require_integers("iterations", self.iterations, 1)
        require_integers("relaxations", self.relaxations, 0)
        _require("tolerance", self.tolerance, self.tolerance >= 0, "at least 0")
        _require("relative_tolerance", self.relative_tolerance, self.relative_tolerance >= 0, "at least 0")
        _require_levels("c_weight", self.c_weight)
        weights = self.c_weight.values() if isinstance(self.c_weight, Mapping) else [self.c_weight]
        _require("c_weight", self.c_weight, all(0 < weight < 2 for weight in weights), "above 0 and below 2")
        _require("cycle", self.cycle, self.cycle in CYCLES, f"one of {CYCLES}")
        _require("storage", self.storage, self.storage in STORAGES, f"one of {STORAGES}")
        _require("guess", self.guess, callable(self.guess) or self.guess in GUESSES, f"one of {GUESSES} or a function")
        _require("norm", self.norm, self.norm in NORMS, f"one of {NORMS}")

    def describe(self) -> dict[str, Any]:
        """Returns the options as the library expects them."""
        return {
            "iterations": self.iterations,
            "tolerance": self.tolerance,
            "relative_tolerance": self.relative_tolerance,
            "residual": self.residual,
            "relaxations": per_level(self.relaxations, 1),
            "c_weight": per_level(self.c_weight, 1.0),
            "cycle": self.cycle,
            "skip_downcycle": self.skip_downcycle,
            "relax_coarsest_only": self.relax_coarsest_only,
            "storage": self.storage,
            "guess": "callback" if callable(self.guess) else self.guess,
            "norm": float(self.norm),
        }


def per_level(value: T | Mapping[int, T], default: T) -> tuple[T, dict[int, T]]:
    """Returns the value for all levels, and the levels that differ."""
    return (default, dict(value)) if isinstance(value, Mapping) else (value, {})


def require_integers(name: str, value: Any, least: int) -> Any:
    """Returns ``value``: an integer of at least ``least``, or ``{level: integer}``. Raises TypeError or ValueError."""
    if isinstance(value, Mapping):
        _require_levels(name, value)
        return {level: require_integers(f"{name} of level {level}", each, least) for level, each in value.items()}
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"weft: expected {name} to be an integer, got {value!r}") from None
    _require(name, value, number >= least, f"at least {least}")
    return number


def _require_levels(name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        levels = all(isinstance(level, int) and level >= 0 for level in value)
        _require(name, value, levels, "a number or {level: number}, with levels from 0")


def _require(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"weft: expected {name} to be {expected}, got {value!r}")


@dataclass(frozen=True)
class SolveStatistics:
    """Statistics of a solve. Counts are those of this rank."""

    direction: str
    """"forward" or "backward"."""
    iterations: int
    converged: bool
    residuals: list[float | None]
    """Residual before the correction of each iteration; None if it was not computed."""
    last_change: float | None
    """Change of the states in the last sweep, relative to their norm: an estimate of the result's relative error in any
    setting. None with a single level."""
    steps: list[int]
    """Number of layer evaluations on each level. In backward, these are vector-Jacobian products."""
    messages: int
    bytes: int
    seconds_waiting: float

    @property
    def known(self) -> list[float]:
        """The residuals that were computed."""
        return [residual for residual in self.residuals if residual is not None]

    @property
    def stalled(self) -> bool:
        """Whether the solve ended without convergence and its last sweep still changed the states by more than 10%
        (forward) or 30% (backward)."""
        change = self.last_change
        return not self.converged and change is not None and not change <= UNCONVERGED[self.direction]
