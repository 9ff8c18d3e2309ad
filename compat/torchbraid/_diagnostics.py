"""Norms of states and weights along the network, to check stability."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import weft
from weft import _objects


@torch.no_grad()
def diagnose(
    comm: weft.Communicator,
    points: Callable[[], tuple[list[float], list[Any]]],
    own: Mapping[int, nn.Module],
    dt: float,
) -> dict[str, list[Any]]:
    """Collective. Returns lists in layer order on every rank."""
    times, states = points()
    norms = {round(time / dt): _norm(state) for time, state in zip(times, states, strict=True)}
    weights = {number: [p.norm().item() for p in layer.parameters()] for number, layer in own.items()}
    norms, weights = (_merge(parts) for parts in zip(*_objects.all_gather(comm, (norms, weights))))
    return {
        "timestep_index": sorted(weights),
        "step_in": [norms[number] for number in sorted(weights)],
        "step_out": [norms[number + 1] for number in sorted(weights)],
        "params": [weights[number] for number in sorted(weights)],
    }


def _norm(state: Any) -> float:
    return torch.stack([tensor.norm().double() for tensor in tree_leaves(state)]).norm().item()


def _merge(parts: tuple[dict[int, Any], ...]) -> dict[int, Any]:
    return {key: value for part in parts for key, value in part.items()}
