"""Composition of affine maps over ranks: the part of a linear recurrence that crosses ranks."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..communicator import Communicator


class AffineMap(NamedTuple):
    """Maps s to ``matrix`` s + ``offset``."""

    matrix: Tensor
    """[batch, blocks, blocks, lanes]: blocks of diagonal matrices."""
    offset: Tensor
    """[batch, blocks * lanes]."""

    def __call__(self, s: Tensor) -> Tensor:
        return multiply(self.matrix, s) + self.offset

    def after(self, first: AffineMap) -> AffineMap:
        """Returns the composition that applies ``first`` before this map."""
        return AffineMap(torch.einsum("bijl,bjkl->bikl", self.matrix, first.matrix), self(first.offset))


def multiply(matrix: Tensor, s: Tensor) -> Tensor:
    """Returns the product of ``AffineMap.matrix`` with [batch, blocks * lanes]."""
    batch, blocks, _, lanes = matrix.shape
    return torch.einsum("bijl,bjl->bil", matrix, s.view(batch, blocks, lanes)).reshape(batch, blocks * lanes)


def value_before(comm: Communicator, mine: AffineMap, initial: Tensor, reverse: bool) -> Tensor:
    """Collective. Applies the maps of the ranks before this one to ``initial``, the value before the first rank.

    Takes log2(ranks) rounds of messages. ``reverse``: the order of the ranks is from the last to the first.
    """
    position = comm.size - 1 - comm.rank if reverse else comm.rank
    direction = -1 if reverse else 1
    size = mine.matrix[0].numel() if mine.matrix.size(0) else 0

    def pack(one: AffineMap) -> Tensor:
        return torch.cat([one.matrix.flatten(1), one.offset], dim=1)

    before: AffineMap | None = None  # the maps of the ranks (position - distance, position)
    total = mine  # the maps of the ranks (position - distance, position]
    distance = 1
    while distance < comm.size:
        send = None
        if position + distance < comm.size:
            send = comm.isend(pack(total), dest=comm.rank + direction * distance)
        if position >= distance:
            received = comm.recv(like=pack(total), source=comm.rank - direction * distance)
            first = AffineMap(received[:, :size].reshape_as(mine.matrix), received[:, size:])
            before = first if before is None else before.after(first)
            total = total.after(first)
        if send is not None:
            send.wait()
        distance *= 2
    return initial if before is None else before(initial)
