"""Registers vmap rules for the operations, and marks them as side effects so that compiled graphs keep them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_ELEMENTWISE = ("all_reduce", "reduce", "broadcast", "scan")
# Positions of the arguments, after the tensor, that are dimensions.
_ALONG = {"all_gather": (0,), "gather": (0,), "scatter": (0,), "reduce_scatter": (1,), "all_to_all": (0, 1)}

Result = tuple[Tensor, int]


def _front(x: Tensor, in_dim: int | None, size: int) -> Tensor:
    """Moves the batch dimension first; adds one if x has none, because all ranks must send the same shape."""
    return x.movedim(in_dim, 0) if in_dim is not None else x.expand(size, *x.shape)


def _shifted(dim: int) -> int:
    """Converts a dimension of an element to one of the batch, whose batch dimension is the first."""
    return dim + 1 if dim >= 0 else dim


def _elementwise(op: Callable[..., Tensor]) -> Callable[..., Result]:
    def rule(info: Any, in_dims: Sequence[int | None], x: Tensor, *arguments: Any) -> Result:
        return op(_front(x, in_dims[0], info.batch_size), *arguments), 0

    return rule


def _along_dim(op: Callable[..., Tensor], *positions: int) -> Callable[..., Result]:
    """Returns the rule for an operation whose arguments at ``positions`` (after x) are dimensions."""

    def rule(info: Any, in_dims: Sequence[int | None], x: Tensor, *arguments: Any) -> Result:
        batch = _front(x, in_dims[0], info.batch_size)
        if batch.dim() == 1:  # scalars need a dimension to be gathered along
            batch = batch.unsqueeze(1)
        shifted = [_shifted(a) if i in positions else a for i, a in enumerate(arguments)]
        return op(batch, *shifted), 0

    return rule


def install() -> None:
    """Registers the rules with torch."""
    for name in (*_ELEMENTWISE, *_ALONG):
        op = getattr(torch.ops.weft, name).default
        # Other ranks wait for this operation even if this rank does not use the result.
        torch.fx.node.has_side_effect(op)
        torch.library.register_vmap(op, _along_dim(op, *_ALONG[name]) if name in _ALONG else _elementwise(op))
