"""Settings of one direction, forward or backward, under torchbraid's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from weft import Solve

T = TypeVar("T", int, float)

EVERY_LEVEL = -1
"""torchbraid's and XBraid's level number for all levels without a value."""
NOT_COMPUTED = -1.0
"""XBraid's residual norm if it was not computed."""


class InitialGuess(Protocol):
    def getState(self, time: float) -> Any: ...


class SolverSettings:
    """torchbraid's "app": ``m.fwd_app`` and ``m.bwd_app``."""

    def __init__(self, levels: int, iterations: int, storage: int) -> None:
        _require_count("max_levels", levels, 1)
        self.max_levels = levels
        self.setMaxIters(iterations)
        self.setStorage(storage)
        self._cfactor: dict[int, int] = {EVERY_LEVEL: 2}
        self._relaxations: dict[int, int] = {EVERY_LEVEL: 0}
        self._c_weight: dict[int, float] = {EVERY_LEVEL: 1.0}
        self._tolerance = 1e-12
        self._residual = True
        self._skip = False
        self._fmg = False
        self._relax_only_coarsest = False
        self._guess: InitialGuess | None = None
        self.min_coarse = 2

    def attach(self, comm: Any, steps: int, tf: float, own: range) -> None:
        """Sets the communicator and the time grid. ``own`` are the layers of this rank."""
        self.mpi_comm = comm
        self.num_steps = steps
        self.Tf = tf
        self.dt = tf / steps
        self._own = own

    # ---- torchbraid's interface

    def getMPIComm(self) -> Any:
        return self.mpi_comm

    def getNumSteps(self) -> int:
        """Returns the number of steps of all ranks."""
        return self.num_steps

    def getLevelNumSteps(self, level: int) -> int:
        """Returns the number of steps of a level."""
        return self.num_steps // self.getFineTimeIndex(1, level)

    def getStepBounds(self) -> tuple[int, int]:
        """Returns the first and the last point of this rank; point k precedes layer k."""
        return self._own.start + (self._own.start > 0), self._own.stop

    def inject_network_state(self, fine_app: SolverSettings, cf: int) -> None:
        """Does nothing: every solve starts from its own initial guess."""

    def interp_network_state(self, coarse_app: SolverSettings, cf: int) -> None:
        """Does nothing: every solve starts from its own initial guess."""

    def setMaxIters(self, iterations: int) -> None:
        _require_count("max_iters", iterations, 1)
        self._iterations = int(iterations)

    def getMaxIters(self) -> int:
        return self._iterations

    def setCFactor(self, cfactor: int | Mapping[int, int]) -> None:
        """Sets a number, or ``{level: number}``; level -1 stands for levels without a value (default 2)."""
        given = dict(cfactor) if isinstance(cfactor, Mapping) else {EVERY_LEVEL: cfactor}
        for value in given.values():
            _require_count("a coarsening factor", value, 2)
        self._cfactor = {EVERY_LEVEL: 2, **given}

    def setNumRelax(self, relax: int, level: int = EVERY_LEVEL) -> None:
        _require_count("the number of relaxations", relax, 0)
        _set(self._relaxations, relax, level)

    def setCRelaxWt(self, weight: float, level: int = EVERY_LEVEL) -> None:
        _set(self._c_weight, float(weight), level)

    def setAbsTol(self, tolerance: float) -> None:
        self._tolerance = float(tolerance)

    def setResidualCompute(self, compute: bool = True) -> None:
        self._residual = bool(compute)

    def setSkipDowncycle(self, skip: bool = True) -> None:
        self._skip = bool(skip)

    def setFMG(self) -> None:
        self._fmg = True

    def setRelaxOnlyCG(self, flag: bool = True) -> None:
        self._relax_only_coarsest = bool(flag)

    def setStorage(self, storage: int) -> None:
        """0 stores all points; otherwise the finest level stores C-points and recomputes the others."""
        self._storage = "all" if storage == 0 else "c-points"

    def setMinCoarse(self, steps: int) -> None:
        _require_count("min_coarse", steps, 1)
        self.min_coarse = int(steps)

    def setInitialGuess(self, guess: InitialGuess | None) -> None:
        if guess is not None and not callable(getattr(guess, "getState", None)):
            raise TypeError(f"torchbraid (weft): expected an object with getState(time), got {type(guess).__name__}")
        self._guess = guess

    def setFinalFCRelax(self, flag: bool = True) -> None:
        """Does nothing: the last sweep evaluates every layer for the gradients, so it is always on."""

    def setTimerFile(self, name: str) -> None:
        """Does nothing: ``getTimersString`` returns the times."""

    def setBraidTimers(self, flag: int) -> None:
        """Does nothing: the timers are always on."""

    def resetBraidTimer(self) -> None:
        """Does nothing; ``timer_manager.resetTimers`` resets the timers."""

    def getFineTimeIndex(self, tidx: int, level: int) -> int:
        """Returns the point of the finest level that corresponds to point ``tidx`` of a level."""
        for finer in range(level):
            tidx *= self._at(self._cfactor, finer)
        return tidx

    # ---- conversion to weft's options

    @property
    def stores_all(self) -> bool:
        return self._storage == "all"

    def cfactor(self) -> dict[int, int]:
        return self._per_level(self._cfactor)

    def solve(self, coarsens_space: bool = False) -> Solve:
        """Returns weft's options. As in torchbraid, a solve starts from the states of the previous one. A first
        iteration that skips the way down replaces them, unless the coarse levels have fewer spatial points."""
        start = "zero" if self._skip and not coarsens_space else "previous"
        return Solve(
            iterations=self._iterations,
            tolerance=self._tolerance,
            relative_tolerance=0.0,
            residual=self._residual,
            relaxations=self._per_level(self._relaxations),
            c_weight=self._per_level(self._c_weight),
            cycle="F" if self._fmg else "V",
            skip_downcycle=self._skip,
            relax_coarsest_only=self._relax_only_coarsest,
            storage=self._storage,
            guess=start if self._guess is None else self._guess.getState,
        )

    def _per_level(self, values: dict[int, T]) -> dict[int, T]:
        return {level: self._at(values, level) for level in range(self.max_levels)}

    @staticmethod
    def _at(values: dict[int, T], level: int) -> T:
        return values.get(level, values[EVERY_LEVEL])


def _set(values: dict[int, T], value: T, level: int) -> None:
    if level == EVERY_LEVEL:
        values.clear()
    values[level] = value


def _require_count(what: str, value: int, least: int) -> None:
    if int(value) != value or value < least:
        raise ValueError(f"torchbraid (weft): expected {what} to be an integer of at least {least}, got {value!r}")
