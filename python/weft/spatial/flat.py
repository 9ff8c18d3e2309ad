"""Flattened tiles: a vector of which each rank holds the values of its tile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .elementwise import ACTIVATIONS, UNARY
from .tensor import HANDLERS, DistTensor

__all__ = ["FlatTiles"]

_ELEMENTWISE = {getattr(F, name) for name in ACTIVATIONS} | {
    getattr(owner, name) for name in UNARY for owner in (torch, Tensor) if hasattr(owner, name)
}


class FlatTiles:
    """The result of flatten(x, 1) of a DistTensor. Elementwise functions and TileLinear accept it."""

    __slots__ = ("tiles",)

    def __init__(self, tiles: DistTensor) -> None:
        self.tiles = tiles

    @property
    def shape(self) -> torch.Size:
        sizes = self.tiles.shape
        return torch.Size((sizes[0], sizes[1:].numel()))

    @property
    def local(self) -> Tensor:
        return self.tiles.local

    @property
    def layout(self) -> Any:
        return self.tiles.layout

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def whole(self) -> Tensor:
        """Returns the whole vector on every rank. A loss that all ranks compute from it counts once. Collective."""
        return self.tiles.whole().flatten(1)

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function in _ELEMENTWISE and isinstance(args[0], FlatTiles):
            return FlatTiles(HANDLERS[function](args[0].tiles, *args[1:], **(kwargs or {})))
        name = getattr(function, "__name__", str(function))
        raise NotImplementedError(
            f"weft: '{name}' is not defined for flattened tiles. Pass them to weft.spatial.TileLinear, or gather them "
            "with x.whole()."
        )

    def __repr__(self) -> str:
        return f"FlatTiles({tuple(self.shape)} of {self.tiles!r})"


def flatten(x: DistTensor, start_dim: int = 0, end_dim: int = -1) -> FlatTiles | DistTensor:
    if start_dim % x.ndim == 1 and end_dim % x.ndim == x.ndim - 1:
        return FlatTiles(x)
    if end_dim % x.ndim < x.leading:
        return x.with_local(x.local.flatten(start_dim, end_dim))
    raise NotImplementedError(
        f"weft: flatten of {x!r} from {start_dim} to {end_dim} is not supported; flatten from 1 to the last dimension"
    )


def view(x: DistTensor, *sizes: Any) -> FlatTiles:
    """Implements view(batch, -1), with which many networks flatten."""
    wanted = list(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else list(sizes)
    features = x.shape[1:].numel()
    if len(wanted) == 2 and wanted in ([x.shape[0], -1], [x.shape[0], features], [-1, features]):
        return FlatTiles(x)
    raise NotImplementedError(f"weft: view{tuple(wanted)} of {x!r} is not supported; use view(batch, -1)")


HANDLERS.update(dict.fromkeys((torch.flatten, Tensor.flatten), flatten))
HANDLERS.update(dict.fromkeys((Tensor.view, Tensor.reshape, torch.reshape), view))
