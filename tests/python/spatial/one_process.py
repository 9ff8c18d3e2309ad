"""Compares a split network with the same network in one process: its outputs and all gradients."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import weft
from weft import spatial
from weft.spatial import DistTensor, RankGrid


class Differences(NamedTuple):
    """The largest differences of the outputs and the gradients, relative to the largest output and gradient."""

    outputs: float
    gradients: float


def differences(net: nn.Module, grid: RankGrid, shape: Sequence[int]) -> tuple[Differences, spatial.SplitNetwork]:
    """Runs the network forward and backward on tiles and whole, in float64."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            if not parameter.any():  # otherwise a head of zeros hides the rest of the network
                parameter.copy_(0.02 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    split = spatial.parallelize(copy.deepcopy(net), grid, shape)
    x = torch.randn(*shape, dtype=torch.float64, generator=generator)
    whole, tiled = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected, actual = _run(net, whole), _run(split, tiled)
    assert tiled.grad is not None
    tiled.grad = grid.comm.all_reduce(tiled.grad)
    pairs = [(tiled.grad, whole.grad)]
    parameters = dict(split.named_parameters())
    for name, parameter in net.named_parameters():
        layer = split.get_submodule(name.rpartition(".")[0])
        is_cut = isinstance(layer, spatial.TileLinear) and name.endswith(".weight")
        mine = parameters[name].grad
        pairs.append((mine, layer.cut(parameter.grad) if is_cut else parameter.grad))
    outputs = _largest([(a, e) for a, e in zip(actual, expected, strict=True)])
    return Differences(outputs, _largest([(a, e) for a, e in pairs if e is not None])), split


def _run(net: nn.Module, x: Tensor) -> list[Tensor]:
    """Returns the outputs, after backward of a loss with a different weight for each of their elements."""
    result: Any = net(x)
    outputs = list(result.values()) if isinstance(result, Mapping) else [result]
    loss: Any = 0.0
    for number, output in enumerate(outputs):
        generator = torch.Generator().manual_seed(number)
        weights = torch.randn(output.shape, generator=generator, dtype=torch.float64)
        loss = loss + (output * weights).mean() * 100
    weft.backward(loss)
    with torch.no_grad():
        return [output.detach().whole() if isinstance(output, DistTensor) else output.detach() for output in outputs]


def _largest(pairs: Sequence[tuple[Tensor | None, Tensor]]) -> float:
    scale = max(float(expected.detach().abs().max()) for _, expected in pairs)
    worst = 0.0
    for actual, expected in pairs:
        assert actual is not None and actual.shape == expected.shape
        worst = max(worst, float((actual - expected).detach().abs().max()))
    return worst / scale
