"""Affine maps of ranks, applied one after the other: the part of a linear recurrence that crosses ranks."""

from __future__ import annotations

import torch
from torch import Tensor

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
        self._matrices, self._offsets, self.extras = torch.ops.weft.gather_rank_maps(
            matrix, offset, extra, reverse, comm._id
        )
        self._position = comm.size - 1 - comm.rank if reverse else comm.rank

    def apply(self, initial: Tensor) -> tuple[Tensor, Tensor]:
        """Applies the maps to ``initial``, the value before the first rank. Call it once.

        Returns the value before this rank, and the one after the last rank.
        """
        torch.ops.weft.linear_scan_(self._matrices, self._offsets, initial, False)
        values = self._offsets
        return initial if self._position == 0 else values[self._position - 1], values[-1]
