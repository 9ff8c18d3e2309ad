"""Communicator: a group of ranks and the differentiable operations between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, overload

import torch

from . import _interop, _lifetime
from ._collectives import Collectives
from ._messages import Messages
from .errors import Disagreement

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
        return Communicator(torch.ops.weft.dup(self._id))

    @overload
    def split(self, color: int, key: int | None = None) -> Communicator: ...
    @overload
    def split(self, color: None, key: int | None = None) -> None: ...
    def split(self, color: int | None, key: int | None = None) -> Communicator | None:
        """Collective. Splits the ranks into one communicator per color and returns this rank's.

        Args:
            color: at least 0 and below 2**31; with None the rank joins no communicator and gets None.
            key: orders the ranks of a color; by default the current rank. Fits 32 bits.

        Raises ValueError if the arguments of this rank are invalid, and Disagreement if only those of other ranks are.
        """
        if color is not None and not 0 <= color < 2**31:
            self._reject(
                "split",
                f"weft: split: expected a color of at least 0 and below 2**31, or None for no group, got {color}",
            )
        if key is not None and not -(2**31) <= key < 2**31:
            self._reject("split", f"weft: split: expected a key that fits 32 bits, got {key}")
        handle = torch.ops.weft.split(-1 if color is None else color, self._rank if key is None else key, self._id)
        return None if color is None else Communicator(handle)

    def split_shared(self) -> Communicator:
        """Collective. Returns a communicator of the ranks on this node."""
        return Communicator(torch.ops.weft.split_shared(self._id))

    def cart(self, extents: Sequence[int], periodic: Sequence[bool] | None = None) -> Communicator:
        """Collective. Returns a communicator that arranges the ranks as a grid; the last dimension varies fastest.

        Args:
            extents: one per dimension; their product is the number of ranks.
            periodic: whether each dimension wraps around; by default none does.

        Raises ValueError if this rank's arguments are not a grid with one cell per rank, and Disagreement if those of
        another rank are invalid or differ.
        """
        extents, periodic = list(extents), [False] * len(extents) if periodic is None else list(periodic)
        if math.prod(extents) != self._size or any(extent < 1 for extent in extents):
            self._reject("cart", f"weft: cart: expected the extents of a grid for {self._size} ranks, got {extents}")
        if len(periodic) != len(extents):
            self._reject(
                "cart", f"weft: cart: expected one periodic flag for each of {len(extents)} extents, got {periodic}"
            )
        return Communicator(torch.ops.weft.cart(extents, periodic, self._id))

    def _reject(self, operation: str, problem: str) -> NoReturn:
        """Raises ValueError here, and Disagreement on the ranks that call the operation with valid arguments."""
        with suppress(Disagreement):
            torch.ops.weft.reject(operation, problem, self._id)
        raise ValueError(problem)

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


def to_mpi4py(comm: Communicator) -> MPI.Intracomm:
    """Collective over ``comm``. Returns an mpi4py communicator of the same ranks whose messages are separate.

    The caller frees it. Raises RuntimeError if mpi4py and weft use different MPI libraries.
    """
    from mpi4py import MPI

    _interop.require_one_mpi()
    ranks = comm.all_gather(torch.tensor([world().rank])).flatten().tolist()
    members = MPI.COMM_WORLD.Get_group().Incl(ranks)
    created = MPI.COMM_WORLD.Create_group(members)
    members.Free()
    return created
