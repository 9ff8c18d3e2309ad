"""Communicator: a group of ranks and the differentiable operations between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, overload

import torch

from . import _interop, _lifetime
from ._collectives import Collectives
from ._messages import Messages

if TYPE_CHECKING:
    from mpi4py import MPI


class CartTopology(NamedTuple):
    """The arrangement of the ranks of a communicator made by cart."""

    extents: list[int]
    periodic: list[bool]
    coordinates: list[int]
    """Coordinates of this rank."""


class Handle(Protocol):
    """torch.classes.weft.Communicator. The id of a communicator stays valid as long as its handle exists."""

    def id(self) -> int: ...
    def rank(self) -> int: ...
    def size(self) -> int: ...
    def name(self) -> str: ...
    def closed(self) -> bool: ...
    def dup(self) -> Handle: ...
    def split(self, color: int, key: int) -> Handle: ...
    def split_shared(self) -> Handle: ...
    def cart(self, extents: list[int], periodic: list[bool]) -> Handle: ...
    def is_cart(self) -> bool: ...
    def grid(self) -> tuple[list[int], list[bool], list[int]]: ...
    def free(self) -> None: ...


class Communicator(Collectives, Messages):
    """A group of ranks, made by ``weft.world()``, ``weft.from_mpi4py()``, dup, split, split_shared and cart.

    Operations on a freed communicator raise RuntimeError.
    """

    __slots__ = ("__weakref__", "_handle", "_rank", "_size")

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._id = handle.id()
        self._rank = handle.rank()
        self._size = handle.size()

    @property
    def rank(self) -> int:
        """Number of this process in the group, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._size

    @property
    def name(self) -> str:
        """Name in error messages."""
        return self._handle.name()

    def dup(self) -> Communicator:
        """Collective. Returns a communicator of the same ranks whose messages are separate from this one's."""
        return Communicator(self._handle.dup())

    @overload
    def split(self, color: int, key: int | None = None) -> Communicator: ...
    @overload
    def split(self, color: None, key: int | None = None) -> None: ...
    def split(self, color: int | None, key: int | None = None) -> Communicator | None:
        """Collective. Splits the ranks into one communicator per color and returns this rank's.

        Args:
            color: at least 0; with None the rank joins no communicator and gets None.
            key: orders the ranks of a color; by default the current rank.

        Raises ValueError if ``color`` is negative.
        """
        if color is not None and color < 0:
            raise ValueError(f"weft: split: expected a color of at least 0, or None to join no group, got {color}")
        handle = self._handle.split(-1 if color is None else color, self._rank if key is None else key)
        return None if color is None else Communicator(handle)

    def split_shared(self) -> Communicator:
        """Collective. Returns a communicator of the ranks on this node."""
        return Communicator(self._handle.split_shared())

    def cart(self, extents: Sequence[int], periodic: Sequence[bool] | None = None) -> Communicator:
        """Collective. Returns a communicator that arranges the ranks as a grid; the last dimension varies fastest.

        Args:
            extents: one per dimension; their product is the number of ranks.
            periodic: whether each dimension wraps around; by default none does.

        Raises ValueError if the grid does not have one cell per rank.
        """
        if math.prod(extents) != self._size or any(extent < 1 for extent in extents):
            raise ValueError(f"weft: cart: expected extents with product {self._size} (the ranks), got {list(extents)}")
        return Communicator(self._handle.cart(list(extents), list(periodic or [False] * len(extents))))

    @property
    def grid(self) -> CartTopology | None:
        """Extents, periodicity and coordinates; None unless cart made the communicator."""
        return CartTopology(*self._handle.grid()) if self._handle.is_cart() else None

    @property
    def coordinates(self) -> list[int]:
        """Coordinates of this rank in the grid. Raises RuntimeError unless cart made the communicator."""
        grid = self.grid
        if grid is None:
            raise RuntimeError(f"weft: communicator '{self.name}' has no coordinates; create one with cart()")
        return grid.coordinates

    def free(self) -> None:
        """Frees the communicator. Call it on all ranks."""
        self._handle.free()

    @property
    def freed(self) -> bool:
        """Whether ``free`` was called."""
        return self._handle.closed()

    def __repr__(self) -> str:
        state = ", freed" if self.freed else ""
        return f"Communicator('{self.name}', rank {self._rank} of {self._size}{state})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Communicator) and other._id == self._id

    def __hash__(self) -> int:
        return hash(self._id)

    def __copy__(self) -> Communicator:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Communicator:
        return self  # modules that hold a communicator can be copied

    def __reduce__(self) -> tuple[Any, ...]:
        if _world is None or self != _world:
            raise TypeError(
                f"weft: communicator '{self.name}' cannot be pickled, because it exists only while this job runs; "
                "store the arguments that made it (color and key, extents), or pickle weft.world()"
            )
        return world, ()


_world: Communicator | None = None


def world() -> Communicator:
    """Returns the communicator of all ranks of the job. The first call is collective and initializes MPI if needed."""
    global _world
    if _world is None:
        _world = Communicator(torch.ops.weft.world())
        _lifetime.started(_world._id, _world.size)
    return _world


def from_mpi4py(comm: MPI.Comm) -> Communicator:
    """Collective over ``comm``. Returns a communicator of the same ranks whose messages are separate from ``comm``'s.

    Raises RuntimeError if mpi4py and weft use different MPI libraries.
    """
    _interop.require_one_mpi()
    world()
    return Communicator(torch.ops.weft.from_fortran(comm.py2f()))
