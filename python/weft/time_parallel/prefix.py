"""Affine maps of ranks, applied one after the other: the part of a linear recurrence that crosses ranks."""

from __future__ import annotations

import torch
from torch import Tensor

from .._tape import tape
from ..communicator import Communicator


def multiply(matrix: Tensor, s: Tensor) -> Tensor:
    """Returns the product of diagonal blocks [batch, blocks, blocks, lanes] with [batch, blocks * lanes]."""
    batch, blocks, _, lanes = matrix.shape
    if blocks == 1:
        return matrix.view(batch, lanes) * s
    return torch.einsum("bijl,bjl->bil", matrix, s.view(batch, blocks, lanes)).reshape(batch, blocks * lanes)


class RankMaps:
    """The maps s -> ``matrix`` s + ``offset`` of all ranks. Collective: one exchange of messages.

    Args:
        matrix: [batch, blocks, blocks, lanes]. offset: [batch, blocks * lanes].
        extra: further values of the rank; ``extras`` holds those of all ranks, [ranks, ...].
        reverse: the order of the ranks is from the last to the first.
    """

    def __init__(self, comm: Communicator, matrix: Tensor, offset: Tensor, extra: Tensor, reverse: bool) -> None:
        message = torch.cat([matrix.flatten(), offset.flatten(), extra.flatten()])
        with tape(False), torch.no_grad():
            gathered = comm.all_gather(message.unsqueeze(0))
        everyone = gathered.flip(0) if reverse else gathered
        matrices, offsets, extras = everyone.split([matrix.numel(), offset.numel(), extra.numel()], dim=1)
        self.extras = extras.reshape(comm.size, *extra.shape)
        self._matrices = matrices.reshape(comm.size, *matrix.shape).contiguous()
        self._offsets = offsets.reshape(comm.size, *offset.shape).contiguous()
        self._position = comm.size - 1 - comm.rank if reverse else comm.rank

    def apply(self, initial: Tensor) -> tuple[Tensor, Tensor]:
        """Applies the maps to ``initial``, the value before the first rank. Call it once.

        Returns the value before this rank, and the one after the last rank.
        """
        torch.ops.weft.linear_scan_(self._matrices, self._offsets, initial, False)
        values = self._offsets
        return initial if self._position == 0 else values[self._position - 1], values[-1]
