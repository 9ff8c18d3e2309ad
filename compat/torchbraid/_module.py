"""LPModule: the part of torchbraid's interface that layer-parallel and recurrent networks share."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

import weft
from weft import _objects

from . import _exchange
from ._composition import Composition
from ._settings import Settings
from ._solver import NOT_COMPUTED, SolverSettings
from .utils.context_timer import ContextTimer, ContextTimerManager

STORE_ALL, STORE_C_POINTS = 0, -1


class LPModule(Settings, nn.Module):
    """A network that all ranks of an mpi4py communicator evaluate together. Collective."""

    def __init__(self, comm: Any, max_fwd_levels: int, max_bwd_levels: int, max_iters: int) -> None:
        super().__init__()
        self.comm = comm
        self.fwd_app = SolverSettings(max_fwd_levels, max_iters, STORE_ALL)
        self.bwd_app = SolverSettings(max_bwd_levels, max_iters, STORE_C_POINTS)
        self.timer_manager = ContextTimerManager()
        self._print_level = 0
        self._group = comm if isinstance(comm, weft.Communicator) else weft.from_mpi4py(comm)

    def comp_op(self) -> Composition:
        """Returns ``o`` for layers on rank 0 only: ``o(Module, ...)`` creates one, ``o(module, x)`` calls it."""
        return Composition(self._group.rank)

    def getFinalOnRoot(self, vec: Any = None) -> Any:
        """Returns the output on rank 0 and None on other ranks; rank 0 already has the output."""
        return vec if self._group.rank == 0 else None

    def copyVectorFromRoot(self, vec: Tensor | None) -> Tensor:
        """Collective. Returns the tensor of rank 0 on all ranks."""
        return _exchange.from_root(self._group, vec)

    def getFwdStats(self) -> tuple[int, float]:
        """Returns the number of iterations and the last residual norm (-1 if it was not computed)."""
        return self._numbers(0)

    def getBwdStats(self) -> tuple[int, float]:
        return self._numbers(1)

    def getMPIComm(self) -> Any:
        return self.comm

    def getTimerManager(self) -> ContextTimerManager:
        return self.timer_manager

    def timer(self, name: str) -> ContextTimer:
        return self.timer_manager.timer(f"{type(self).__name__}::{name}")

    def getTimersString(self) -> str:
        """Collective. Returns the timers of all ranks on every rank."""
        texts = _objects.all_gather(self._group, self.timer_manager.getResultString())
        return "\n".join(f"*** rank {rank} ***\n{text}" for rank, text in enumerate(texts))

    # ---- for subclasses

    def _statistics(self, which: int) -> Any:
        """Returns the statistics of the last forward (0) or backward (1) solve; None before the first pass."""
        raise NotImplementedError

    def _solves(self) -> bool:
        """Whether there are solves to report."""
        return True

    def _report(self, direction: str, which: int) -> None:
        """Prints the residuals of a solve on rank 0, if setPrintLevel asks for them."""
        if self._print_level < 1 or self._group.rank != 0 or not self._solves():
            return
        for iteration, residual in enumerate(self._statistics(which).residuals):
            norm = "not computed" if residual is None else f"{residual:.6e}"
            print(f"  {direction} iteration {iteration}, residual norm {norm}", flush=True)

    def _numbers(self, which: int) -> tuple[int, float]:
        statistics = self._statistics(which)
        if statistics is None:
            raise RuntimeError("torchbraid (weft): no statistics before the first forward pass")
        return statistics.iterations, statistics.known[-1] if statistics.known else NOT_COMPUTED
