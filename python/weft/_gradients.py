"""Operations on the gradients of all ranks together."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import reduce

import torch
from torch import Tensor

from .communicator import Communicator, world

__all__ = ["clip_grad_norm_"]


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    *,
    comm: Communicator | None = None,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Collective. Clips gradients like torch.nn.utils.clip_grad_norm_, for parameters that are distributed over ranks.

    Args:
        parameters: those of this rank. A parameter that LayerParallel shares between ranks counts once.
        max_norm, norm_type: as in torch; the norm is that of all ranks' gradients together.
        comm: the ranks that hold the parameters; by default all.
        error_if_nonfinite: raise RuntimeError if the norm is not finite.

    Returns the norm before clipping, in the type of this rank's gradients.
    """
    comm = world() if comm is None else comm
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    held = [parameter for parameter in listed if parameter.grad is not None]
    total = _total_norm(held, float(norm_type), comm)
    if error_if_nonfinite and not math.isfinite(total):
        raise RuntimeError(f"weft: clip_grad_norm_: the norm of all ranks' gradients is {total}")
    scale = max_norm / (total + 1e-6)
    if scale < 1 or math.isnan(scale):
        for parameter in held:
            assert parameter.grad is not None
            parameter.grad.mul_(scale)
    types = [parameter.grad.dtype.to_real() for parameter in held if parameter.grad is not None]
    return torch.tensor(total, dtype=reduce(torch.promote_types, types) if types else None)


def _total_norm(parameters: list[Tensor], norm_type: float, comm: Communicator) -> float:
    with torch.no_grad():
        norms = [torch.linalg.vector_norm(p.grad, norm_type).double().item() for p in parameters]
        if math.isinf(norm_type):
            # MPI's maximum may drop a NaN; a sum preserves it.
            largest = torch.tensor([max(norms, default=0.0), sum(norms)], dtype=torch.float64)
            result = comm.all_reduce(largest[:1], "max").item()
            return float("nan") if math.isnan(comm.all_reduce(largest[1:], "sum").item()) else result
        copies = [getattr(p, "_weft_copies", 1) for p in parameters]
        power = sum(norm**norm_type / n for norm, n in zip(norms, copies, strict=True))
        total = comm.all_reduce(torch.tensor([power], dtype=torch.float64), "sum").item()
        return float(total ** (1 / norm_type))
