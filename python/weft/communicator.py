"""Communicator: a group of ranks, and the differentiable operations between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import torch

from . import _interop, _lifetime
from ._collectives import Collectives
from ._messages import Messages
from .errors import reraise

if TYPE_CHECKING:
    from mpi4py import MPI


class Grid(NamedTuple):
    """The arrangement that cart made."""

    extents: list[int]
    periodic: list[bool]
    coordinates: list[int]


class Communicator(Collectives, Messages):
    """A group of ranks. Made by ``weft.world()``, ``weft.from_mpi4py(c)``, and by dup, split, split_shared and cart."""

    __slots__ = ("__weakref__", "_rank", "_size", "_team")

    def __init__(self, team: Any) -> None:
        self._team = team  # a torch.classes.weft.Team, which keeps the number below valid
        self._id = team.id()
        self._rank = team.rank()
        self._size = team.size()

    @property
    def rank(self) -> int:
        """This process's number in the group, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._size

    @property
    def name(self) -> str:
        """What messages call it."""
        return self._team.name()

    def dup(self) -> Communicator:
        """Collective. The same ranks, with traffic of their own."""
        try:
            return Communicator(self._team.dup())
        except RuntimeError as error:
            reraise(error)

    @overload
    def split(self, color: int, key: int | None = None) -> Communicator: ...
    @overload
    def split(self, color: None, key: int | None = None) -> None: ...
    def split(self, color: int | None, key: int | None = None) -> Communicator | None:
        """Collective. One communicator per color, its ranks ordered by ``key``; None where the color is None."""
        if color is not None and color < 0:
            raise ValueError(f"weft: expected a color of at least 0, or None to stay out, got {color}")
        try:
            team = self._team.split(-1 if color is None else color, self._rank if key is None else key)
        except RuntimeError as error:
            reraise(error)
        return None if color is None else Communicator(team)

    def split_shared(self) -> Communicator:
        """Collective. The ranks on this node."""
        try:
            return Communicator(self._team.split_shared())
        except RuntimeError as error:
            reraise(error)

    def cart(self, extents: Sequence[int], periodic: Sequence[bool] | None = None) -> Communicator:
        """Collective. The ranks as a grid, the last dimension running fastest; the extents' product is the size."""
        if math.prod(extents) != self._size or any(extent < 1 for extent in extents):
            raise ValueError(f"weft: expected the extents of a grid for {self._size} ranks, got {list(extents)}")
        try:
            return Communicator(self._team.cart(list(extents), list(periodic or [False] * len(extents))))
        except RuntimeError as error:
            reraise(error)

    @property
    def grid(self) -> Grid | None:
        """Extents, which of them wrap around, and this rank's coordinates; None unless cart made it."""
        try:
            return Grid(*self._team.grid()) if self._team.is_cart() else None
        except RuntimeError as error:
            reraise(error)

    @property
    def coordinates(self) -> list[int]:
        """This rank's place in the grid."""
        grid = self.grid
        if grid is None:
            raise RuntimeError(f"weft: communicator '{self.name}' has no coordinates; cart() makes one that has")
        return grid.coordinates

    def free(self) -> None:
        """Collective by convention. Ends the communicator: operations on it raise from now on."""
        self._team.free()

    @property
    def freed(self) -> bool:
        return self._team.closed()

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
        return self  # so that modules which hold one can be copied

    def __reduce__(self) -> tuple[Any, ...]:
        if _world is None or self != _world:
            raise TypeError(
                f"weft: communicator '{self.name}' cannot be pickled: it exists only while this job runs. "
                "Store what it was made from (color and key, extents), and make it again; weft.world() can be pickled."
            )
        return world, ()


_world: Communicator | None = None


def world() -> Communicator:
    """All ranks of the job. Collective at the first call, which initialises MPI if nobody has."""
    global _world
    if _world is None:
        try:
            _world = Communicator(torch.ops.weft.world())
        except RuntimeError as error:
            reraise(error)
        _lifetime.started(_world._id, _world.size)
    return _world


def from_mpi4py(comm: MPI.Comm) -> Communicator:
    """Collective over ``comm``. A communicator of the same ranks, with traffic of its own."""
    _interop.require_one_mpi()
    world()
    try:
        return Communicator(torch.ops.weft.from_fortran(comm.py2f()))
    except RuntimeError as error:
        reraise(error)
