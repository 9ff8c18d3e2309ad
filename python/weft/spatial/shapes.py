"""Shape operations on tensors in tiles.

Operations on dimensions that are not tiled work on each tile. If an operation changes a tiled dimension, the ranks
gather the tensor. An operation that keeps the dimensions of the field then cuts its result into tiles again. After any
other one, such as a view that makes a sequence of an image, all ranks compute on the whole tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .flat import FlatTiles
from .tensor import HANDLERS, DistTensor, Layout


def numbers(values: Sequence[Any]) -> list[int]:
    """Returns the numbers of f(1, 2) and f((1, 2)) as a list."""
    return list(values[0]) if len(values) == 1 and not isinstance(values[0], int) else list(values)


def on_the_whole_field(x: DistTensor, function: Callable[[Tensor], Tensor]) -> DistTensor:
    """Applies a function that keeps the number and meaning of the dimensions to the gathered tensor."""
    result = function(x.whole())
    layout = Layout(x.layout.grid, [result.shape[axis] for axis in x.axes])
    return DistTensor.retile(result, layout, x.axes)


def permute(x: DistTensor, *order: Any, dims: Sequence[int] = ()) -> DistTensor:
    order = tuple(dim % x.ndim for dim in dims or numbers(order))
    return DistTensor(x.local.permute(order), x.layout, [order.index(axis) for axis in x.axes])


def transpose(x: DistTensor, dim0: int, dim1: int) -> DistTensor:
    order = list(range(x.ndim))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return permute(x, order)


def movedim(x: DistTensor, source: Any, destination: Any) -> DistTensor:
    moved = [dim % x.ndim for dim in numbers([source])]
    order = [dim for dim in range(x.ndim) if dim not in moved]
    for place, dim in sorted(zip((dim % x.ndim for dim in numbers([destination])), moved, strict=True)):
        order.insert(place, dim)
    return permute(x, order)


def unsqueeze(x: DistTensor, dim: int) -> DistTensor:
    place = dim % (x.ndim + 1)
    return DistTensor(x.local.unsqueeze(place), x.layout, [axis + (axis >= place) for axis in x.axes])


def squeeze(x: DistTensor, *dims: Any) -> DistTensor | Tensor:
    removed = {dim % x.ndim for dim in numbers(dims)} if dims else set(range(x.ndim))
    return _reshaped(x, [size for dim, size in enumerate(x.shape) if size != 1 or dim not in removed])


def kept_axes(old: Sequence[int], new: Sequence[int], axes: Sequence[int]) -> list[int] | None:
    """Returns the positions of the tiled dimensions after a reshape, or None if it splits or merges one of them.

    Compares the shortest groups of dimensions with equal products. A tiled dimension is kept if its group has no other
    dimension, except for those of size 1.
    """
    found: dict[int, int] = {}
    i = j = 0
    while i < len(old) and j < len(new):
        first, second = i, j
        i, j = i + 1, j + 1
        while (left := math.prod(old[first:i])) != (right := math.prod(new[second:j])):
            i, j = (i + 1, j) if left < right else (i, j + 1)
            if i > len(old) or j > len(new):
                return None
        for axis in set(axes) & set(range(first, i)):
            same = [k for k in range(second, j) if new[k] == old[axis]]
            if old[axis] != left or not same:
                return None
            found[axis] = same[0]
    return [found[axis] for axis in axes] if len(found) == len(axes) else None


def reshape(x: DistTensor, *sizes: Any, shape: Sequence[int] | None = None) -> DistTensor | FlatTiles | Tensor:
    wanted = numbers(sizes) if shape is None else list(shape)
    if -1 in wanted:
        wanted[wanted.index(-1)] = x.shape.numel() // max(1, -math.prod(wanted))
    if math.prod(wanted) != x.shape.numel():
        raise ValueError(f"weft: cannot view {x!r} as {tuple(wanted)}")
    if x.ndim > 2 and x.has_tiles_last and wanted == [x.shape[0], x.shape[1:].numel()]:
        return FlatTiles(x)
    return _reshaped(x, wanted)


def _reshaped(x: DistTensor, sizes: Sequence[int]) -> DistTensor | Tensor:
    axes = kept_axes(x.shape, sizes, x.axes)
    if axes is None:
        return x.whole().reshape(sizes)
    local = list(sizes)
    for axis, size in zip(axes, x.layout.tile_sizes(), strict=True):
        local[axis] = size
    return DistTensor(x.local.reshape(local), x.layout, axes)


def flatten(x: DistTensor, start_dim: int = 0, end_dim: int = -1) -> DistTensor | FlatTiles | Tensor:
    first, last = start_dim % x.ndim, end_dim % x.ndim
    return reshape(x, [*x.shape[:first], x.shape[first : last + 1].numel(), *x.shape[last + 1 :]])


def unflatten(x: DistTensor, dim: int, sizes: Sequence[int]) -> DistTensor | FlatTiles | Tensor:
    place, parts = dim % x.ndim, list(sizes)
    if -1 in parts:
        parts[parts.index(-1)] = x.shape[place] // max(1, -math.prod(parts))
    return reshape(x, [*x.shape[:place], *parts, *x.shape[place + 1 :]])


def getitem(x: DistTensor, index: Any) -> DistTensor | Tensor:
    items = list(index) if isinstance(index, tuple) else [index]
    if not all(item is None or item is ... or isinstance(item, int | slice) for item in items):
        return x.whole()[index]
    missing = x.ndim - sum(item is not None and item is not ... for item in items)
    at = items.index(...) if ... in items else len(items)
    items[at : at + 1] = [slice(None)] * missing
    if all(isinstance(item, slice) for item in items):
        complete = [items[axis].indices(size) == (0, size, 1) for axis, size in zip(x.axes, x.layout.shape)]
        if not all(complete):
            return on_the_whole_field(x, lambda whole: whole[tuple(items)])
    places: dict[int, int] = {}  # of the tiled dimensions in the result
    source = result = 0
    for item in items:
        if item is not None and x.tiled(source):
            if isinstance(item, int) or item.indices(x.shape[source]) != (0, x.shape[source], 1):
                return x.whole()[index]
            places[source] = result
        source += item is not None
        result += not isinstance(item, int)
    return DistTensor(x.local[tuple(items)], x.layout, [places[axis] for axis in x.axes])


def pieces(function: Callable[..., Sequence[Tensor]]) -> Callable[..., tuple[Any, ...]]:
    """Adapts chunk and split. Parts along a tiled dimension become whole tensors."""

    def apply(x: DistTensor, how: Any = None, dim: int = 0, **named: Any) -> tuple[Any, ...]:
        how = next(iter(named.values())) if how is None else how
        if x.tiled(dim):
            return tuple(function(x.whole(), how, dim))
        return tuple(x.with_local(part) for part in function(x.local, how, dim))

    return apply


def select(x: DistTensor, dim: int, index: int) -> DistTensor | Tensor:
    return getitem(x, (*[slice(None)] * (dim % x.ndim), index))


def narrow(x: DistTensor, dim: int, start: int, length: int) -> DistTensor | Tensor:
    return getitem(x, (*[slice(None)] * (dim % x.ndim), slice(start, start + length)))


def unbind(x: DistTensor, dim: int = 0) -> tuple[DistTensor | Tensor, ...]:
    return tuple(select(x, dim, index) for index in range(x.shape[dim]))


def roll(x: DistTensor, shifts: Any, dims: Any = ()) -> DistTensor:
    axes = numbers([dims])
    if axes and not any(x.tiled(axis) for axis in axes):
        return x.with_local(x.local.roll(shifts, dims))
    return on_the_whole_field(x, lambda whole: whole.roll(shifts, dims))


def pad(x: DistTensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> DistTensor:
    padded = [-1 - i // 2 for i, amount in enumerate(pad) if amount != 0]
    if not any(x.tiled(dim) for dim in padded):
        return x.with_local(F.pad(x.local, list(pad), mode, value))
    return on_the_whole_field(x, lambda whole: F.pad(whole, list(pad), mode, value))


def _register(handlers: dict[str, Callable[..., Any]]) -> None:
    for name, handler in handlers.items():
        for owner in (torch, Tensor):
            if hasattr(owner, name):
                HANDLERS[getattr(owner, name)] = handler


_register(
    {
        **{"permute": permute, "unsqueeze": unsqueeze, "squeeze": squeeze, "flatten": flatten, "unflatten": unflatten},
        **dict.fromkeys(("transpose", "swapaxes", "swapdims"), transpose),
        **dict.fromkeys(("movedim", "moveaxis"), movedim),
        **dict.fromkeys(("view", "reshape"), reshape),
        **{"chunk": pieces(torch.chunk), "split": pieces(torch.split), "unbind": unbind, "roll": roll},
        **{"select": select, "narrow": narrow, "__getitem__": getitem},
    }
)
HANDLERS[F.pad] = pad
