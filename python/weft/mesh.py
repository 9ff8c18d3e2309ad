"""Mesh: arranges ranks along named axes, with a communicator along each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from .communicator import Communicator, world

__all__ = ["Mesh"]


class Mesh:
    """Arranges ranks along named axes; the last axis varies fastest. Collective.

    ``Mesh(data=2, depth=2)["depth"]`` is the communicator of the ranks that differ from this one in depth only.

    Args:
        comm: the ranks; by default all.
        axes: the extent of each axis; their product is the number of ranks.

    Raises ValueError if an extent is less than 1 or the product differs from the number of ranks.
    """

    def __init__(self, *, comm: Communicator | None = None, **axes: int) -> None:
        self._comm = world() if comm is None else comm
        self._shape = dict(axes)
        self._check()
        self._coordinates = self._locate(self._comm.rank)
        self._made: dict[tuple[str, ...], Communicator] = {}
        for name in axes:  # split() is collective, and all ranks are in this constructor
            self.comm(name)

    def _check(self) -> None:
        text = " x ".join(f"{name}={extent}" for name, extent in self._shape.items()) or "no axes"
        for name, extent in self._shape.items():
            if isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:
                raise ValueError(f"weft: Mesh: expected an integer of at least 1 for axis '{name}', got {extent!r}")
        cells = math.prod(self._shape.values())
        if cells != self._comm.size:
            raise ValueError(
                f"weft: Mesh: {text} needs {cells} ranks, but '{self._comm.name}' has {self._comm.size}; "
                f"start the job with mpirun -n {cells}, or change an axis"
            )

    def _locate(self, rank: int) -> dict[str, int]:
        coordinates = {}
        for name, extent in reversed(self._shape.items()):
            rank, coordinates[name] = divmod(rank, extent)
        return {name: coordinates[name] for name in self._shape}

    def _index(self, names: tuple[str, ...]) -> int:
        """Returns the number of this rank among the ranks that differ along ``names`` only."""
        index = 0
        for name in names:
            index = index * self._shape[name] + self._coordinates[name]
        return index

    @property
    def shape(self) -> Mapping[str, int]:
        """The extent of each axis."""
        return MappingProxyType(self._shape)

    @property
    def coordinates(self) -> Mapping[str, int]:
        """The coordinate of this rank on each axis."""
        return MappingProxyType(self._coordinates)

    @property
    def world(self) -> Communicator:
        """All ranks of the mesh."""
        return self._comm

    def __getitem__(self, axis: str) -> Communicator:
        """Returns the communicator along one axis."""
        return self.comm(axis)

    def comm(self, *axes: str) -> Communicator:
        """Returns the communicator over several axes, which order its ranks. Collective on the first call.

        Raises KeyError for an unknown axis, and ValueError for a repeated one.
        """
        for name in axes:
            if name not in self._shape:
                raise KeyError(f"weft: Mesh: unknown axis '{name}'; the axes are {', '.join(self._shape)}")
        if len(set(axes)) != len(axes):
            raise ValueError(f"weft: Mesh: repeated axis in {', '.join(axes)}")
        if axes not in self._made:
            others = tuple(name for name in self._shape if name not in axes)
            self._made[axes] = self._comm.split(self._index(others), self._index(axes))
        return self._made[axes]

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={extent}" for name, extent in self._shape.items())
        place = ", ".join(f"{name}={at}" for name, at in self._coordinates.items())
        return f"Mesh({axes}; this rank: {place})"
