"""Initial guesses for the forward solve, from the states of earlier batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

State = Tensor | Sequence[Tensor]
Classes = Tensor | Sequence[int]


class MeanInitialGuessStorage:
    """Running mean of states per time and class; a new batch has the weight ``average_weight``."""

    def __init__(self, class_count: int, average_weight: float) -> None:
        assert class_count > 0, f"expected at least one class, got {class_count}"
        assert 0.0 <= average_weight <= 1.0, f"expected a weight from 0 to 1, got {average_weight}"
        self.class_count = class_count
        self.average_weight = average_weight
        self.state_map: dict[float, list[Tensor]] = {}

    def addState(self, t: float, state: State, classes: Classes) -> None:
        """Adds the states of a batch at ``t``; ``classes`` are those of its samples."""
        if t in self.state_map:
            self._average(self.state_map[t], state, classes, self.average_weight)
        else:
            self.state_map[t] = self._initialize(state, classes, self.average_weight)

    def getState(self, t: float, classes: Classes) -> tuple[Tensor, ...]:
        """Returns the means at ``t`` for a batch of these classes."""
        index = torch.as_tensor(classes, dtype=torch.long)
        return tuple(mean[index.to(mean.device)] for mean in self.state_map[t])

    def getTimeStamps(self) -> list[float]:
        return list(self.state_map)

    def _initialize(self, state: State, classes: Classes, average_weight: float) -> list[Tensor]:
        means = [tensor.new_zeros((self.class_count, *tensor.shape[1:])) for tensor in _tensors(state)]
        self._average(means, state, classes, average_weight)
        return means

    @torch.no_grad()
    def _average(self, means: list[Tensor], state: State, classes: Classes, average_weight: float) -> None:
        """Updates the means in place; classes without samples keep theirs."""
        index = torch.as_tensor(classes, dtype=torch.long)
        counts = torch.bincount(index.cpu(), minlength=self.class_count)
        for mean, batch in zip(means, _tensors(state), strict=True):
            count = counts.to(mean.device, mean.dtype).view(-1, *[1] * (mean.dim() - 1))
            sums = torch.zeros_like(mean).index_add_(0, index.to(mean.device), batch.to(mean))
            updated = (1.0 - average_weight) * mean + average_weight * sums / count.clamp(min=1)
            mean.copy_(torch.where(count > 0, updated, mean))


def _tensors(state: State) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else list(state)
