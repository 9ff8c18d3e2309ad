"""Measured costs of the layers of a network: seconds and bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .timing import clock, shortest_seconds

State = Any  # a tensor or a tuple of tensors


@dataclass(frozen=True)
class LayerCost:
    """Seconds of one evaluation with the whole batch, and bytes."""

    forward: float
    """Without a graph."""
    recorded: float
    """With a graph."""
    adjoint: float
    """Backward without the gradients of the weights."""
    weighted: float
    """Backward with the gradients of the weights."""
    parameter_bytes: int
    graph_bytes: int
    """Tensors that the graph keeps for backward."""


@dataclass(frozen=True)
class NetworkCost:
    """The costs of a network with the whole batch."""

    layers: Sequence[LayerCost]
    combine: float
    """Sum of two states."""
    norm: float
    loss: float
    state_bytes: int
    fixed: float = 0.0
    """Work of every rank that does not depend on the number of layers."""

    def scaled(self, factor: float) -> NetworkCost:
        """Returns these costs with all times multiplied by a factor."""
        layers = [
            replace(
                layer,
                forward=factor * layer.forward,
                recorded=factor * layer.recorded,
                adjoint=factor * layer.adjoint,
                weighted=factor * layer.weighted,
            )
            for layer in self.layers
        ]
        times = {name: factor * getattr(self, name) for name in ("combine", "norm", "loss", "fixed")}
        return replace(self, layers=layers, **times)

    @property
    def training_seconds(self) -> float:
        """Forward, loss and backward, one layer after the other."""
        return self.loss + sum(layer.recorded + layer.weighted for layer in self.layers)

    def describe(self) -> dict[str, Any]:
        """Returns the values as the library expects them."""
        rows = [(c.forward, c.recorded, c.adjoint, c.weighted, c.parameter_bytes) for c in self.layers]
        names = ("combine", "norm", "loss", "fixed", "state_bytes")
        return {"layers": rows, **{name: getattr(self, name) for name in names}}


def measure_layers(
    layers: Sequence[nn.Module],
    forms: Sequence[str],
    dt: float,
    x: State,
    loss: Callable[[State], Tensor],
    repeats: int,
) -> NetworkCost:
    """Evaluates the layers one after the other, forward and backward, and measures each."""
    state = _detached(x)
    costs = []
    for layer, form in zip(layers, forms, strict=True):
        cost, state = _measure_layer(layer, form, dt, state, repeats)
        costs.append(cost)
    tensors = _tensors(_detached(x))

    def differentiate() -> None:
        leaves = [t.detach().requires_grad_() for t in _tensors(state)]
        value = loss(_like(state, leaves))
        if value.requires_grad:
            torch.autograd.grad(value, leaves, allow_unused=True)

    with torch.no_grad():
        combine = shortest_seconds(lambda: [torch.add(t, t, alpha=0.5) for t in tensors], repeats)
        norm = shortest_seconds(lambda: [t.norm() for t in tensors], repeats)
    return NetworkCost(costs, combine, norm, shortest_seconds(differentiate, repeats), sum(t.nbytes for t in tensors))


def _measure_layer(layer: nn.Module, form: str, dt: float, x: State, repeats: int) -> tuple[LayerCost, State]:
    def next_state(state: State) -> State:
        y = layer(state, dt) if form == "step" else layer(state)
        if form != "residual":
            return y
        sums = [torch.add(a, b, alpha=dt) for a, b in zip(_tensors(state), _tensors(y), strict=True)]
        return _like(state, sums)

    with torch.no_grad():
        forward = shortest_seconds(lambda: next_state(x), repeats)
    leaves = [t.detach().requires_grad_() for t in _tensors(x)]
    parameters = [p for p in layer.parameters() if p.requires_grad]
    recorded, adjoint, weighted = [], [], []
    y: State = None
    for _ in range(repeats + 1):
        start = clock()
        y = next_state(_like(x, leaves))
        middle = clock()
        outputs = [t for t in _tensors(y) if t.requires_grad]
        seeds = [torch.ones_like(t) for t in outputs]
        between = clock()
        if outputs:
            torch.autograd.grad(outputs, leaves, seeds, retain_graph=True, allow_unused=True)
        later = clock()
        if outputs:
            torch.autograd.grad(outputs, [*leaves, *parameters], seeds, allow_unused=True)
        recorded.append(middle - start)
        adjoint.append(later - between)
        weighted.append(clock() - later)
    cost = LayerCost(
        forward,
        min(recorded[1:]),  # the first evaluation warms up
        min(adjoint[1:]),
        min(weighted[1:]),
        sum(p.nbytes for p in layer.parameters()) + sum(b.nbytes for b in layer.buffers()),
        _graph_bytes(lambda: next_state(_like(x, leaves)), layer),
    )
    return cost, _detached(y)


def _graph_bytes(evaluate: Callable[[], State], layer: nn.Module) -> int:
    """Returns the bytes that a graph keeps besides the parameters."""
    own = {p.untyped_storage().data_ptr() for p in [*layer.parameters(), *layer.buffers()]}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = evaluate()
    for tensor in _tensors(y):
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes())
    return sum(kept.values())


def _tensors(state: State) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else list(state)


def _like(state: State, tensors: Sequence[Tensor]) -> State:
    return tensors[0] if isinstance(state, Tensor) else tuple(tensors)


def _detached(state: State) -> State:
    return _like(state, [t.detach() for t in _tensors(state)])
