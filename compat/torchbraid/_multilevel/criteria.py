"""Objectives with the additional term of MG/OPT."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn

from .._layer_parallel import LayerParallel


def _minus(loss: Tensor, term: Tensor | None) -> Tensor:
    return loss if term is None else loss - term


def tb_mgopt_cross_ent(output: Tensor, target: Tensor, mgopt_term: Tensor | None = None, model: Any = None) -> Tensor:
    """Returns the cross entropy."""
    return _minus(nn.functional.cross_entropy(output, target), mgopt_term)


def tb_mgopt_regression(
    output: Tensor,
    target: Tensor,
    network_parameters: Any = None,
    v: Any = None,
    model: Any = None,
    mgopt_term: Tensor | None = None,
) -> Tensor:
    """Returns the mean squared error."""
    loss = nn.functional.mse_loss(output, target)
    if network_parameters is not None and v is not None:
        loss = loss - sum(torch.sum(a * b) for a, b in zip(v, network_parameters, strict=True))
    return _minus(loss, mgopt_term)


def tb_mgopt_cross_ent_plus_continuity(
    output: Tensor,
    target: Tensor,
    mgopt_term: Tensor | None = None,
    model: Any = None,
    continuity_constant: float = 0.0001,
) -> Tensor:
    """Returns the cross entropy plus a penalty on the differences between adjacent layers of this rank."""
    loss = nn.functional.cross_entropy(output, target)
    for child in model.children():
        if isinstance(child, LayerParallel):
            layers = list(child.layer_models)
            for left, right in itertools.pairwise(layers):
                for a, b in zip(left.parameters(), right.parameters(), strict=True):
                    loss = loss + continuity_constant / (4.0 * child.dt) * (a - b).square().sum()
    return _minus(loss, mgopt_term)
