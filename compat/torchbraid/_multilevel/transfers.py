"""Transfer of parameters, gradients and optimizer state between models of different depth.

A model has one LayerParallel network among its children. Its other layers have the same parameters at every depth.
Layers may move to other ranks, so all functions are collective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from weft.multilevel import combine_layers, interpolation, restriction

from .._layer_parallel import LayerParallel
from .tensors import values_of

Stencils = Callable[[Iterable[int], int, int, str], dict[int, Any]]


def _transfer(
    source: nn.Module, target: nn.Module, stencils: Stencils, factor: int, kind: str, grad: bool
) -> list[Tensor]:
    """Returns the parameters of ``target`` that follow from those of ``source``."""
    result: list[Tensor] = []
    for child, other in zip(source.children(), target.children(), strict=True):
        if not isinstance(child, LayerParallel):
            result += values_of(child.parameters(), grad, True)
            continue
        own = {number: values_of(layer.parameters(), grad, False) for number, layer in child.numbered_layers()}
        wanted = stencils([number for number, _ in other.numbered_layers()], child.global_steps, factor, kind)
        made = combine_layers(child.group, own, wanted)
        result += [tensor for number in sorted(made) for tensor in made[number]]
    return result


def tb_get_injection_interp_params(
    model_fine: nn.Module, model_coarse: nn.Module, cf: int = 2, deep_copy: bool = False, grad: bool = False
) -> list[Tensor]:
    """Returns the parameters of the fine model: each layer of the coarse model ``cf`` times. Always copies."""
    return _transfer(model_coarse, model_fine, interpolation, cf, "injection", grad)


def tb_get_linear_interp_params(
    model_fine: nn.Module, model_coarse: nn.Module, cf: int = 2, deep_copy: bool = True, grad: bool = False
) -> list[Tensor]:
    """Returns the parameters of the fine model, interpolated linearly between the layers of the coarse model."""
    return _transfer(model_coarse, model_fine, interpolation, cf, "linear", grad)


def tb_get_injection_restrict_params(
    model_fine: nn.Module, model_coarse: nn.Module, cf: int = 2, deep_copy: bool = False, grad: bool = False
) -> list[Tensor]:
    """Returns the parameters of the coarse model: every ``cf``-th layer of the fine model. Always copies."""
    return _transfer(model_fine, model_coarse, restriction, cf, "injection", grad)


def tb_get_linear_restrict_params(
    model_fine: nn.Module, model_coarse: nn.Module, cf: int = 2, deep_copy: bool = True, grad: bool = False
) -> list[Tensor]:
    """Returns the parameters of the coarse model: averages of neighbouring layers of the fine model."""
    return _transfer(model_fine, model_coarse, restriction, cf, "linear", grad)


tb_parallel_get_injection_interp_params = tb_get_injection_interp_params
tb_parallel_get_injection_restrict_params = tb_get_injection_restrict_params


def tb_injection_restrict_network_state(model_fine: nn.Module, model_coarse: nn.Module, cf: int = 2) -> None:
    """Does nothing: every solve starts from its own initial guess."""


def tb_injection_interp_network_state(model_fine: nn.Module, model_coarse: nn.Module, cf: int = 2) -> None:
    """Does nothing: every solve starts from its own initial guess."""


@torch.no_grad()
def tb_injection_restrict_adam_state(
    model_fine: nn.Module,
    model_coarse: nn.Module,
    opt_fine: torch.optim.Optimizer,
    opt_coarse: torch.optim.Optimizer,
    cf: int = 2,
) -> None:
    """Copies Adam's state of every ``cf``-th layer, and of the other layers, to the optimizer of the coarse model."""
    for fine, coarse in zip(model_fine.children(), model_coarse.children(), strict=True):
        if not isinstance(fine, LayerParallel):
            for source, target in zip(fine.parameters(), coarse.parameters(), strict=True):
                opt_coarse.state[target] = {key: value.clone() for key, value in opt_fine.state[source].items()}
            continue
        for key in ("exp_avg", "exp_avg_sq", "step"):
            own = {n: [opt_fine.state[p][key] for p in layer.parameters()] for n, layer in fine.numbered_layers()}
            wanted = restriction([n for n, _ in coarse.numbered_layers()], fine.global_steps, cf, "injection")
            made = combine_layers(fine.group, own, wanted)
            for number, layer in coarse.numbered_layers():
                for parameter, value in zip(layer.parameters(), made[number], strict=True):
                    opt_coarse.state[parameter][key] = value
