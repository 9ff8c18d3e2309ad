"""Request: a non-blocking operation in progress."""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar

import torch

Result = TypeVar("Result")

_wait = torch.ops.weft.wait.default


class Status(NamedTuple):
    """Source and tag of a received tensor."""

    source: int
    tag: int


class Pending(Protocol):
    """torch.classes.weft.PendingOperation, the library's side of a request."""

    def ready(self) -> bool: ...
    def source(self) -> int: ...
    def tag(self) -> int: ...


class Request(Generic[Result]):
    """Returned by isend, irecv, iall_reduce, iall_gather and ibroadcast; call ``wait`` once to get the result."""

    __slots__ = ("_pending",)

    def __init__(self, pending: Pending) -> None:
        self._pending = pending

    def wait(self) -> Result:
        """Blocks until the operation completes, and returns its result (None for isend).

        Raises RuntimeError on a second call, and TimeoutError if the wait exceeds ``Options.timeout``.
        """
        return _wait(self._pending)

    def test(self) -> bool:
        """Lets MPI make progress and returns whether ``wait`` would return immediately."""
        return self._pending.ready()

    @property
    def status(self) -> Status:
        """Source and tag of the tensor that irecv received; -1 before completion and for other operations."""
        return Status(self._pending.source(), self._pending.tag())
