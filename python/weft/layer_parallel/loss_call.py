"""LossCall: the arguments of LayerParallel.loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from .micro_batches import rows_of
from .serial import State


@dataclass(frozen=True)
class LossCall:
    """See ``LayerParallel.loss``."""

    function: Callable[..., Tensor]
    x: State | None
    targets: tuple[Any, ...]
    reduction: str
    kwargs: dict[str, Any]

    def part(self) -> Callable[[State, int, int], Tensor]:
        """Returns a function that computes the contribution of some rows to the loss of the whole batch."""
        rows = next((len(leaf) for leaf in tree_leaves(self.x) if isinstance(leaf, Tensor) and leaf.dim() > 0), 0)

        def loss_of(y: State, begin: int, end: int) -> Tensor:
            targets = tree_map_only(Tensor, lambda t: rows_of(t, begin, end, rows, "a target"), self.targets)
            value = self.function(y, *targets)
            return value * ((end - begin) / rows) if self.reduction == "mean" and rows else value

        return loss_of
