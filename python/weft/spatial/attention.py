"""Attention over tensors in tiles: ranks gather keys and values, and each computes the queries of its tile."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from .flat import whole
from .tensor import HANDLERS, DistTensor


def reject_dropout(p: float) -> None:
    """Raises an error, since each rank would drop other weights."""
    if p > 0:
        raise NotImplementedError(f"weft: dropout of attention weights ({p}) is not supported on tiles; set it to 0")


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> DistTensor | Tensor:
    """Keeps the queries in tiles if the sequence is the only tiled dimension and each query sees all keys."""
    reject_dropout(dropout_p)
    tiled = all(isinstance(x, DistTensor) and x.axes == (x.ndim - 2,) for x in (query, key, value))
    if tiled and attn_mask is None and not is_causal:
        mine = F.scaled_dot_product_attention(query.local, key.all_gather(), value.all_gather(), **options)
        return query.with_local(mine)
    gathered = (whole(query), whole(key), whole(value))
    return F.scaled_dot_product_attention(*gathered, whole(attn_mask), is_causal=is_causal, **options)


HANDLERS[F.scaled_dot_product_attention] = scaled_dot_product_attention
