"""Options and statistics of the solvers of recurrent networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from ..layer_parallel.solve import Solve, SolveStatistics, per_level, require_integers

SOLVERS: Final = ("auto", "serial", "pipeline", "newton", "mgrit")
JACOBIANS: Final = ("diagonal", "full")
ON_DIVERGENCE: Final = ("raise", "serial")
OUTPUTS: Final = ("all", "last")


@dataclass(frozen=True)
class SolverOptions:
    """Options of the solvers. Raises ValueError for values out of range."""

    solver: str = "auto"
    """"serial", "pipeline", "newton", "mgrit" or "auto"."""
    outputs: str = "all"
    """"all": outputs of this rank's steps. "last": the final output of each row on every rank, [batch, features]; both
    directions of a bidirectional network are concatenated."""
    chunks: int | None = None
    """Number of chunks of the pipeline; by default four per rank."""
    tolerance: float | None = None
    """Newton stops when no state changes by more than this value in a step; by default 1e-11, in float32 2e-6."""
    max_iterations: int = 100
    """Maximum number of Newton iterations."""
    jacobian: str = "diagonal"
    """Newton's approximation of the Jacobian: "diagonal" or "full", which suits small hidden sizes."""
    on_divergence: str = "raise"
    """If Newton does not converge: "raise", or "serial" for the serial solver."""

    levels: int = 2
    """Number of levels of multigrid."""
    cfactor: int | Mapping[int, int] = 4
    """Coarsening factor between the levels of multigrid: a number, or ``{level: number}``."""
    min_coarse: int = 2
    """Smallest number of steps on a coarse level."""
    forward: Solve | None = None
    """Options of the forward solve of multigrid."""
    backward: Solve | None = None
    """Options of the backward solve of multigrid."""
    backward_levels: int | None = None
    """By default those of the forward solve."""
    backward_cfactor: int | Mapping[int, int] | None = None
    """By default that of the forward solve."""
    max_error: float = 1e-4
    """``solver="auto"`` accepts an iterative solver if its outputs and gradients in the first batch differ from the
    exact ones by at most this fraction of their largest element."""

    def __post_init__(self) -> None:
        _require_one_of("outputs", self.outputs, OUTPUTS)
        _require_one_of("solver", self.solver, SOLVERS)
        _require_one_of("jacobian", self.jacobian, JACOBIANS)
        _require_one_of("on_divergence", self.on_divergence, ON_DIVERGENCE)
        for name in ("chunks", "max_iterations"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"weft: expected {name} to be at least 1, got {value}")
        for adjoint in (False, True):
            grid = self.grid(adjoint)
            require_integers("levels", grid["levels"], 1)
        require_integers("cfactor", self.cfactor, 2)
        require_integers("min_coarse", self.min_coarse, 1)
        for solve in (self.forward, self.backward):
            if solve is not None and callable(solve.guess):
                raise ValueError("weft: expected the name of a guess for a recurrent network, got a function")
        if not self.max_error >= 0:
            raise ValueError(f"weft: expected max_error to be at least 0, got {self.max_error}")
        if self.tolerance is not None and not self.tolerance > 0:
            raise ValueError(f"weft: expected a tolerance above 0, got {self.tolerance}")

    def facts(self) -> tuple[Any, ...]:
        """Returns the values that must be equal on all ranks."""
        solves = tuple((solve or Solve()).describe() for solve in (self.forward, self.backward))
        return (
            self.solver, self.outputs, self.chunks, self.tolerance, self.max_iterations, self.jacobian,
            self.on_divergence, self.grid(False), self.grid(True), solves, self.max_error,
        )  # fmt: skip

    def grid(self, adjoint: bool) -> dict[str, Any]:
        """Returns the levels of multigrid as the library expects them."""
        levels, cfactor = self.levels, self.cfactor
        if adjoint:
            levels = levels if self.backward_levels is None else self.backward_levels
            cfactor = cfactor if self.backward_cfactor is None else self.backward_cfactor
        return {"levels": levels, "cfactor": per_level(cfactor, 2), "min_coarse": self.min_coarse}

    def tolerance_for(self, dtype: torch.dtype) -> float:
        """Returns the tolerance of Newton's method for states of this type."""
        if self.tolerance is not None:
            return self.tolerance
        return 1e-11 if dtype == torch.float64 else 2e-6


def _require_one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"weft: expected {name} to be one of {', '.join(known)}, got {value!r}")


@dataclass
class SolveLog:
    """Statistics of the solves of a pass: one per layer and direction."""

    forward: list[SolveStatistics] = field(default_factory=list)
    backward: list[SolveStatistics] = field(default_factory=list)

    def add(self, statistics: SolveStatistics) -> None:
        (self.forward if statistics.direction == "forward" else self.backward).append(statistics)

    def summary(self) -> tuple[SolveStatistics | None, SolveStatistics | None]:
        """Returns the slowest solve of each direction; None if there was none."""
        return _slowest(self.forward), _slowest(self.backward)


def _slowest(solves: list[SolveStatistics]) -> SolveStatistics | None:
    return max(solves, key=lambda solve: (not solve.converged, solve.iterations), default=None)


def newton_statistics(
    direction: str, residuals: Sequence[float | None], converged: bool, evaluations: int
) -> SolveStatistics:
    """Statistics of a Newton solve. ``residuals``: before each iteration, and the last one; None if not computed."""
    return SolveStatistics(
        direction, len(residuals) - 1, converged, list(residuals), last_change=None, steps=[evaluations], messages=0,
        bytes=0, seconds_waiting=0.0,
    )  # fmt: skip


__all__ = ["Solve", "SolveLog", "SolveStatistics", "SolverOptions", "newton_statistics"]
