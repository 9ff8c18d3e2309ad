"""Micro-batches of the pipeline: tensors that have one row per sample."""

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


def rows_of(tensor: Tensor, begin: int, end: int, total: int, name: str) -> Tensor:
    """Returns the rows of a micro-batch. Raises ValueError unless the tensor has ``total`` rows."""
    shape = tuple(tensor.shape)
    if not shape or shape[0] != total:
        raise ValueError(f"weft: {name} has the shape {shape}, but the batch has {total} samples")
    return tensor[begin:end]
