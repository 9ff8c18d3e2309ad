"""Nested iteration: trains networks of increasing depth, each initialized with the weights of the one before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from weft.layer_parallel.solve import require_integers

from .refine import Network, refine


def nested_iteration(
    net: Network,
    optimizer: torch.optim.Optimizer | None,
    epochs: Sequence[int],
    train: Callable[[Network, Any, int, int], None],
    *,
    factor: int = 2,
    interpolation: str = "injection",
) -> tuple[Network, Any]:
    """Trains a network, refines it, trains the deeper network, and so on. Returns the last network and its optimizer.

    Collective if ``net`` is a LayerParallel.

    Args:
        net, optimizer: those of the first level.
        epochs: the number of epochs on each level, the shallow network first. The last network has
            ``factor ** (len(epochs) - 1)`` times as many layers as ``net``.
        train: called as ``train(net, optimizer, level, epoch)`` for each epoch, with the network of the level.
        factor, interpolation: as in ``refine``.

    Raises ValueError if ``epochs`` is empty or contains a negative number, and the errors of ``refine``.
    """
    if not epochs:
        raise ValueError("weft: nested_iteration: expected the epochs of at least one level, got an empty list")
    for level, count in enumerate(epochs):
        require_integers(f"the epochs of level {level}", count, 0)
    for level, count in enumerate(epochs):
        if level > 0:
            net, optimizer = refine(net, factor, interpolation, optimizer=optimizer)
        for epoch in range(count):
            train(net, optimizer, level, epoch)
    return net, optimizer
