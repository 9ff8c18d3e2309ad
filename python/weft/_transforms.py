"""torch's transforms of functions that communicate: vmap, torch.func.grad and vjp, torch.compile.

Registers vmap rules for the operations and marks them as side effects, so that compiled graphs keep them. A function
that torch.func differentiates in reverse gets a tape, so that every rank performs all of its communication in backward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch._functorch import eager_transforms
from torch.utils import _pytree as pytree

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


def _anchored(result: Any) -> Any:
    """Attaches the communication on the current tape to the first tensor of a result that can have a gradient."""
    leaves, structure = pytree.tree_flatten(result)
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
            leaves[i] = torch.ops.weft.anchor(leaf)
            return pytree.tree_unflatten(leaves, structure)
    return result


def _on_a_tape(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function that torch.func differentiates.

    Backward then performs all communication of the function on every rank, even if this rank's result does not depend
    on it, or if it does not depend on this rank's inputs.
    """

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        inputs = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.requires_grad]
        torch.ops.weft.enter_transform(inputs)
        try:
            return _anchored(function(*args, **kwargs))
        finally:
            torch.ops.weft.leave_tape()

    return run


def _with_a_tape(transform: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a transform of torch.func whose first argument is the function to differentiate."""

    @wraps(transform)
    def wrapped(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # A compiled region has no tape: all ranks compile the same code.
        traced = torch.compiler.is_compiling()
        return transform(function if traced else _on_a_tape(function), *args, **kwargs)

    return wrapped


def install() -> None:
    """Registers the rules with torch and wraps its transforms."""
    for name in (*_ELEMENTWISE, *_ALONG):
        op = getattr(torch.ops.weft, name).default
        # Other ranks wait for this operation even if this rank does not use the result.
        torch.fx.node.has_side_effect(op)
        torch.library.register_vmap(op, _along_dim(op, *_ALONG[name]) if name in _ALONG else _elementwise(op))
    # torch.func.grad, grad_and_value, vjp, jacrev and hessian call these two.
    for name in ("grad_and_value_impl", "_vjp_with_argnums"):
        setattr(eager_transforms, name, _with_a_tape(getattr(eager_transforms, name)))
