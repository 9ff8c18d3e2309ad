"""A single rank without MPI, under torchbraid's module name."""

from .mpi import MPINamespace, SerialComm

MPI = MPINamespace()

__all__ = ["MPI", "MPINamespace", "SerialComm"]
