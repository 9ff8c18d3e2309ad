"""Backward passes that perform all recorded communication on every rank, and the tape that records it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor

__all__ = ["anchor", "backward", "grad", "reset_tape", "tape", "tape_length"]

_backward = torch.ops.weft.backward.default
_grad = torch.ops.weft.grad.default
_anchor = torch.ops.weft.anchor.default


def backward(
    loss: Tensor | None = None, gradient: Tensor | None = None, retain_graph: bool = False, create_graph: bool = False
) -> None:
    """Like ``loss.backward()``, but also performs recorded communication that the loss does not depend on.

    Collective over the ranks that recorded communication. Gradients are those of the sum of all ranks' losses.

    Args:
        loss: None on a rank that has no loss.
        gradient, retain_graph, create_graph: as for ``Tensor.backward``.

    Raises PeerLost if another rank fails, for example in a hook.
    """
    _backward(loss, gradient, retain_graph, create_graph)


def grad(
    loss: Tensor | None,
    inputs: Tensor | Sequence[Tensor],
    gradient: Tensor | None = None,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> tuple[Tensor, ...]:
    """Like ``backward``, but returns the gradients of ``inputs`` instead of accumulating them; zeros if undefined."""
    wanted = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    return tuple(_grad(loss, wanted, gradient, retain_graph, create_graph))


def anchor(x: Tensor) -> Tensor:
    """Returns ``x`` with all communication recorded so far in its graph, and starts a new tape region.

    A plain ``backward`` from the result performs that communication. Use it if other code, such as an optimizer closure
    or a trainer, calls ``backward``.
    """
    return _anchor(x)


@contextmanager
def tape(on: bool = True) -> Iterator[None]:
    """Records communication inside the block on a separate tape, for independent losses; ``tape(False)`` records none.

    Without a tape, backward orders operations only by the data that flows between them, as mpi4torch does. It then
    omits sends and operations with unused results, and other ranks may wait for them.
    """
    torch.ops.weft.enter_tape(on)
    try:
        yield
    finally:
        torch.ops.weft.leave_tape()


def reset_tape() -> None:
    """Discards all recorded communication. Use it if no backward pass will follow."""
    torch.ops.weft.reset_tape()


def tape_length() -> int:
    """Returns the number of operations recorded since the last backward pass."""
    return torch.ops.weft.tape_length()


def _reporting_failures(run_backward: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the function that starts torch's backward passes. If one fails, the ranks that wait raise PeerLost."""

    @wraps(run_backward)
    def wrapped(outputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return run_backward(outputs, *args, **kwargs)
        except BaseException as error:
            roots = [output for output in outputs if isinstance(output, Tensor)]
            torch.ops.weft.abandon_backward(roots, f"{type(error).__name__}: {error}")
            raise

    return wrapped


def install() -> None:
    """Makes ``Tensor.backward`` and torch.autograd report failures to the other ranks, as ``weft.backward`` does."""
    wrapped = _reporting_failures(torch.autograd.graph._engine_run_backward)
    for module in (torch.autograd.graph, torch.autograd):
        setattr(module, wrapped.__name__, wrapped)
