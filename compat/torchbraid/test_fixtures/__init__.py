"""Fixtures of torchbraid's tests: vectors in flat memory, and the check for GPU-aware MPI."""

from . import gpumpi_check, test_cbs
from .gpumpi_check import check_gpu_direct_mpi

__all__ = ["check_gpu_direct_mpi", "gpumpi_check", "test_cbs"]
