"""Tensors in tiles: the grid of ranks, the layout of tiles, and the tensor itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..communicator import Communicator, world

__all__ = ["DistTensor", "Layout", "RankGrid"]

_ops = torch.ops.weft

# Implementations of torch's functions for tiles; functional.py and elementwise.py register them.
HANDLERS: dict[Any, Callable[..., Any]] = {}


class RankGrid:
    """The ranks of ``comm`` (default: the world) as a grid of tiles; the last dimension varies fastest. Collective.

    ``RankGrid(2, 3)`` cuts an image into two rows of three tiles on 6 ranks. ``RankGrid(4)`` cuts a signal, and
    ``RankGrid(4, 1)`` cuts an image into four strips.
    """

    def __init__(self, *extents: int, comm: Communicator | None = None) -> None:
        self._comm = world() if comm is None else comm
        self._grid = _ops.rank_grid(self._comm._id, list(extents))

    @property
    def comm(self) -> Communicator:
        """The communicator from which the grid was made."""
        return self._comm

    @property
    def id(self) -> int:
        """The number of the grid's own communicator, which operations take as argument."""
        return self._grid.comm()

    @property
    def extents(self) -> tuple[int, ...]:
        return tuple(self._grid.extents())

    @property
    def coordinates(self) -> tuple[int, ...]:
        """The position of this rank."""
        return tuple(self._grid.coordinates())

    @property
    def rank(self) -> int:
        return self._comm.rank

    @property
    def size(self) -> int:
        return self._comm.size

    def __repr__(self) -> str:
        return f"RankGrid({' x '.join(map(str, self.extents))}; this rank: {self.coordinates})"


