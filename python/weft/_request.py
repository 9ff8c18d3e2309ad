"""Request: a non-blocking operation under way."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

import torch

from .errors import reraise

Result = TypeVar("Result")

_wait = torch.ops.weft.wait.default


class Status(NamedTuple):
    """Where a received tensor came from."""

    source: int
    tag: int


class Request(Generic[Result]):
    """Made by isend, irecv, iall_reduce, iall_gather and ibroadcast; ``wait`` once for the result."""

    __slots__ = ("_pending",)

    def __init__(self, pending: Any) -> None:
        self._pending = pending

    def wait(self) -> Result:
        """Blocks until the operation is done and returns its result (None for isend). A second wait raises."""
        try:
            return _wait(self._pending)
        except RuntimeError as error:
            reraise(error)

    def test(self) -> bool:
        """Whether ``wait`` would return at once; lets MPI make progress."""
        try:
            return self._pending.ready()
        except RuntimeError as error:
            reraise(error)

    @property
    def status(self) -> Status:
        """Source and tag of what irecv received; -1 until it is here, and for other operations."""
        return Status(self._pending.source(), self._pending.tag())
