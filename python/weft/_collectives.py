"""The collective operations of a communicator: all its ranks call them in the same order.

Gradients are those of the sum of all ranks' losses. In the costs, n is the tensor's size in bytes and p the number of
ranks; each call also agrees on its arguments, log2(p) short messages.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .errors import reraise

# Looked up once: torch.ops.weft.x.default costs three attribute lookups a call.
_all_reduce = torch.ops.weft.all_reduce.default
_reduce = torch.ops.weft.reduce.default
_broadcast = torch.ops.weft.broadcast.default
_all_gather = torch.ops.weft.all_gather.default
_gather = torch.ops.weft.gather.default
_scatter = torch.ops.weft.scatter.default
_all_to_all = torch.ops.weft.all_to_all.default
_reduce_scatter = torch.ops.weft.reduce_scatter.default
_scan = torch.ops.weft.scan.default
_barrier = torch.ops.weft.barrier.default


class Collectives:
    """Mixed into Communicator, which sets the number that names it to the library."""

    __slots__ = ("_id",)

    _id: int

    def all_reduce(self, x: Tensor, op: str = "sum") -> Tensor:
        """The reduction of all ranks' tensors, on every rank.

        ``op``: sum, mean, prod, min or max; land, lor, lxor, band, bor, bxor without gradients. Adjoint: the
        all_reduce of the gradients, by sum (or mean), times the derivative of prod, min or max; ties share equally.
        Moves about 2n a rank.
        """
        try:
            return _all_reduce(x, op, self._id)
        except RuntimeError as error:
            reraise(error)

    def reduce(self, x: Tensor, op: str = "sum", root: int = 0) -> Tensor:
        """The reduction of all ranks' tensors on ``root``; zeros elsewhere.

        Adjoint: the root's gradient, broadcast. Moves about n a rank; p n to the root for prod, min and max.
        """
        try:
            return _reduce(x, op, root, self._id)
        except RuntimeError as error:
            reraise(error)

    def broadcast(self, x: Tensor, root: int = 0) -> Tensor:
        """The root's tensor, on every rank. The others pass one of the same shape and type, whose values do not count.

        Adjoint: the sum of all ranks' gradients to the root, zeros to the others. Moves n a rank.
        """
        try:
            return _broadcast(x, root, self._id)
        except RuntimeError as error:
            reraise(error)

    def all_gather(self, x: Tensor, dim: int = 0) -> Tensor:
        """All ranks' tensors one after the other along ``dim``, where their sizes may differ, on every rank.

        Adjoint: reduce_scatter of the gradients by sum. Every rank receives all of it, p n.
        """
        try:
            return _all_gather(x, dim, self._id)
        except RuntimeError as error:
            reraise(error)

    def gather(self, x: Tensor, dim: int = 0, root: int = 0) -> Tensor:
        """As all_gather, on ``root`` only; elsewhere the result has size 0 along ``dim``.

        Adjoint: scatter of the root's gradient. The root receives p n.
        """
        try:
            return _gather(x, dim, root, self._id)
        except RuntimeError as error:
            reraise(error)

    def scatter(
        self, x: Tensor | None = None, dim: int = 0, root: int = 0, sizes: Sequence[int] | None = None
    ) -> Tensor:
        """This rank's piece of the root's tensor, split along ``dim`` into ``sizes`` (balanced without them).

        The other ranks need not pass anything: shape and type are the root's. Adjoint: gather of the gradients to the
        root. The root sends n.
        """
        try:
            return _scatter(torch.empty(0) if x is None else x, dim, root, sizes, self._id)
        except RuntimeError as error:
            reraise(error)

    def all_to_all(
        self, x: Tensor, split_dim: int = 0, concat_dim: int = 0, split_sizes: Sequence[int] | None = None
    ) -> Tensor:
        """Splits ``x`` along ``split_dim``, sends piece i to rank i, joins what arrives along ``concat_dim``.

        ``split_sizes`` may differ between ranks; without them the split is balanced. Adjoint: all_to_all with the
        dimensions exchanged. Moves n a rank.
        """
        try:
            return _all_to_all(x, split_dim, concat_dim, split_sizes, self._id)
        except RuntimeError as error:
            reraise(error)

    def reduce_scatter(self, x: Tensor, op: str = "sum", dim: int = 0, sizes: Sequence[int] | None = None) -> Tensor:
        """This rank's piece of the reduction of all ranks' tensors, split along ``dim`` as by scatter.

        Adjoint: all_gather of the gradients (divided by p for mean). Moves n a rank.
        """
        try:
            return _reduce_scatter(x, op, dim, sizes, self._id)
        except RuntimeError as error:
            reraise(error)

    def scan(self, x: Tensor, op: str = "sum", reverse: bool = False) -> Tensor:
        """The reduction of the tensors of ranks 0 to this one, or of this one to the last if ``reverse``.

        Adjoint: the scan in the other direction. Moves about log2(p) n a rank; p n for prod, min and max.
        """
        try:
            return _scan(x, op, False, reverse, self._id)
        except RuntimeError as error:
            reraise(error)

    def exscan(self, x: Tensor, op: str = "sum", reverse: bool = False) -> Tensor:
        """As scan, without this rank's own tensor; the first rank gets what reducing nothing gives (0 for sum)."""
        try:
            return _scan(x, op, True, reverse, self._id)
        except RuntimeError as error:
            reraise(error)

    def barrier(self) -> None:
        """Nobody leaves before everybody has entered."""
        try:
            _barrier(self._id)
        except RuntimeError as error:
            reraise(error)
