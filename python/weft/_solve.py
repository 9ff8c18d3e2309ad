"""How LayerParallel's two solves are done: options, their check, and what they did."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T", int, float)

CYCLES = ("V", "F")
STORAGES = ("all", "c-points")
GUESSES = ("zero", "constant", "coarse", "callback", "previous")
NORMS = (1, 2, math.inf)


@dataclass(frozen=True)
class Solve:
    """One direction's solve, by multigrid in time.

    Values that may differ from level to level are numbers or ``{level: number}``; level 0 is the finest, and levels
    that the mapping leaves out have the default.
    """

    iterations: int = 10
    """At most."""
    tolerance: float = 1e-12
    """Ends the iterations when the residual falls below it."""
    relative_tolerance: float = 1e-6
    """The same, relative to the first residual."""
    residual: bool = True
    """Whether residuals are computed at all; without them there are always ``iterations``, each a little cheaper."""
    relaxations: int | Mapping[int, int] = 1
    """0: F-relaxation, n: n times F and C, then F."""
    c_weight: float | Mapping[int, float] = 1.0
    """Of the new value in C-relaxation."""
    cycle: str = "V"
    """"V", or "F" (full multigrid)."""
    skip_downcycle: bool = False
    """The first iteration starts on the coarsest level."""
    relax_coarsest_only: bool = False
    """Relax the coarsest level instead of solving it."""
    storage: str = "all"
    """"all" points, or "c-points" (less memory; the others are computed again on the way)."""
    guess: str | Callable[[float], Any] = "zero"
    """"zero", "constant", "coarse" (the coarsest level's solution), "previous" (the last solve's), or a function of
    time that gives a state (forward only)."""
    norm: float = 2
    """Over time: 1, 2 or inf."""

    def __post_init__(self) -> None:
        _require("iterations", self.iterations, self.iterations >= 1, "at least 1")
        _require("cycle", self.cycle, self.cycle in CYCLES, f"one of {CYCLES}")
        _require("storage", self.storage, self.storage in STORAGES, f"one of {STORAGES}")
        _require("guess", self.guess, callable(self.guess) or self.guess in GUESSES, f"one of {GUESSES} or a function")
        _require("norm", self.norm, self.norm in NORMS, f"one of {NORMS}")

    def describe(self) -> dict[str, Any]:
        """For the library."""
        return {
            "iterations": self.iterations,
            "tolerance": self.tolerance,
            "relative_tolerance": self.relative_tolerance,
            "residual": self.residual,
            "relaxations": per_level(self.relaxations, 1),
            "c_weight": per_level(self.c_weight, 1.0),
            "cycle": CYCLES.index(self.cycle),
            "skip_downcycle": self.skip_downcycle,
            "relax_coarsest_only": self.relax_coarsest_only,
            "storage": STORAGES.index(self.storage),
            "guess": GUESSES.index("callback" if callable(self.guess) else self.guess),
            "norm": NORMS.index(self.norm),
        }


def per_level(value: T | Mapping[int, T], default: T) -> tuple[T, dict[int, T]]:
    """The value for all levels, and exceptions."""
    return (default, dict(value)) if isinstance(value, Mapping) else (value, {})


def _require(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"weft: expected {name} to be {expected}, got {value!r}")


@dataclass(frozen=True)
class SolveStatistics:
    """What a solve did. Counts are this rank's."""

    iterations: int
    converged: bool
    residuals: list[float | None]
    """Before each iteration's correction; None where it was not computed."""
    steps: list[int]
    """Layer evaluations on each level."""
    messages: int
    bytes: int
    seconds_waiting: float

    @property
    def known(self) -> list[float]:
        """The residuals that were computed."""
        return [residual for residual in self.residuals if residual is not None]

    @property
    def stalled(self) -> bool:
        """The iterations ended, and the residual had hardly fallen, or grown."""
        known = self.known
        return not self.converged and len(known) > 1 and not known[-1] < 0.5 * known[0]
