"""Numbers of the reductions, and special ranks and tags of the MPI library."""

import torch

from . import _library  # noqa: F401  (loads the operations used below)

MPI_MAX = 0
MPI_MIN = 1
MPI_SUM = 2
MPI_PROD = 3
MPI_LAND = 4
MPI_BAND = 5
MPI_LOR = 6
MPI_BOR = 7
MPI_LXOR = 8
MPI_BXOR = 9
MPI_MINLOC = 10
MPI_MAXLOC = 11

# The values depend on the MPI library and equal those of mpi4py.
MPI_ANY_SOURCE: int = torch.ops.mpi4torch.any_source()
MPI_ANY_TAG: int = torch.ops.mpi4torch.any_tag()
MPI_PROC_NULL: int = torch.ops.mpi4torch.proc_null()
