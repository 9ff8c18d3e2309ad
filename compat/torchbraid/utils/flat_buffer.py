"""Packs tensors into one flat tensor."""

from collections.abc import Sequence

import torch
from torch import Tensor


def _as_list(tensors: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def buffer_size(tensors: Tensor | Sequence[Tensor]) -> int:
    """Returns the total number of elements."""
    return sum(tensor.numel() for tensor in _as_list(tensors))


def pack_buffer(tensors: Tensor | Sequence[Tensor]) -> Tensor:
    """Returns a flat copy of all elements."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in _as_list(tensors)])


@torch.no_grad()
def unpack_buffer(tensors: Tensor | Sequence[Tensor], buffer: Tensor) -> None:
    """Copies a packed buffer into tensors of the original shapes. Raises ValueError if the size differs."""
    targets = _as_list(tensors)
    if buffer.dim() != 1 or buffer.numel() != buffer_size(targets):
        raise ValueError(
            f"torchbraid (weft): expected a flat buffer of {buffer_size(targets)} elements, "
            f"got shape {list(buffer.shape)}"
        )
    for tensor, piece in zip(targets, buffer.split([tensor.numel() for tensor in targets]), strict=True):
        tensor.copy_(piece.view(tensor.shape))
