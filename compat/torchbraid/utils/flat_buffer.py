"""Several tensors in one flat one."""

from collections.abc import Sequence

import torch
from torch import Tensor


def _as_list(tensors: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def buffer_size(tensors: Tensor | Sequence[Tensor]) -> int:
    """How many elements there are in all."""
    return sum(tensor.numel() for tensor in _as_list(tensors))


def pack_buffer(tensors: Tensor | Sequence[Tensor]) -> Tensor:
    """A copy of all elements in a row."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in _as_list(tensors)])


@torch.no_grad()
def unpack_buffer(tensors: Tensor | Sequence[Tensor], buffer: Tensor) -> None:
    """Writes a packed buffer back into tensors of the shapes that it was made of."""
    targets = _as_list(tensors)
    if buffer.dim() != 1 or buffer.numel() != buffer_size(targets):
        raise ValueError(
            f"torchbraid (weft): expected a flat buffer of {buffer_size(targets)} elements, "
            f"got shape {list(buffer.shape)}"
        )
    for tensor, piece in zip(targets, buffer.split([tensor.numel() for tensor in targets]), strict=True):
        tensor.copy_(piece.view(tensor.shape))
