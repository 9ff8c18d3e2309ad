"""Levels of MG/OPT from models of different depth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from weft.layer_parallel.network import LayerParallel

from .line_search import Backtracking, LineSearch
from .mgopt import Level
from .transfer import Stencil, combine_layers, interpolation, restriction, transposed

Objective = Callable[[Any, Any], Tensor]
Stencils = Callable[[LayerParallel, LayerParallel], dict[int, Stencil]]


def depth_levels(
    models: Sequence[nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    objective: Objective,
    *,
    kind: str = "injection",
    line_search: LineSearch | None = None,
) -> list[Level]:
    """Returns the levels for ``MGOPT``, the finest first.

    Gradients are restricted with the transposed interpolation, so that a coarse descent direction is one of the fine
    model, too.

    Args:
        models: modules of decreasing depth, each a LayerParallel or a module that contains some. The depths of
            successive models have an integer ratio. Their other parameters, used on rank 0, have the same shapes.
        optimizers: one per model.
        objective: ``objective(model, batch)`` returns the loss as ``LayerParallel.compose`` does. Collective.
        kind: "injection" or "linear", the interpolation of the corrections.
        line_search: the line search of all levels; ``Backtracking()`` by default.

    Raises ValueError if the models do not form a hierarchy.
    """
    if len(optimizers) != len(models):
        raise ValueError(f"weft: MG/OPT: expected an optimizer for each of {len(models)} models, got {len(optimizers)}")
    parts = [_Model(model, number) for number, model in enumerate(models)]
    levels = [_level(part, optimizer, objective) for part, optimizer in zip(parts, optimizers, strict=True)]
    for level, fine, coarse in zip(levels, parts, parts[1:], strict=False):
        fine.require_multiple_of(coarse)
        _connect(level, fine, coarse, kind)
        level.line_search = line_search or Backtracking()
    return levels


class _Model:
    """A model with its LayerParallel networks and the other parameters that this rank trains."""

    def __init__(self, model: nn.Module, number: int) -> None:
        self.model, self.number = model, number
        self.networks = [part for part in model.modules() if isinstance(part, LayerParallel)]
        if not self.networks or any(network.replicated for network in self.networks):
            raise ValueError(
                f"weft: MG/OPT: expected model {number} to contain LayerParallel networks without replicated=True"
            )
        inner = {id(parameter) for network in self.networks for parameter in network.parameters()}
        first = self.networks[0].comm.rank == 0
        self.others = [p for p in model.parameters() if id(p) not in inner] if first else []

    def parameters(self) -> list[Tensor]:
        return [*self.others, *(p for network in self.networks for p in network.parameters())]

    def require_multiple_of(self, coarse: _Model) -> None:
        depths = [network.total_layers for network in self.networks]
        smaller = [network.total_layers for network in coarse.networks]
        factors = {fine / other for fine, other in zip(depths, smaller, strict=False)}
        if len(depths) != len(smaller) or len(factors) != 1 or factors.pop() not in range(2, max(depths) + 1):
            raise ValueError(
                f"weft: MG/OPT: models {self.number} and {coarse.number} have networks of {depths} and {smaller} "
                "layers; the depths must have one integer ratio of at least 2"
            )
        if [p.shape for p in self.others] != [p.shape for p in coarse.others]:
            raise ValueError(
                f"weft: MG/OPT: the parameters outside the networks differ between models {self.number} and "
                f"{coarse.number}"
            )


def _level(part: _Model, optimizer: torch.optim.Optimizer, objective: Objective) -> Level:
    def evaluate(batch: Any, gradients: bool, term: Tensor | None) -> Tensor:
        loss = objective(part.model, batch)
        return loss if term is None else loss - term

    return Level(part.parameters, evaluate, lambda: optimizer)


def _connect(level: Level, fine: _Model, coarse: _Model, kind: str) -> None:
    factor = fine.networks[0].total_layers // coarse.networks[0].total_layers

    def interpolated(target: LayerParallel, source: LayerParallel) -> dict[int, Stencil]:
        return interpolation(target.own, source.total_layers, factor, kind)

    def injected(target: LayerParallel, source: LayerParallel) -> dict[int, Stencil]:
        return restriction(target.own, source.total_layers, factor, "injection")

    def summed(target: LayerParallel, source: LayerParallel) -> dict[int, Stencil]:
        whole = transposed(interpolation(range(source.total_layers), target.total_layers, factor, kind))
        return {number: whole[number] for number in target.own}

    level.restrict_parameters = lambda: _transfer(fine, coarse, injected, torch.Tensor.detach)
    level.restrict_gradients = lambda: _transfer(fine, coarse, summed, _gradient)
    level.interpolate = lambda: _transfer(coarse, fine, interpolated, torch.Tensor.detach)


def _transfer(source: _Model, target: _Model, stencils: Stencils, value: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Collective. Returns the values of the target's parameters that follow from those of the source."""
    result = [value(parameter).clone() for parameter in source.others]
    for given, wanted in zip(source.networks, target.networks, strict=True):
        own = {int(number): _values(layer.parameters(), value) for number, layer in given.layers.items()}
        made = combine_layers(given.comm, own, stencils(wanted, given))
        result += [tensor for number in wanted.own for tensor in made[number]]
    return result


def _values(parameters: Iterable[Tensor], value: Callable[[Tensor], Tensor]) -> list[Tensor]:
    return [value(parameter) for parameter in parameters]


def _gradient(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.detach()
