"""Dropout whose masks depend neither on the number of ranks nor on the micro-batches."""

from __future__ import annotations

from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft import _bindings

_MASK = 2**64 - 1


class Evaluation:
    """The evaluation of layers on some samples of a batch: the number of the first sample and the seed of the masks."""

    __slots__ = ("begin", "draws", "seed")

    def __init__(self, begin: int = 0, seed: int | None = None) -> None:
        self.begin = begin
        self.seed = seed  # None: that of the layer which the library evaluates
        self.draws = 0

    def next_stream(self) -> int | None:
        """Returns the seed of the next mask, or None outside a pass."""
        if self.seed is None:
            self.seed = _bindings.load().current_layer_seed()
            if self.seed is None:
                return None
            # The library chooses a new seed for the next pass only if a layer draws from torch's generator.
            torch.empty((), dtype=torch.int64).random_()
        self.draws += 1
        return mix(self.seed + mix(self.draws))


current_evaluation: ContextVar[Evaluation | None] = ContextVar("current_evaluation", default=None)


class Dropout(nn.Dropout):
    """``nn.Dropout`` for the layers of a LayerParallel network: each sample has a mask of its own.

    The mask of a sample depends on the seed of the pass, the layer and the number of the sample in the batch, so that
    the pipeline drops the same elements with any number of micro-batches and ranks. The first dimension counts the
    samples. Outside LayerParallel it is ``nn.Dropout``.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        evaluation = current_evaluation.get()
        stream = None if evaluation is None else evaluation.next_stream()
        if evaluation is None or stream is None or x.dim() == 0:
            return F.dropout(x, self.p)
        return x * _sample_masks(x, self.p, stream, evaluation.begin)


def mix(value: int) -> int:
    """Returns a hash of 64 bits (splitmix64). Torch's generator uses only 32 bits of its seed."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _sample_masks(x: Tensor, p: float, stream: int, begin: int) -> Tensor:
    """Returns 0 or 1 / (1 - p) for each element."""
    masks = torch.empty(x.shape, dtype=x.dtype)
    generator = torch.Generator()
    for number, mask in enumerate(masks.unbind(), start=begin):
        generator.manual_seed(mix(stream + number))
        mask.bernoulli_(1 - p, generator=generator)
    return masks.div_(1 - p if p < 1 else 1).to(x.device)
