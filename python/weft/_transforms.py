"""What torch's transforms must know about the operations: vmap's rules, and that compiled graphs must keep them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_ELEMENTWISE = ("all_reduce", "reduce", "broadcast", "scan")
# Which arguments after the tensor are dimensions.
_ALONG = {"all_gather": (0,), "gather": (0,), "scatter": (0,), "reduce_scatter": (1,), "all_to_all": (0, 1)}

Result = tuple[Tensor, int]


def _front(x: Tensor, in_dim: int | None, size: int) -> Tensor:
    """The batch dimension first; made where there is none, because all ranks must communicate the same."""
    return x.movedim(in_dim, 0) if in_dim is not None else x.expand(size, *x.shape)


def _shifted(dim: int) -> int:
    """A dimension of the element, counted in the batch, whose own dimension is the first."""
    return dim + 1 if dim >= 0 else dim


def _elementwise(op: Callable[..., Tensor]) -> Callable[..., Result]:
    def rule(info: Any, in_dims: Sequence[int | None], x: Tensor, *arguments: Any) -> Result:
        return op(_front(x, in_dims[0], info.batch_size), *arguments), 0

    return rule


def _along_dim(op: Callable[..., Tensor], *positions: int) -> Callable[..., Result]:
    """For operations whose arguments at ``positions`` (after x) are dimensions."""

    def rule(info: Any, in_dims: Sequence[int | None], x: Tensor, *arguments: Any) -> Result:
        batch = _front(x, in_dims[0], info.batch_size)
        if batch.dim() == 1:  # elements without a dimension are gathered along one of their own
            batch = batch.unsqueeze(1)
        shifted = [_shifted(a) if i in positions else a for i, a in enumerate(arguments)]
        return op(batch, *shifted), 0

    return rule


def install() -> None:
    for name in (*_ELEMENTWISE, *_ALONG):
        op = getattr(torch.ops.weft, name).default
        # A result that this rank does not use is still one that the others wait for.
        torch.fx.node.has_side_effect(op)
        torch.library.register_vmap(op, _along_dim(op, *_ALONG[name]) if name in _ALONG else _elementwise(op))
