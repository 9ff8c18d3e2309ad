"""Multi-head attention with masks, for the blocks of transformers."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .dropout import Dropout


class Attention(nn.Module):
    """Has the parameters of ``nn.MultiheadAttention``. Tensors are [samples, positions, width]."""

    in_proj_bias: nn.Parameter | None

    def __init__(self, width: int, heads: int, dropout: float = 0.0, bias: bool = True, **factory: Any) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"weft: expected a width that is a multiple of the heads, got {width} and {heads} heads")
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width, **factory))
        self.register_parameter("in_proj_bias", nn.Parameter(torch.zeros(3 * width, **factory)) if bias else None)
        self.out_proj = nn.Linear(width, width, bias, **factory)
        self.dropout = Dropout(dropout)
        nn.init.xavier_uniform_(self.in_proj_weight)
        if bias:
            nn.init.zeros_(self.out_proj.bias)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        padding: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Returns the attention of ``x`` to ``memory``, or to itself.

        Args:
            mask: [positions, positions of the memory], or with the samples as another first dimension. True excludes a
                pair of positions; a floating-point mask is added to the scores.
            padding: [samples, positions of the memory]: True excludes a position of the memory.
            causal: excludes later positions.
        """
        samples, length, width = x.shape
        if memory is None:
            query, key, value = F.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        else:
            _require_memory(memory, samples, width)
            weights, biases = self.in_proj_weight.split([width, 2 * width]), (None, None)
            if self.in_proj_bias is not None:
                biases = self.in_proj_bias.split([width, 2 * width])
            query = F.linear(x, weights[0], biases[0])
            key, value = F.linear(memory, weights[1], biases[1]).chunk(2, dim=-1)
        query, key, value = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (query, key, value))
        size = key.shape[2]
        drops = self.training and self.dropout.p > 0
        only_causal = causal and mask is None and padding is None and not drops
        added = None if only_causal else _added_mask(query, (samples, length, size), mask, padding, causal)
        if drops:
            scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
            scores = scores if added is None else scores + added
            y = self.dropout(scores.softmax(dim=-1)) @ value
        else:
            y = F.scaled_dot_product_attention(query, key, value, attn_mask=added, is_causal=only_causal)
        return self.out_proj(y.transpose(1, 2).flatten(2))


def _require_memory(memory: Tensor, samples: int, width: int) -> None:
    if memory.dim() != 3 or memory.shape[2] != width:
        raise ValueError(
            f"weft: expected the memory to have the shape (samples, positions, {width}), got {tuple(memory.shape)}"
        )
    if memory.shape[0] != samples:
        raise ValueError(
            f"weft: the memory has {memory.shape[0]} samples, but the layer evaluates {samples}; wrap arguments that "
            "have one row per sample in weft.PerSample"
        )


def _added_mask(
    like: Tensor, shape: tuple[int, int, int], mask: Tensor | None, padding: Tensor | None, causal: bool
) -> Tensor | None:
    """Returns the sum of all masks, which broadcasts to [samples, heads, positions, positions of the memory]."""
    samples, length, size = shape
    total: Tensor | None = None
    if causal:
        later = torch.ones(length, size, dtype=torch.bool, device=like.device).triu(1)
        total = _as_scores(later, "causal mask", like)
    if mask is not None:
        if tuple(mask.shape) not in ((length, size), (samples, length, size)):
            raise ValueError(
                f"weft: expected the mask to have the shape {(length, size)} or {(samples, length, size)}, got "
                f"{tuple(mask.shape)}; wrap a mask that has one row per sample in weft.PerSample"
            )
        scores = _as_scores(mask, "mask", like)
        scores = scores if mask.dim() == 2 else scores.unsqueeze(1)
        total = scores if total is None else total + scores
    if padding is not None:
        if tuple(padding.shape) != (samples, size):
            raise ValueError(
                f"weft: expected the padding mask to have the shape {(samples, size)} (samples, positions), got "
                f"{tuple(padding.shape)}; wrap it in weft.PerSample"
            )
        scores = _as_scores(padding, "padding mask", like)[:, None, None, :]
        total = scores if total is None else total + scores
    return total


def _as_scores(mask: Tensor, name: str, like: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill_(
            mask.to(like.device), -math.inf
        )
    if mask.is_floating_point():
        return mask.to(like)
    raise TypeError(f"weft: expected the {name} to be boolean or floating-point, got {mask.dtype}")
