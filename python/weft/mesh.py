"""Mesh: named axes over the ranks, and a communicator along each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from .communicator import Communicator, world

__all__ = ["Mesh"]


class Mesh:
    """Arranges the ranks of ``comm`` (the world) along named axes, the last one running fastest. Collective.

    ``Mesh(data=2, depth=2)["depth"]`` is the communicator of the ranks that differ from this one in depth only.
    """

    def __init__(self, *, comm: Communicator | None = None, **axes: int) -> None:
        self._comm = world() if comm is None else comm
        self._shape = dict(axes)
        self._check()
        self._coordinates = self._locate(self._comm.rank)
        self._made: dict[tuple[str, ...], Communicator] = {}
        for name in axes:  # now, while all ranks are here
            self.comm(name)

    def _check(self) -> None:
        text = " x ".join(f"{name}={extent}" for name, extent in self._shape.items()) or "no axes"
        for name, extent in self._shape.items():
            if isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:
                raise ValueError(f"weft: expected a whole number of at least 1 for axis '{name}', got {extent!r}")
        cells = math.prod(self._shape.values())
        if cells != self._comm.size:
            raise ValueError(
                f"weft: a mesh of {text} takes {cells} ranks, but '{self._comm.name}' has {self._comm.size}. "
                f"Start {cells} with mpirun -n {cells}, or change an axis."
            )

    def _locate(self, rank: int) -> dict[str, int]:
        coordinates = {}
        for name, extent in reversed(self._shape.items()):
            rank, coordinates[name] = divmod(rank, extent)
        return {name: coordinates[name] for name in self._shape}

    def _index(self, names: tuple[str, ...]) -> int:
        """This rank's number among those that differ along ``names`` only."""
        index = 0
        for name in names:
            index = index * self._shape[name] + self._coordinates[name]
        return index

    @property
    def shape(self) -> Mapping[str, int]:
        """Axis to extent."""
        return MappingProxyType(self._shape)

    @property
    def coordinates(self) -> Mapping[str, int]:
        """Axis to this rank's place on it."""
        return MappingProxyType(self._coordinates)

    @property
    def world(self) -> Communicator:
        """All ranks of the mesh."""
        return self._comm

    def __getitem__(self, axis: str) -> Communicator:
        """The communicator along one axis."""
        return self.comm(axis)

    def comm(self, *axes: str) -> Communicator:
        """The communicator over several axes, ranks ordered as the axes are given. Collective at the first call."""
        for name in axes:
            if name not in self._shape:
                raise KeyError(f"weft: the mesh has no axis '{name}', only {', '.join(self._shape)}")
        if len(set(axes)) != len(axes):
            raise ValueError(f"weft: expected each axis once, got {', '.join(axes)}")
        if axes not in self._made:
            others = tuple(name for name in self._shape if name not in axes)
            self._made[axes] = self._comm.split(self._index(others), self._index(axes))
        return self._made[axes]

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={extent}" for name, extent in self._shape.items())
        place = ", ".join(f"{name}={at}" for name, at in self._coordinates.items())
        return f"Mesh({axes}; this rank: {place})"
