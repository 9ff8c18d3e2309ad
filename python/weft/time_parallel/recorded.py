"""Results of solvers as differentiable operations whose adjoint is a Python function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _bindings
from ..communicator import Communicator

Adjoint = Callable[[Sequence[Tensor]], Sequence[Tensor | None]]
"""Maps the gradients of the outputs to those of the inputs."""


def record(
    name: str, comm: Communicator | None, inputs: Sequence[Tensor], outputs: Sequence[Tensor], adjoint: Adjoint
) -> tuple[Tensor, ...]:
    """Returns ``outputs`` as functions of ``inputs``. Call it on all ranks of ``comm``, which then all run ``adjoint``.

    Args:
        name: "newton" or "mgrit".
        outputs: tensors without a graph.
    """
    once = _first_derivatives_only(name, adjoint)
    if comm is None or comm.size == 1:
        return _Local.apply(once, len(inputs), *inputs, *outputs)
    getattr(_bindings.load(), f"record_{name}")(comm._id, list(inputs), list(outputs), once)
    return tuple(outputs)


def _first_derivatives_only(name: str, adjoint: Adjoint) -> Adjoint:
    def checked(gradients: Sequence[Tensor]) -> Sequence[Tensor | None]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                f'weft: solver="{name}" does not support second derivatives (create_graph=True); use solver="serial"'
            )
        return adjoint(gradients)

    return checked


class _Local(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, adjoint: Adjoint, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.adjoint = adjoint
        ctx.outputs = len(tensors) - count
        return tuple(output.view_as(output) for output in tensors[count:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return (None, None, *ctx.adjoint(gradients), *([None] * ctx.outputs))
