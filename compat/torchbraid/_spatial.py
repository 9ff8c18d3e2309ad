"""Spatial coarsening: adapts torchbraid's functions of one tensor to weft's functions of a state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

Transfer = Callable[[Any, int], Any]


def spatial_functions(
    functions: Sequence[Transfer] | None, levels: Sequence[int] | None
) -> tuple[Transfer | None, Transfer | None]:
    """Returns (coarsen, refine). The third function, of shapes, is ignored: weft uses the result of coarsen."""
    if functions is None:
        return None, None
    if len(functions) not in (2, 3) or not all(callable(function) for function in functions):
        raise ValueError(
            "torchbraid (weft): expected spatial_ref_funcs to be the functions (coarsen, refine) or "
            f"(coarsen, refine, coarsen_shape), got {functions!r}"
        )
    chosen = None if levels is None else frozenset(levels)
    # weft passes the level of the state, torchbraid the finer of the two levels.
    return _on_levels(functions[0], chosen, 0), _on_levels(functions[1], chosen, -1)


def _on_levels(function: Transfer, levels: frozenset[int] | None, offset: int) -> Transfer:
    def transfer(state: Any, level: int) -> Any:
        finer = level + offset
        if levels is not None and finer not in levels:
            return state
        if isinstance(state, Tensor):
            return function(state, finer)
        return tuple(function(tensor, finer) for tensor in state)

    return transfer
