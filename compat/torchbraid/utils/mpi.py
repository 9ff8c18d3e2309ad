"""MPI of mpi4py; without mpi4py, a single rank."""

from __future__ import annotations

from typing import Any


class SerialComm:
    """The world of a program without MPI."""

    def Get_rank(self) -> int:
        return 0

    def Get_size(self) -> int:
        return 1


class MPINamespace:
    """Stands for mpi4py.MPI."""

    COMM_WORLD = SerialComm()


try:
    from mpi4py import MPI
except ImportError:
    MPI: Any = MPINamespace()  # type: ignore[no-redef]

__all__ = ["MPI", "MPINamespace", "SerialComm"]
