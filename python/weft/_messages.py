"""The point-to-point and non-blocking operations of a communicator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, overload

import torch
from torch import Tensor

from ._request import Request, Status
from .errors import reraise

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
    """Mixed into Communicator, which sets the number that names it to the library."""

    __slots__ = ()

    _id: int

    def send(self, x: Tensor, dest: int, tag: int = 0) -> None:
        """Sends ``x``; returns when it may be changed again. Adjoint: receives the gradient from ``dest``."""
        try:
            _send(x, dest, tag, self._id)
        except RuntimeError as error:
            reraise(error)

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
        """Receives a tensor; messages say what they carry, so ``like`` is not needed.

        Where ``like`` is given, another shape or type is an error, and its device is where the result goes. None as
        ``source`` or ``tag`` means any; ``status=True`` also tells which. Adjoint: sends the gradient to the rank that
        the tensor came from.
        """
        try:
            x, source, tag = _recv(like, -1 if source is None else source, -1 if tag is None else tag, self._id)
        except RuntimeError as error:
            reraise(error)
        return (x, Status(source, tag)) if status else x

    def sendrecv(self, x: Tensor, dest: int, source: int, tag: int = 0) -> Tensor:
        """Sends to ``dest`` and receives from ``source`` at the same time. Adjoint: the other way round."""
        try:
            return _sendrecv(x, dest, source, tag, self._id)
        except RuntimeError as error:
            reraise(error)

    def isend(self, x: Tensor, dest: int, tag: int = 0) -> Request[None]:
        """Starts a send; ``x`` must stay unchanged until the request was waited for."""
        try:
            return Request(_isend(x, dest, tag, self._id))
        except RuntimeError as error:
            reraise(error)

    def irecv(self, like: Tensor | None = None, source: int | None = None, tag: int | None = 0) -> Request[Tensor]:
        """Starts a receive as recv does; ``wait`` returns the tensor."""
        try:
            return Request(_irecv(like, -1 if source is None else source, -1 if tag is None else tag, self._id))
        except RuntimeError as error:
            reraise(error)

    def iall_reduce(self, x: Tensor, op: str = "sum") -> Request[Tensor]:
        """Starts an all_reduce (gradients: sum and mean only); the payload moves while the caller computes.

        In backward the adjoint starts where ``wait`` stood and ends where the operation started, so it overlaps too.
        """
        try:
            return Request(_iall_reduce(x, op, self._id))
        except RuntimeError as error:
            reraise(error)

    def iall_gather(self, x: Tensor, dim: int = 0) -> Request[Tensor]:
        """Starts an all_gather; its adjoint is a blocking reduce_scatter."""
        try:
            return Request(_iall_gather(x, dim, self._id))
        except RuntimeError as error:
            reraise(error)

    def ibroadcast(self, x: Tensor, root: int = 0) -> Request[Tensor]:
        """Starts a broadcast; its adjoint is a blocking reduce."""
        try:
            return Request(_ibroadcast(x, root, self._id))
        except RuntimeError as error:
            reraise(error)

    def neighbour_exchange(self, outgoing: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Tensors to and from the neighbours on a communicator made by cart.

        Two entries per dimension of the grid, for the neighbour before and the one after; None beyond an edge, in and
        out. Shapes may differ. Its own adjoint.
        """
        try:
            return _neighbour_exchange(outgoing, self._id)
        except RuntimeError as error:
            reraise(error)
