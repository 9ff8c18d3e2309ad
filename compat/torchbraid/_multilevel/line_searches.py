"""torchbraid's line searches: the arguments of a pass instead of weft's Trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from weft.multilevel import Backtracking, BestOf, LineSearch, OptimizerStep, Trial, Weighting

from .printing import check_has_args, root_print
from .training import comm_of, compute_fwd_pass


def _backtracking(parameters: dict[str, Any]) -> LineSearch:
    check_has_args(parameters, ["n_line_search", "alpha", "c1"], "tb_simple_backtrack_ls")
    return Backtracking(parameters["n_line_search"], parameters["alpha"], parameters["c1"])


def _best_of(parameters: dict[str, Any]) -> LineSearch:
    check_has_args(parameters, ["alphas"], "tb_simple_ls")
    return BestOf(parameters["alphas"])


def _weighting(parameters: dict[str, Any]) -> LineSearch:
    check_has_args(parameters, ["alpha"], "tb_simple_weighting")
    return Weighting(parameters["alpha"])


MAKERS: dict[str, Callable[[dict[str, Any]], LineSearch]] = {
    "tb_simple_backtrack_ls": _backtracking,
    "tb_simple_ls": _best_of,
    "tb_simple_weighting": _weighting,
    "tb_adam_no_ls": lambda parameters: OptimizerStep(),
}


def make_line_search(method: str, arguments: dict[str, Any]) -> LineSearch:
    """Raises ValueError for an unknown line search or a missing argument."""
    if method not in MAKERS:
        raise ValueError(f"torchbraid (weft): expected the line search to be one of {sorted(MAKERS)}, got {method!r}")
    return MAKERS[method](arguments.get("ls_params", arguments))


def _function(method: str) -> Callable[..., float]:
    def search(
        lvl: int,
        e_h: list[Tensor],
        x_h: list[Tensor],
        v_h: Any,
        model: Any,
        data: Tensor,
        target: Tensor,
        optimizer: torch.optim.Optimizer,
        criterion: Any,
        criterion_kwargs: dict[str, Any],
        compose: Any,
        old_loss: float,
        e_dot_gradf: float,
        mgopt_printlevel: int,
        ls_params: dict[str, Any],
    ) -> float:
        """Collective. Adds a multiple of the correction ``e_h`` to the parameters ``x_h``; returns the factor."""
        rank = comm_of(model).Get_rank()
        trial = Trial(
            x_h,
            e_h,
            lambda: compute_fwd_pass(lvl, model, data, target, criterion, criterion_kwargs, compose, v_h),
            old_loss,
            e_dot_gradf,
            optimizer,
            lambda text: root_print(rank, mgopt_printlevel, 2, text),
        )
        return make_line_search(method, {"ls_params": ls_params})(trial)

    search.__name__ = search.__qualname__ = method
    return search


tb_simple_backtrack_ls = _function("tb_simple_backtrack_ls")
tb_simple_ls = _function("tb_simple_ls")
tb_simple_weighting = _function("tb_simple_weighting")
tb_adam_no_ls = _function("tb_adam_no_ls")
