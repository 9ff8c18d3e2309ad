"""Lists of tensors as vectors, and the parameters of a model as such a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

Tensors = Sequence[Tensor]


def tensor_list_dot(v: Tensors, w: Tensors, comm: Any) -> Tensor:
    """Collective. Returns the dot product over all ranks; its gradient is that of this rank's part."""
    own = sum((torch.sum(a * b) for a, b in zip(v, w, strict=True)), torch.zeros(()))
    if comm.Get_size() == 1:
        return own
    return own + (comm.allreduce(own.item()) - own.detach())


def tensor_list_AXPY(alpha: float, v: Tensors, beta: float, w: Tensors, inplace: bool = False) -> list[Tensor] | None:
    """Returns ``alpha * v + beta * w``, or stores it in ``w``."""
    if not inplace:
        return [alpha * a + beta * b for a, b in zip(v, w, strict=True)]
    with torch.no_grad():
        for a, b in zip(v, w, strict=True):
            b.mul_(beta).add_(a, alpha=alpha)
    return None


def tensor_list_deep_copy(w: Tensors) -> list[Tensor]:
    return [tensor.clone() for tensor in w]


def values_of(parameters: Any, grad: bool, deep_copy: bool) -> list[Tensor]:
    """Returns the values or the gradients of parameters; a missing gradient is zero."""
    values = [(torch.zeros_like(p) if p.grad is None else p.grad) if grad else p for p in parameters]
    return [value.detach().clone() for value in values] if deep_copy else values


def get_params(model: nn.Module, deep_copy: bool = False, grad: bool = False) -> list[Tensor]:
    """Returns this rank's parameters, or their gradients."""
    return values_of(model.parameters(), grad, deep_copy)


@torch.no_grad()
def write_params_inplace(model: nn.Module, new_params: Tensors, grad: bool = False) -> None:
    """Replaces the values of this rank's parameters, or their gradients."""
    for parameter, value in zip(model.parameters(), new_params, strict=True):
        if not grad:
            parameter.copy_(value)
        elif parameter.grad is None:
            parameter.grad = value.detach().clone()
        else:
            parameter.grad.copy_(value)


def get_adam_momentum(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Returns Adam's first moments of the parameters that have gradients."""
    return [optimizer.state[p]["exp_avg"].clone() for p in model.parameters() if p.grad is not None]