class Layout:
    """The tiles of a field: balanced, or of the sizes ``parts`` in each dimension, which may be 0."""

    __slots__ = ("grid", "handle")

    def __init__(
        self, grid: RankGrid, shape: Sequence[int] | None = None, parts: Sequence[Sequence[int]] | None = None
    ) -> None:
        if (shape is None) == (parts is None):
            raise ValueError("weft: Layout: pass either shape or parts")
        self.grid = grid
        if parts is not None:
            self.handle = _ops.layout_of(grid._grid, [list(sizes) for sizes in parts])
        else:
            self.handle = _ops.balanced_layout(grid._grid, list(shape or ()))

    @classmethod
    def wrap(cls, handle: Any, grid: RankGrid) -> Layout:
        """Wraps a layout that the library made."""
        self = cls.__new__(cls)
        self.grid, self.handle = grid, handle
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole field."""
        return tuple(self.handle.shape())

    @property
    def dims(self) -> int:
        return len(self.grid.extents)

    def tile(self, rank: int | None = None) -> tuple[slice, ...]:
        """Returns the box of a rank (default: this one) as an index into the whole field."""
        bounds = self.handle.tile(self.grid.rank if rank is None else rank)
        return tuple(slice(bounds[i], bounds[i + 1]) for i in range(0, len(bounds), 2))

    def parts(self, dim: int) -> list[int]:
        """Returns the sizes of the tiles along a dimension."""
        return list(self.handle.parts(dim))

    def tile_sizes(self, rank: int | None = None) -> tuple[int, ...]:
        return tuple(piece.stop - piece.start for piece in self.tile(rank))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and bool(self.handle.equals(other.handle))

    def __hash__(self) -> int:
        return hash(self.shape)

    def __repr__(self) -> str:
        cuts = ", ".join("+".join(map(str, self.parts(i))) for i in range(self.dims))
        return f"Layout({cuts} on {' x '.join(map(str, self.grid.extents))})"


class DistTensor:
    """A tensor with dimensions that are cut into tiles; this rank holds ``local``.

    ``axes`` has the position of each tiled dimension, by default the last ones; permute and view change it. Elementwise
    functions, shape operations, and concatenation and softmax along the other dimensions work for any axes; the layers
    of weft.spatial need the default. Other functions raise an error that names them.
    """

    __slots__ = ("axes", "layout", "local")

    def __init__(self, local: Tensor, layout: Layout, axes: Sequence[int] | None = None) -> None:
        self.local = local
        self.layout = layout
        self.axes = _last(local.dim(), layout.dims) if axes is None else tuple(axes)

    @classmethod
    def tile_of(cls, whole: Tensor, layout: Layout) -> DistTensor:
        """Returns this rank's tile of a tensor that every rank holds whole. No communication."""
        return cls(_ops.tile_of(whole, layout.handle), layout)

    @classmethod
    def scatter(cls, whole: Tensor | None, layout: Layout, root: int = 0) -> DistTensor:
        """Distributes the tiles of the root's tensor; other ranks may pass None. Collective. Adjoint: gather."""
        return cls(_ops.tile_scatter(whole, layout.handle, root), layout)

    @classmethod
    def retile(cls, whole: Tensor, layout: Layout, axes: Sequence[int] | None = None) -> DistTensor:
        """Returns this rank's tile of a tensor that all ranks computed equally.

        In backward every rank gets the whole gradient. Collective if gradients are required.
        """
        axes = _last(whole.dim(), layout.dims) if axes is None else axes
        return cls(move_back(_ops.retile(move_last(whole, axes), layout.handle), axes), layout, axes)

    def all_gather(self) -> Tensor:
        """Returns the whole tensor on every rank. Collective. Adjoint: the sum of all ranks' gradients of a tile."""
        return move_back(_ops.tile_all_gather(self.tiles_last().local, self.layout.handle), self.axes)

    def gather(self, root: int = 0) -> Tensor:
        """Returns the whole tensor on ``root`` and an empty one elsewhere. Collective. Adjoint: scatter."""
        gathered = _ops.tile_gather(self.tiles_last().local, self.layout.handle, root)
        return move_back(gathered, self.axes) if self.layout.grid.rank == root else gathered

    def whole(self) -> Tensor:
        """Returns the whole tensor on every rank. A loss that all ranks compute from it counts once. Collective."""
        return _ops.counted_once(self.all_gather(), self.layout.grid.id)

    def repartition(self, layout: Layout) -> DistTensor:
        """Returns the same field in other tiles. Collective."""
        if layout == self.layout:
            return self
        moved = _ops.repartition(self.tiles_last().local, self.layout.handle, layout.handle)[0]
        return DistTensor(move_back(moved, self.axes), layout, self.axes)

    def sum_all(self) -> Tensor:
        """Returns the sum over the whole field on every rank; its gradient counts once. Collective."""
        return _ops.tile_sum(self.tiles_last().local, self.layout.handle)

    def mean_all(self) -> Tensor:
        return _ops.tile_mean(self.tiles_last().local, self.layout.handle)

    def with_local(self, local: Tensor) -> DistTensor:
        """Returns another tensor with the same tiles. Dimensions in front of all others may differ."""
        shift = local.dim() - self.local.dim()
        return DistTensor(local, self.layout, [axis + shift for axis in self.axes])

    def tiles_last(self) -> DistTensor:
        """Returns a view with the tiled dimensions at the end, in the order of the grid."""
        return DistTensor(move_last(self.local, self.axes), self.layout)

    def with_axes(self, axes: Sequence[int]) -> DistTensor:
        """Returns a view with the tiled dimensions, which are last, at the positions ``axes``."""
        return DistTensor(move_back(self.local, axes), self.layout, axes)

    @property
    def has_tiles_last(self) -> bool:
        return self.axes == _last(self.ndim, self.layout.dims)

    @property
    def shape(self) -> torch.Size:
        """The shape of the whole tensor."""
        sizes = list(self.local.shape)
        for axis, size in zip(self.axes, self.layout.shape, strict=True):
            sizes[axis] = size
        return torch.Size(sizes)

    @property
    def ndim(self) -> int:
        return self.local.dim()

    @property
    def dtype(self) -> torch.dtype:
        return self.local.dtype

    @property
    def device(self) -> torch.device:
        return self.local.device

    @property
    def requires_grad(self) -> bool:
        return self.local.requires_grad

    def dim(self) -> int:
        return self.local.dim()

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def detach(self) -> DistTensor:
        return self.with_local(self.local.detach())

    def tiled(self, dim: int) -> bool:
        return dim % self.ndim in self.axes

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        handler = HANDLERS.get(function)
        if handler is None:
            name = getattr(function, "__name__", str(function))
            raise NotImplementedError(
                f"weft: '{name}' is not defined for a tensor in tiles. Apply it to x.local if it is valid for each "
                f"tile separately, or to x.whole()."
            )
        return handler(*args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        """Returns a method of Tensor that has a handler for tiles."""
        method = getattr(Tensor, name, None)
        if method is None or method not in HANDLERS:
            raise AttributeError(f"weft: DistTensor has no attribute '{name}'; use x.local or x.whole()")
        return lambda *args, **kwargs: HANDLERS[method](self, *args, **kwargs)

    def __repr__(self) -> str:
        return f"DistTensor({tuple(self.shape)}, {self.dtype}, {self.layout!r})"


def _last(ndim: int, dims: int) -> tuple[int, ...]:
    return tuple(range(ndim - dims, ndim))


def move_last(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Returns a view with the dimensions ``axes`` at the end."""
    return x.movedim(tuple(axes), _last(x.dim(), len(axes)))


def move_back(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Reverses move_last."""
    return x.movedim(_last(x.dim(), len(axes)), tuple(axes))


def _operator(name: str) -> Callable[..., Any]:
    method = getattr(Tensor, name)

    def apply(self: DistTensor, *args: Any) -> Any:
        return HANDLERS[method](self, *args)

    return apply


for _name in "add sub mul truediv pow radd rsub rmul rtruediv neg iadd isub imul itruediv getitem".split():
    setattr(DistTensor, f"__{_name}__", _operator(f"__{_name}__"))
