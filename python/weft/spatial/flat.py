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


def whole(x: Any) -> Any:
    """Returns the gathered tensor if the argument is in tiles, and otherwise the argument."""
    return x.whole() if isinstance(x, DistTensor | FlatTiles) else x
