"""IterationController: keeps the gradients of a LayerParallel network accurate while it trains."""

from __future__ import annotations

import csv
import json
import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from os import PathLike
from typing import Any

from weft import _bindings, _call_site

from .solve import Solve, SolveStatistics, require_integers

__all__ = ["ControlRecord", "IterationController"]

MODES = ("off", "report", "adapt")
MOST_LEVELS = 64
"""No network has more levels, because each has at most half of the steps of the one before."""


@dataclass(frozen=True)
class ControlRecord:
    """A comparison of the gradients of one batch. Equal on all ranks."""

    batch: int
    """Number of the batch, counted from 0."""
    bias: float
    """Relative error of the gradient: that of all weights or that of the input, whichever is larger."""
    cosine: float
    """Cosine of the angle between the two gradients of the weights."""
    gradient_norm: float
    """Norm of the exact gradient of the weights."""
    change: float | None
    """Change of the states in the last sweep of the solves; see ``SolveStatistics.last_change``."""
    forward_iterations: int
    """Iterations of the forward solve that was compared."""
    backward_iterations: int
    relaxations: int
    """Relaxations that the controller had added."""
    gradient: str
    """The gradient that training used: "exact" or "mgrit"."""
    next: str
    """The solver of the next batches: "exact", or "mgrit" with the iterations of the forward and the backward solve."""


