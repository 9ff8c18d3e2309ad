"""Handles of non-blocking operations, and the dummies that order communication in backward."""

import torch

from . import _library  # noqa: F401  (loads the operations used below)


@torch.jit.script
class WaitHandle:
    """What ``Isend``, ``Irecv`` and ``Iallreduce`` return. ``MPI_Communicator.Wait`` takes it, once."""

    def __init__(self, raw_handle: list[torch.Tensor]):
        self._handle = raw_handle

    @property
    def dummy(self) -> torch.Tensor:
        """Depends on the operation that started, for ``JoinDummies`` and ``JoinDummiesHandle``."""
        return self._handle[0]


def JoinDummies(loopthrough: torch.Tensor, dummies: list[torch.Tensor]) -> torch.Tensor:
    """``loopthrough``, made to depend on ``dummies`` too: backward goes through them after it. They get zeros.

    Where no dummy requires grad it returns ``loopthrough`` itself.
    """
    return torch.ops.mpi4torch.JoinDummies(loopthrough, dummies)


def JoinDummiesHandle(handle: WaitHandle, dummies: list[torch.Tensor]) -> WaitHandle:
    """``handle``, with a dummy that depends on ``dummies`` too."""
    raw = handle._handle
    return WaitHandle([JoinDummies(raw[0], dummies), raw[1]])
