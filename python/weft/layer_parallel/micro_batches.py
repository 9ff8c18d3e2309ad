"""Micro-batches of the pipeline: arguments of layers that have one row per sample."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class PerSample:
    """Marks an argument of ``LayerParallel.forward`` whose first dimension counts the samples of the batch.

    The pipeline passes each micro-batch its rows. Other tensors, such as a causal mask, are passed whole. With the
    solver "mgrit" the mark has no effect.
    """

    tensor: Tensor