class IterationController:
    """Compares the gradients of ``LayerParallel`` with exact ones and adapts the solves; pass it as ``control=``.

    ``net.loss`` consults it for every batch. Every ``every`` batches, it computes the gradient a second time without
    approximation and measures the bias, the relative error. It compares the next batch, too, if the last sweep of a
    solve changed the states so much that the bias has probably passed the bound. In the mode "report", training is
    the same as without a controller, and a bias above the bound raises a warning. In the mode "adapt", compared
    batches use the exact gradient. A bias above the bound adds an iteration to both solves, then relaxations; the next
    batch is compared again. If these additions do not suffice, as near a minimum, batches use the exact pipeline.
    When the bias falls far below the bound, the controller takes the additions back.

    Args:
        mode: "off", "report" or "adapt".
        bound: the largest acceptable bias.
        every: the number of batches from one comparison to the next.
        more_iterations: the most iterations to add to each solve.
        more_relaxations: the most relaxations to add to each solve, after the iterations.

    Raises ValueError or TypeError for arguments that do not fit.
    """

    def __init__(
        self,
        mode: str = "adapt",
        *,
        bound: float = 0.1,
        every: int = 10,
        more_iterations: int = 4,
        more_relaxations: int = 1,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"weft: expected mode to be one of {MODES}, got {mode!r}")
        self.mode = mode
        self.bound = float(bound)
        self.log: list[ControlRecord] = []
        """All comparisons."""
        self.batches = 0
        """The number of batches that have used the controller."""
        self._control = _bindings.load().IterationControl(
            mode == "adapt",
            self.bound,
            require_integers("every", every, 1),
            require_integers("more_iterations", more_iterations, 0),
            require_integers("more_relaxations", more_relaxations, 0),
        )
        self._base: tuple[Solve, Solve] | None = None  # the user's options
        self._applied: tuple[Solve, Solve] | None = None  # with the additions of the last batch
        self._warned = False

    # ---- results

    def gradient_bias(self) -> float | None:
        """Returns an estimate of the present bias: the last measurement, scaled by the growth of the solves' last
        change since then. None before the first comparison."""
        return self._control.bias()

    def cosine(self) -> float | None:
        """Returns the cosine of the angle between the compared gradients; None before the first comparison."""
        return self.log[-1].cosine if self.log else None

    @property
    def exact(self) -> bool:
        """Whether batches use the exact pipeline at present."""
        return self._control.setting()[2]

    def __str__(self) -> str:
        head = [field.name.replace("_", " ") for field in fields(ControlRecord)]
        rows = [[_cell(value) for value in asdict(record).values()] for record in self.log]
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]
        return "\n".join(lines)

    def write_csv(self, path: str | PathLike[str]) -> None:
        """Writes the log as CSV. Call it on one rank."""
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(ControlRecord)])
            writer.writeheader()
            writer.writerows(map(asdict, self.log))

    def write_json(self, path: str | PathLike[str]) -> None:
        """Writes the log as a JSON list of objects. Values that are not finite become strings. Call it on one rank."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump([_jsonable(asdict(record)) for record in self.log], file, indent=1)

    # ---- used by LayerParallel

    def begin_batch(self, solves: tuple[Solve, Solve]) -> tuple[str, tuple[Solve, Solve]]:
        """Returns the work of the next batch, "mgrit", "exact" or "compare", and the options of its solves.

        ``solves`` are the present options. If the user changed them, the additions start from the new ones.
        """
        if self._base is None or solves != self._applied:
            self._base = solves
        self._applied = self._solves()
        work = "compare" if self._control.comparison_due() else "exact" if self.exact else "mgrit"
        return work, self._applied

    def end_batch(self, statistics: Iterable[SolveStatistics]) -> None:
        """Called after a batch without comparison. The backward statistics are those of the batch before."""
        self._control.note_batch(_largest_change(statistics))
        self.batches += 1

    def end_comparison(
        self, bias: float, cosine: float, norm: float, statistics: tuple[SolveStatistics, SolveStatistics]
    ) -> bool:
        """Records a comparison; returns whether the batch uses the exact gradient."""
        forward, backward = statistics
        relaxations = self._control.setting()[1]
        change = _largest_change(statistics)
        above = self._control.note_comparison(bias, change)
        use_exact = self.mode == "adapt"
        solves = self._solves()
        self.log.append(
            ControlRecord(
                batch=self.batches,
                bias=bias,
                cosine=cosine,
                gradient_norm=norm,
                change=change,
                forward_iterations=forward.iterations,
                backward_iterations=backward.iterations,
                relaxations=relaxations,
                gradient="exact" if use_exact else "mgrit",
                next="exact" if self.exact else f"mgrit {solves[0].iterations}+{solves[1].iterations}",
            )
        )
        self.batches += 1
        if above and self.mode == "report" and not self._warned:
            self._warned = True
            warnings.warn(
                f"weft: the gradient of LayerParallel is wrong by {bias:.0%} (cosine {cosine:.2f}) in batch "
                f"{self.batches - 1}, and the bound is {self.bound:.0%}. Training uses this gradient; use "
                "IterationController(mode='adapt'), more iterations, or solver='pipeline'. This warning appears once; "
                "the controller's log has all comparisons",
                stacklevel=_call_site.depth_of_caller(),
            )
        return use_exact

    def _solves(self) -> tuple[Solve, Solve]:
        assert self._base is not None
        iterations, relaxations, _ = self._control.setting()
        forward, backward = (_with_additions(solve, iterations, relaxations) for solve in self._base)
        return forward, backward


def _with_additions(solve: Solve, iterations: int, relaxations: int) -> Solve:
    if not iterations and not relaxations:
        return solve
    given = solve.relaxations
    more = (
        {level: count + relaxations for level, count in {**dict.fromkeys(range(MOST_LEVELS), 1), **given}.items()}
        if isinstance(given, Mapping)
        else given + relaxations
    )
    return replace(solve, iterations=solve.iterations + iterations, relaxations=more if relaxations else given)


def _largest_change(statistics: Iterable[SolveStatistics]) -> float | None:
    changes = [each.last_change for each in statistics if each.last_change is not None]
    # max() ignores a NaN that is not the first value.
    return next((change for change in changes if math.isnan(change)), max(changes, default=None))


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)


def _jsonable(record: dict[str, Any]) -> dict[str, Any]:
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in record.items()
    }
