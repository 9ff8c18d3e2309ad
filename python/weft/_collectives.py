"""The collective operations of a communicator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# Cached: torch.ops.weft.x.default costs three attribute lookups per call.
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
    """Collective operations: all ranks of the communicator call them in the same order.

    Gradients are those of the sum of all ranks' losses; each operation states its adjoint. In the costs, n is the size
    of the tensor in bytes and p the number of ranks. Each call also checks that the ranks agree on its
    arguments, which takes log2(p) short messages.

    Every operation raises Disagreement if the ranks call different operations or pass incompatible arguments, PeerLost
    if another rank fails, TimeoutError if a wait exceeds ``Options.timeout``, and MpiError if MPI reports an error.
    """

    __slots__ = ("_id",)

    _id: int
    """Identifies the communicator to the library."""

    def all_reduce(self, x: Tensor, op: str = "sum") -> Tensor:
        """Returns the reduction of all ranks' tensors on every rank.

        Args:
            x: has the same shape and dtype on every rank.
            op: sum, mean, prod, min or max; or land, lor, lxor, band, bor, bxor, which have no gradient.

        Adjoint: all_reduce of the gradients by sum (or mean), times the derivative of prod, min or max. Ties share the
        gradient equally. Transfers about 2n per rank.
        """
        return _all_reduce(x, op, self._id)

    def reduce(self, x: Tensor, op: str = "sum", root: int = 0) -> Tensor:
        """Returns the reduction of all ranks' tensors on ``root``, and zeros on the other ranks.

        Args:
            x, op: as for all_reduce.

        Adjoint: broadcast of the root's gradient. Transfers about n per rank; p n to the root for prod, min and max.
        """
        return _reduce(x, op, root, self._id)

    def broadcast(self, x: Tensor, root: int = 0) -> Tensor:
        """Returns the tensor of ``root`` on every rank.

        Args:
            x: the other ranks pass a tensor of the same shape and dtype; its values are ignored.

        Adjoint: the sum of all ranks' gradients on the root, zeros on the other ranks. Transfers n per rank.
        """
        return _broadcast(x, root, self._id)

    def all_gather(self, x: Tensor, dim: int = 0) -> Tensor:
        """Returns all ranks' tensors, concatenated along ``dim`` in rank order, on every rank.

        Args:
            x: the size along ``dim`` may differ between ranks.

        Adjoint: reduce_scatter of the gradients by sum. Each rank receives p n.
        """
        return _all_gather(x, dim, self._id)

    def gather(self, x: Tensor, dim: int = 0, root: int = 0) -> Tensor:
        """Like all_gather, but only ``root`` gets the result; on the other ranks it has size 0 along ``dim``.

        Adjoint: scatter of the root's gradient. The root receives p n.
        """
        return _gather(x, dim, root, self._id)

    def scatter(
        self, x: Tensor | None = None, dim: int = 0, root: int = 0, sizes: Sequence[int] | None = None
    ) -> Tensor:
        """Returns this rank's piece of the root's tensor, which is split along ``dim``.

        Args:
            x: needed on ``root`` only, which determines shape and dtype.
            sizes: one size per rank; by default the split is balanced.

        Adjoint: gather of the gradients on the root. The root sends n.
        """
        return _scatter(torch.empty(0) if x is None else x, dim, root, sizes, self._id)

    def all_to_all(
        self, x: Tensor, split_dim: int = 0, concat_dim: int = 0, split_sizes: Sequence[int] | None = None
    ) -> Tensor:
        """Splits ``x`` along ``split_dim``, sends piece i to rank i, and concatenates the received pieces.

        Args:
            concat_dim: the dimension along which the received pieces are concatenated.
            split_sizes: one size per rank, which may differ between ranks; by default the split is balanced.

        Adjoint: all_to_all with the dimensions exchanged. Transfers n per rank.
        """
        return _all_to_all(x, split_dim, concat_dim, split_sizes, self._id)

    def reduce_scatter(self, x: Tensor, op: str = "sum", dim: int = 0, sizes: Sequence[int] | None = None) -> Tensor:
        """Returns this rank's piece of the reduction of all ranks' tensors, which is split along ``dim``.

        Args:
            x, op: as for all_reduce.
            sizes: one size per rank; by default the split is balanced.

        Adjoint: all_gather of the gradients (divided by p for mean). Transfers n per rank.
        """
        return _reduce_scatter(x, op, dim, sizes, self._id)

    def scan(self, x: Tensor, op: str = "sum", reverse: bool = False) -> Tensor:
        """Returns the reduction of the tensors of ranks 0 to this one, or of this one to the last if ``reverse``.

        Adjoint: the scan in the other direction. Transfers about log2(p) n per rank; p n for prod, min and max.
        """
        return _scan(x, op, False, reverse, self._id)

    def exscan(self, x: Tensor, op: str = "sum", reverse: bool = False) -> Tensor:
        """Like scan, but excludes this rank's own tensor. The first rank gets the identity of ``op`` (0 for sum)."""
        return _scan(x, op, True, reverse, self._id)

    def barrier(self) -> None:
        """Blocks until all ranks have called it."""
        _barrier(self._id)
