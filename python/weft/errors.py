"""Exceptions of failed communication.

The library throws one C++ class for each of them; python/bindings/errors.cpp translates by type. ``Tensor.backward``
and other functions that torch implements without pybind11 raise RuntimeError with the same text instead;
``weft.backward`` raises the classes below.
"""

from __future__ import annotations

import builtins

__all__ = ["Disagreement", "LayerError", "MpiError", "NotConverged", "PeerLost", "TimeoutError"]


class MpiError(RuntimeError):
    """An MPI function failed. The text names the function, the cause, the rank and the communicator."""


class TimeoutError(RuntimeError, builtins.TimeoutError):
    """A wait exceeded ``Options.timeout``. The text names the waiting rank, the operation and the call site."""


class PeerLost(RuntimeError):
    """Another rank failed while this rank was communicating with it; ``rank`` is its number, or -1 if unknown."""

    def __init__(self, message: str, rank: int = -1) -> None:
        super().__init__(message)
        self.rank = rank

    def __reduce__(self) -> tuple[type[PeerLost], tuple[str, int]]:
        return PeerLost, (str(self), self.rank)


class Disagreement(RuntimeError):
    """The ranks called different operations or passed incompatible arguments. All ranks get the same text."""


class NotConverged(RuntimeError):
    """An iterative solver of a recurrent network did not converge. All ranks get the same text."""


class LayerError(RuntimeError):
    """A layer of a LayerParallel network or a cell of a recurrent network failed on some rank. All ranks get the same
    text, which names the layer or cell and the rank. On that rank, ``__cause__`` is the exception that it raised."""
