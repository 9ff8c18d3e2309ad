"""Utilities for programs that use LayerParallel."""

from . import data_parallel, functional
from .context_timer import ContextTimer, ContextTimerManager
from .device import getDevice
from .done_flag import DoneFlag, DoneFlagMixin
from .flat_buffer import buffer_size, pack_buffer, unpack_buffer
from .functional import l2_reg
from .initial_guess import MeanInitialGuessStorage
from .inspection import pickle_size, stack_string, tensor_memory
from .layers import LPBatchNorm2d, LPDropout
from .mpi import MPI
from .new_batch_flag import NBFlag, NBFlagMixin
from .seeds import seed_from_rank
from .version import git_rev

__all__ = [
    "MPI",
    "ContextTimer",
    "ContextTimerManager",
    "DoneFlag",
    "DoneFlagMixin",
    "LPBatchNorm2d",
    "LPDropout",
    "MeanInitialGuessStorage",
    "NBFlag",
    "NBFlagMixin",
    "buffer_size",
    "data_parallel",
    "functional",
    "getDevice",
    "git_rev",
    "l2_reg",
    "pack_buffer",
    "pickle_size",
    "seed_from_rank",
    "stack_string",
    "tensor_memory",
    "unpack_buffer",
]
