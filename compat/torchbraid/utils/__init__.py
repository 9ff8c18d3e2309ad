"""Utilities for programs that use LayerParallel."""

from . import data_parallel, functional
from .context_timer import ContextTimer, ContextTimerManager
from .device import getDevice
from .flat_buffer import buffer_size, pack_buffer, unpack_buffer
from .functional import l2_reg
from .initial_guess import MeanInitialGuessStorage
from .layers import LPBatchNorm2d, LPDropout
from .seeds import seed_from_rank
from .version import git_rev

__all__ = [
    "ContextTimer",
    "ContextTimerManager",
    "LPBatchNorm2d",
    "LPDropout",
    "MeanInitialGuessStorage",
    "buffer_size",
    "data_parallel",
    "functional",
    "getDevice",
    "git_rev",
    "l2_reg",
    "pack_buffer",
    "seed_from_rank",
    "unpack_buffer",
]
