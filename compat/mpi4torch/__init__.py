"""mpi4torch's interface on top of weft: MPI communication with autograd and TorchScript support.

Importing it initializes MPI with MPI_THREAD_MULTIPLE, unless MPI is already initialized, and finalizes it at exit.
"""

from ._communicator import COMM_WORLD, MPI_Communicator, comm_from_mpi4py, deactivate_cuda_aware_mpi_support
from ._constants import (
    MPI_ANY_SOURCE,
    MPI_ANY_TAG,
    MPI_BAND,
    MPI_BOR,
    MPI_BXOR,
    MPI_LAND,
    MPI_LOR,
    MPI_LXOR,
    MPI_MAX,
    MPI_MAXLOC,
    MPI_MIN,
    MPI_MINLOC,
    MPI_PROC_NULL,
    MPI_PROD,
    MPI_SUM,
)
from ._handle import JoinDummies, JoinDummiesHandle, WaitHandle

__all__ = [
    "COMM_WORLD",
    "MPI_ANY_SOURCE",
    "MPI_ANY_TAG",
    "MPI_BAND",
    "MPI_BOR",
    "MPI_BXOR",
    "MPI_LAND",
    "MPI_LOR",
    "MPI_LXOR",
    "MPI_MAX",
    "MPI_MAXLOC",
    "MPI_MIN",
    "MPI_MINLOC",
    "MPI_PROC_NULL",
    "MPI_PROD",
    "MPI_SUM",
    "JoinDummies",
    "JoinDummiesHandle",
    "MPI_Communicator",
    "WaitHandle",
    "comm_from_mpi4py",
    "deactivate_cuda_aware_mpi_support",
]
