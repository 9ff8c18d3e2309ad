"""Handlers for torch functions that need no other tiles: elementwise, or along dimensions that are not tiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .tensor import HANDLERS, DistTensor

UNARY = """relu relu_ sigmoid sigmoid_ tanh tanh_ exp log log1p expm1 sqrt rsqrt abs neg sin cos erf square reciprocal
clamp clamp_ clamp_min clamp_max nan_to_num logit sign floor ceil round isnan isfinite logical_not""".split()
BINARY = """add add_ sub sub_ mul mul_ div div_ pow maximum minimum rsub true_divide eq ne lt le gt ge where lerp
__add__ __sub__ __mul__ __truediv__ __pow__ __radd__ __rsub__ __rmul__ __rtruediv__ __neg__ __iadd__ __isub__ __imul__
__itruediv__ float double half bfloat16 to type_as contiguous clone""".split()
ACTIVATIONS = """relu relu_ relu6 gelu silu elu elu_ selu celu leaky_relu leaky_relu_ hardtanh hardtanh_ hardswish
hardsigmoid softplus softsign mish logsigmoid threshold tanhshrink softshrink hardshrink sigmoid tanh""".split()
ALONG = "softmax log_softmax softmin".split()


def reference(args: Sequence[Any]) -> DistTensor:
    """Returns the first operand in tiles; the other operands are converted to its layout."""
    for arg in args:
        if isinstance(arg, DistTensor):
            return arg
    raise TypeError("weft: expected at least one DistTensor among the arguments")


def aligned(arg: Any, like: DistTensor) -> Any:
    """Returns this rank's part of an operand of an elementwise function."""
    if isinstance(arg, DistTensor):
        if arg.layout.shape != like.layout.shape or _from_end(arg) != _from_end(like):
            raise ValueError(
                f"weft: cannot combine tiles of different fields: {tuple(arg.shape)} with tiled dimensions {arg.axes} "
                f"and {tuple(like.shape)} with tiled dimensions {like.axes}"
            )
        return arg.repartition(like.layout).local
    if not isinstance(arg, Tensor) or (arg.dim() == 0 and not arg.requires_grad):
        return arg
    axes = [arg.dim() + axis for axis in _from_end(like)]
    field = tuple(arg.shape[axis] if axis >= 0 else 1 for axis in axes)
    if field == like.layout.shape and min(axes) >= 0 and any(n > 1 for n in field):
        return DistTensor.retile(arg, like.layout, axes).local
    if any(n > 1 for n in field):
        raise ValueError(f"weft: cannot combine a tensor of {tuple(arg.shape)} with tiles of {like.layout.shape}")
    # One number for many cells, the same on all ranks: every tile contributes to its gradient.
    return torch.ops.weft.share([arg], like.layout.grid.id)[0]


def _from_end(x: DistTensor) -> tuple[int, ...]:
    """Returns the tiled dimensions, counted from the end as in broadcasting."""
    return tuple(axis - x.ndim for axis in x.axes)


def elementwise(function: Callable[..., Any]) -> Callable[..., DistTensor]:
    def apply(*args: Any, **kwargs: Any) -> DistTensor:
        like = reference([*args, *kwargs.values()])
        local = function(*(aligned(a, like) for a in args), **{k: aligned(v, like) for k, v in kwargs.items()})
        return like.with_local(local)

    return apply


def along(function: Callable[..., Any]) -> Callable[..., DistTensor]:
    """Adapts a function with a ``dim`` argument, which must not be a tiled dimension."""

    def apply(x: DistTensor, dim: int | None = None, *args: Any, **kwargs: Any) -> DistTensor:
        if dim is None or x.tiled(dim):
            name = getattr(function, "__name__", str(function))
            raise NotImplementedError(
                f"weft: {name} along dimension {dim} of {x!r} needs all tiles; apply it to x.whole()"
            )
        return x.with_local(function(x.local, dim, *args, **kwargs))

    return apply


def concatenate(tensors: Sequence[Any], dim: int = 0, **kwargs: Any) -> DistTensor:
    like = reference(tensors)
    if like.tiled(kwargs.pop("axis", dim)):
        raise NotImplementedError(f"weft: cat along dimension {dim} of {like!r} needs all tiles; apply it to x.whole()")
    return like.with_local(torch.cat([aligned(x, like) for x in tensors], dim))


def register(names: Sequence[str], owners: Sequence[Any], adapt: Callable[..., Any]) -> None:
    for name in names:
        for owner in owners:
            function = getattr(owner, name, None)
            if callable(function):
                HANDLERS[function] = adapt(function)


register(UNARY + BINARY, (torch, Tensor), elementwise)
register(ACTIVATIONS, (F,), elementwise)
register(ALONG, (torch, Tensor, F), along)
HANDLERS.update(dict.fromkeys((torch.cat, torch.concat, torch.concatenate), concatenate))
