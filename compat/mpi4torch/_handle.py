"""Handles of non-blocking operations, and the dummies that order communication in backward."""

import torch

from . import _library  # noqa: F401  (loads the operations used below)


@torch.jit.script
class WaitHandle:
    """Handle of ``Isend``, ``Irecv`` or ``Iallreduce``; pass it to ``MPI_Communicator.Wait`` once."""

    def __init__(self, raw_handle: list[torch.Tensor]):
        self._handle = raw_handle

    @property
    def dummy(self) -> torch.Tensor:
        """A tensor that depends on the operation, for ``JoinDummies`` and ``JoinDummiesHandle``."""
        return self._handle[0]


def JoinDummies(loopthrough: torch.Tensor, dummies: list[torch.Tensor]) -> torch.Tensor:
    """Returns ``loopthrough`` with a dependency on ``dummies``, which backward visits later; their gradients are zeros.

    If no dummy requires grad, the result is ``loopthrough`` itself.
    """
    return torch.ops.mpi4torch.JoinDummies(loopthrough, dummies)


def JoinDummiesHandle(handle: WaitHandle, dummies: list[torch.Tensor]) -> WaitHandle:
    """Returns ``handle`` with a dummy that also depends on ``dummies``."""
    raw = handle._handle
    return WaitHandle([JoinDummies(raw[0], dummies), raw[1]])
