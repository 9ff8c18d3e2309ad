"""SerialNetwork: the layers of a LayerParallel network as a plain module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

State: TypeAlias = "Tensor | tuple[Tensor, ...]"
"""A state of the network between two layers."""


class SerialNetwork(nn.Module):
    """The same network as a plain module that evaluates its layers in order. Its state_dict has the same keys."""

    def __init__(self, layers: Mapping[str, nn.Module], forms: Sequence[str], tf: float) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(dict(layers))
        self.forms = list(forms)
        self.dt = tf / len(self.forms) if self.forms else tf

    def forward(self, x: State, *args: Any, **kwargs: Any) -> State:
        for number, form in enumerate(self.forms):
            layer = self.layers[str(number)]
            y = layer(x, self.dt, *args, **kwargs) if form == "step" else layer(x, *args, **kwargs)
            x = _advance(x, y, self.dt) if form == "residual" else y
        return x


def _advance(x: State, y: State, dt: float) -> State:
    if isinstance(x, Tensor):
        if not isinstance(y, Tensor):
            raise TypeError(f"weft: expected the layer to return a tensor, got {type(y).__name__}")
        return torch.add(x, y, alpha=dt)
    return tuple(torch.add(a, b, alpha=dt) for a, b in zip(x, y, strict=True))
