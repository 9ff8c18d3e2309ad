"""torchbraid's setters: each for the forward solve, the backward solve, or both."""

from __future__ import annotations

from collections.abc import Mapping

from ._solver import EVERY_LEVEL, InitialGuess, SolverSettings


class Settings:
    """Setters and getters. All ranks must use the same settings; otherwise the next forward raises on all ranks."""

    fwd_app: SolverSettings
    bwd_app: SolverSettings
    _print_level: int

    def setPrintLevel(self, print_level: int, tb_print: bool = False) -> None:
        """From level 1, rank 0 prints the residuals of every solve. ``tb_print`` is not supported and ignored."""
        if not tb_print:
            self._print_level = int(print_level)

    def setNumRelax(self, relax: int, level: int = EVERY_LEVEL) -> None:
        self.setFwdNumRelax(relax, level)
        self.setBwdNumRelax(relax, level)

    def setFwdNumRelax(self, relax: int, level: int = EVERY_LEVEL) -> None:
        self.fwd_app.setNumRelax(relax, level)

    def setBwdNumRelax(self, relax: int, level: int = EVERY_LEVEL) -> None:
        self.bwd_app.setNumRelax(relax, level)

    def setMaxIters(self, max_iters: int) -> None:
        self.setFwdMaxIters(max_iters)
        self.setBwdMaxIters(max_iters)

    def setFwdMaxIters(self, max_iters: int) -> None:
        self.fwd_app.setMaxIters(max_iters)

    def setBwdMaxIters(self, max_iters: int) -> None:
        self.bwd_app.setMaxIters(max_iters)

    def getMaxIters(self) -> tuple[int, int]:
        """Returns the values of the forward and the backward solve."""
        return self.getFwdMaxIters(), self.getBwdMaxIters()

    def getFwdMaxIters(self) -> int:
        return self.fwd_app.getMaxIters()

    def getBwdMaxIters(self) -> int:
        return self.bwd_app.getMaxIters()

    def setFwdAbsTol(self, tolerance: float) -> None:
        """Sets the residual norm at which a solve stops."""
        self.fwd_app.setAbsTol(tolerance)

    def setBwdAbsTol(self, tolerance: float) -> None:
        self.bwd_app.setAbsTol(tolerance)

    def setCFactor(self, cfactor: int | Mapping[int, int]) -> None:
        """Sets a number, or ``{level: number}``."""
        self.setFwdCFactor(cfactor)
        self.setBwdCFactor(cfactor)

    def setFwdCFactor(self, cfactor: int | Mapping[int, int]) -> None:
        self.fwd_app.setCFactor(cfactor)

    def setBwdCFactor(self, cfactor: int | Mapping[int, int]) -> None:
        self.bwd_app.setCFactor(cfactor)

    def setSkipDowncycle(self, skip: bool) -> None:
        self.setSkipFwdDowncycle(skip)
        self.setSkipBwdDowncycle(skip)

    def setSkipFwdDowncycle(self, skip: bool) -> None:
        self.fwd_app.setSkipDowncycle(skip)

    def setSkipBwdDowncycle(self, skip: bool) -> None:
        self.bwd_app.setSkipDowncycle(skip)

    def setCRelaxWt(self, weight: float) -> None:
        self.setFwdCRelaxWt(weight)
        self.setBwdCRelaxWt(weight)

    def setFwdCRelaxWt(self, weight: float) -> None:
        self.fwd_app.setCRelaxWt(weight)

    def setBwdCRelaxWt(self, weight: float) -> None:
        self.bwd_app.setCRelaxWt(weight)

    def setFwdResidualCompute(self, compute: bool = True) -> None:
        self.fwd_app.setResidualCompute(compute)

    def setBwdResidualCompute(self, compute: bool = True) -> None:
        self.bwd_app.setResidualCompute(compute)

    def setFwdRelaxOnlyCG(self, flag: bool = True) -> None:
        self.fwd_app.setRelaxOnlyCG(flag)

    def setBwdRelaxOnlyCG(self, flag: bool = True) -> None:
        self.bwd_app.setRelaxOnlyCG(flag)

    def setFwdFinalFCRelax(self, flag: bool = True) -> None:
        self.fwd_app.setFinalFCRelax(flag)

    def setBwdFinalFCRelax(self, flag: bool = True) -> None:
        self.bwd_app.setFinalFCRelax(flag)

    def setFwdStorage(self, storage: int) -> None:
        """0 stores all points (the default); -1 stores C-points and recomputes the others."""
        self.fwd_app.setStorage(storage)

    def setBwdStorage(self, storage: int) -> None:
        """0 stores all points; -1 stores C-points (the default)."""
        self.bwd_app.setStorage(storage)

    def setMinCoarse(self, steps: int) -> None:
        """Sets the minimum number of steps on a coarse level."""
        self.fwd_app.setMinCoarse(steps)
        self.bwd_app.setMinCoarse(steps)

    def setFMG(self) -> None:
        self.fwd_app.setFMG()
        self.bwd_app.setFMG()

    def setFwdInitialGuess(self, guess: InitialGuess | None) -> None:
        """Sets an object with ``getState(time)``, which is called at the C-points; None removes it."""
        self.fwd_app.setInitialGuess(guess)
