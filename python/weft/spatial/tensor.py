"""Tensors in tiles: the grid of ranks, which rank holds which box, and the tensor itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..communicator import Communicator, world
from ..errors import reraise

__all__ = ["DistTensor", "Grid", "Layout"]

_ops = torch.ops.weft

# What torch's functions do with tiles: filled in by functional.py and elementwise.py.
HANDLERS: dict[Any, Callable[..., Any]] = {}


def call(op: Any, *arguments: Any) -> Any:
    """An operation of the library, with weft's own exceptions."""
    try:
        return op(*arguments)
    except RuntimeError as error:
        reraise(error)


class Grid:
    """The ranks of ``comm`` (the world) as a grid of tiles, the last dimension running fastest. Collective.

    ``Grid(2, 3)`` cuts an image into two rows of three tiles, on 6 ranks; ``Grid(4)`` cuts a signal, ``Grid(4, 1)`` an
    image into four strips.
    """

    def __init__(self, *extents: int, comm: Communicator | None = None) -> None:
        self._comm = world() if comm is None else comm
        self._grid = call(_ops.rank_grid, self._comm._id, list(extents))

    @property
    def comm(self) -> Communicator:
        """The communicator that it was made from."""
        return self._comm

    @property
    def id(self) -> int:
        """The number of its own communicator, which the operations take."""
        return self._grid.comm()

    @property
    def extents(self) -> tuple[int, ...]:
        return tuple(self._grid.extents())

    @property
    def coordinates(self) -> tuple[int, ...]:
        """This rank's place."""
        return tuple(self._grid.coordinates())

    @property
    def rank(self) -> int:
        return self._comm.rank

    @property
    def size(self) -> int:
        return self._comm.size

    def __repr__(self) -> str:
        return f"Grid({' x '.join(map(str, self.extents))}; this rank: {self.coordinates})"


class Layout:
    """How a field is cut into tiles: balanced, or into the ``parts`` given for each dimension (sizes, also 0)."""

    __slots__ = ("grid", "handle")

    def __init__(
        self, grid: Grid, shape: Sequence[int] | None = None, parts: Sequence[Sequence[int]] | None = None
    ) -> None:
        if (shape is None) == (parts is None):
            raise ValueError("weft: expected the shape of the field, or the sizes of its parts in each dimension")
        self.grid = grid
        if parts is not None:
            self.handle = call(_ops.layout_of, grid._grid, [list(sizes) for sizes in parts])
        else:
            self.handle = call(_ops.balanced_layout, grid._grid, list(shape or ()))

    @classmethod
    def wrap(cls, handle: Any, grid: Grid) -> Layout:
        """One that the library made."""
        self = cls.__new__(cls)
        self.grid, self.handle = grid, handle
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole field."""
        return tuple(self.handle.shape())

    @property
    def dims(self) -> int:
        return len(self.grid.extents)

    def tile(self, rank: int | None = None) -> tuple[slice, ...]:
        """The box of a rank (this one), to index the whole field with."""
        bounds = self.handle.tile(self.grid.rank if rank is None else rank)
        return tuple(slice(bounds[i], bounds[i + 1]) for i in range(0, len(bounds), 2))

    def parts(self, dim: int) -> list[int]:
        """The sizes along a dimension."""
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
    """A tensor whose last dimensions are cut into tiles; this rank holds ``local``.

    torch's functions work on it where they make sense for tiles: elementwise ones, concatenation and softmax along the
    other dimensions, and all layers of weft.spatial. Others raise and are named.
    """

    __slots__ = ("layout", "local")

    def __init__(self, local: Tensor, layout: Layout) -> None:
        self.local = local
        self.layout = layout

    @classmethod
    def tile_of(cls, whole: Tensor, layout: Layout) -> DistTensor:
        """This rank's tile of a tensor that every rank holds. No communication."""
        return cls(call(_ops.tile_of, whole, layout.handle), layout)

    @classmethod
    def scatter(cls, whole: Tensor | None, layout: Layout, root: int = 0) -> DistTensor:
        """Tiles of the root's tensor; the other ranks need not pass any. Collective. Adjoint: gather."""
        return cls(call(_ops.tile_scatter, whole, layout.handle, root), layout)

    @classmethod
    def retile(cls, whole: Tensor, layout: Layout) -> DistTensor:
        """This rank's tile of what all ranks computed alike; in backward every rank gets the whole gradient."""
        return cls(call(_ops.retile, whole, layout.handle), layout)

    def all_gather(self) -> Tensor:
        """The whole tensor, on every rank. Collective. Adjoint: the sum of all ranks' gradients of a tile."""
        return call(_ops.tile_all_gather, self.local, self.layout.handle)

    def gather(self, root: int = 0) -> Tensor:
        """The whole tensor on ``root``; empty elsewhere. Collective. Adjoint: scatter."""
        return call(_ops.tile_gather, self.local, self.layout.handle, root)

    def whole(self) -> Tensor:
        """The whole tensor on every rank, for ranks that go on alike: what they compute from it counts once."""
        return call(_ops.counted_once, self.all_gather(), self.layout.grid.id)

    def repartition(self, layout: Layout) -> DistTensor:
        """The same field in other tiles. Collective."""
        if layout == self.layout:
            return self
        return DistTensor(call(_ops.repartition, self.local, self.layout.handle, layout.handle), layout)

    def sum_all(self) -> Tensor:
        """The sum over the whole field, on every rank; it counts once."""
        return call(_ops.tile_sum, self.local, self.layout.handle)

    def mean_all(self) -> Tensor:
        return call(_ops.tile_mean, self.local, self.layout.handle)

    def with_local(self, local: Tensor) -> DistTensor:
        return DistTensor(local, self.layout)

    @property
    def leading(self) -> int:
        """How many dimensions come before the tiled ones."""
        return self.local.dim() - self.layout.dims

    @property
    def shape(self) -> torch.Size:
        """Of the whole tensor."""
        return torch.Size((*self.local.shape[: self.leading], *self.layout.shape))

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
        return dim % self.ndim >= self.leading

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
                f"weft: '{name}' is not defined for a tensor in tiles. Apply it to x.local where it is right for each "
                f"tile by itself, or to x.whole()."
            )
        return handler(*args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        """Tensor's methods, as far as there are handlers for them."""
        method = getattr(Tensor, name, None)
        if method is None or method not in HANDLERS:
            raise AttributeError(f"weft: a tensor in tiles has no '{name}'; x.local and x.whole() do")
        return lambda *args, **kwargs: HANDLERS[method](self, *args, **kwargs)

    def __repr__(self) -> str:
        return f"DistTensor({tuple(self.shape)}, {self.dtype}, {self.layout!r})"


def _operator(name: str) -> Callable[..., Any]:
    method = getattr(Tensor, name)

    def apply(self: DistTensor, *args: Any) -> Any:
        return HANDLERS[method](self, *args)

    return apply


for _name in "add sub mul truediv pow radd rsub rmul rtruediv neg iadd isub imul itruediv".split():
    setattr(DistTensor, f"__{_name}__", _operator(f"__{_name}__"))
