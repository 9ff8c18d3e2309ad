"""The point-to-point and non-blocking operations of a communicator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, overload

import torch
from torch import Tensor

from ._request import Request, Status

ANY_SOURCE: Final = -1
ANY_TAG: Final = -1

_send = torch.ops.weft.send.default
_recv = torch.ops.weft.recv.default
_sendrecv = torch.ops.weft.sendrecv.default
_isend = torch.ops.weft.isend.default
_irecv = torch.ops.weft.irecv.default
_iall_reduce = torch.ops.weft.iall_reduce.default
_iall_gather = torch.ops.weft.iall_gather.default
_ibroadcast = torch.ops.weft.ibroadcast.default
_neighbour_exchange = torch.ops.weft.neighbour_exchange.default


class Messages:
    """Point-to-point and non-blocking operations.

    They raise PeerLost if another rank fails, TimeoutError if a wait exceeds ``Options.timeout``, and MpiError if MPI
    reports an error. Collective ones also raise Disagreement, as the blocking operations do.
    """

    __slots__ = ()

    _id: int

    def send(self, x: Tensor, dest: int, tag: int = 0) -> None:
        """Sends ``x`` to rank ``dest``; returns when ``x`` may be modified. Adjoint: receives the gradient."""
        _send(x, dest, tag, self._id)

    @overload
    def recv(
        self,
        like: Tensor | None = None,
        source: int | None = None,
        tag: int | None = 0,
        *,
        status: Literal[False] = ...,
    ) -> Tensor: ...
    @overload
    def recv(
        self, like: Tensor | None = None, source: int | None = None, tag: int | None = 0, *, status: Literal[True]
    ) -> tuple[Tensor, Status]: ...
    def recv(
        self, like: Tensor | None = None, source: int | None = None, tag: int | None = 0, *, status: bool = False
    ) -> Tensor | tuple[Tensor, Status]:
        """Receives a tensor and returns it; messages carry their shape and dtype.

        Args:
            like: if given, its shape and dtype must match the message, and the result is on its device.
            source, tag: None accepts any.
            status: also return the source and the tag.

        Adjoint: sends the gradient back to the source. Raises RuntimeError if ``like`` does not match.
        """
        x, source, tag = _recv(like, -1 if source is None else source, -1 if tag is None else tag, self._id)
        return (x, Status(source, tag)) if status else x

    def sendrecv(self, x: Tensor, dest: int, source: int, tag: int = 0) -> Tensor:
        """Sends to ``dest`` and receives from ``source`` at the same time. Adjoint: the reverse exchange."""
        return _sendrecv(x, dest, source, tag, self._id)

    def isend(self, x: Tensor, dest: int, tag: int = 0) -> Request[None]:
        """Starts a send. Do not modify ``x`` before ``wait`` returns."""
        return Request(_isend(x, dest, tag, self._id))

    def irecv(self, like: Tensor | None = None, source: int | None = None, tag: int | None = 0) -> Request[Tensor]:
        """Starts a receive with the arguments of recv; ``wait`` returns the tensor."""
        return Request(_irecv(like, -1 if source is None else source, -1 if tag is None else tag, self._id))

    def iall_reduce(self, x: Tensor, op: str = "sum") -> Request[Tensor]:
        """Collective. Starts an all_reduce, which proceeds while the caller computes. Gradients: sum and mean only.

        Ranks may call ``wait`` in different orders. In backward, adjoints follow the order of the starts. The adjoint
        starts in that order as soon as its gradient is known, and completes at the position of this call, so it
        overlaps with computation too.
        """
        return Request(_iall_reduce(x, op, self._id))

    def iall_gather(self, x: Tensor, dim: int = 0) -> Request[Tensor]:
        """Collective. Starts an all_gather. Adjoint: a blocking reduce_scatter."""
        return Request(_iall_gather(x, dim, self._id))

    def ibroadcast(self, x: Tensor, root: int = 0) -> Request[Tensor]:
        """Collective. Starts a broadcast. Adjoint: a blocking reduce."""
        return Request(_ibroadcast(x, root, self._id))

    def neighbour_exchange(self, outgoing: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Collective. Exchanges tensors with the neighbours on a communicator made by cart, and returns theirs.

        Args:
            outgoing: two entries per dimension of the grid, for the previous and the next neighbour; None beyond an
                edge. Shapes may differ. The result has the same layout.

        The operation is its own adjoint.
        """
        return _neighbour_exchange(outgoing, self._id)
