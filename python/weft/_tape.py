"""Backward passes that perform all recorded communication on every rank, and the tape that records it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from .errors import reraise

__all__ = ["anchor", "backward", "grad", "reset_tape", "tape", "tape_length"]

_backward = torch.ops.weft.backward.default
_grad = torch.ops.weft.grad.default
_anchor = torch.ops.weft.anchor.default


def backward(
    loss: Tensor | None = None, gradient: Tensor | None = None, retain_graph: bool = False, create_graph: bool = False
) -> None:
    """``loss.backward()`` that also performs all recorded communication the loss does not depend on.

    Every rank that recorded communication calls it, with None where it has no loss. Gradients are those of the sum of
    all ranks' losses. An exception on one rank (in a hook, say) reaches the others as PeerLost.
    """
    try:
        _backward(loss, gradient, retain_graph, create_graph)
    except RuntimeError as error:
        reraise(error)


def grad(
    loss: Tensor | None,
    inputs: Tensor | Sequence[Tensor],
    gradient: Tensor | None = None,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> tuple[Tensor, ...]:
    """As backward, but returns the gradients of ``inputs`` (zeros where there is none) instead of accumulating them."""
    wanted = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    try:
        return tuple(_grad(loss, wanted, gradient, retain_graph, create_graph))
    except RuntimeError as error:
        reraise(error)


def anchor(x: Tensor) -> Tensor:
    """``x``, with all communication recorded so far hung on it: plain ``backward`` from it then performs all of it.

    For those who call ``backward`` out of reach, as optimizer closures and trainers do. Starts a new tape region.
    """
    try:
        return _anchor(x)
    except RuntimeError as error:
        reraise(error)


@contextmanager
def tape(on: bool = True) -> Iterator[None]:
    """A tape of its own for what is communicated inside, for independent losses; ``tape(False)``: none.

    Without a tape only the data that flows between operations orders them in backward, as in mpi4torch: results that
    are not used, and sends, then leave communication out, and other ranks waiting.
    """
    torch.ops.weft.enter_tape(on)
    try:
        yield
    finally:
        torch.ops.weft.leave_tape()


def reset_tape() -> None:
    """Forgets what was recorded: for communication whose backward pass nobody will run."""
    torch.ops.weft.reset_tape()


def tape_length() -> int:
    """Operations recorded since the last backward pass."""
    return torch.ops.weft.tape_length()
