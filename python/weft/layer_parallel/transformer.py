"""Blocks of transformers as time steps: pre-norm encoder and decoder blocks for LayerParallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from .attention import Attention
from .dropout import Dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class EncoderBlock(nn.Module):
    """A pre-norm encoder block, or with ``causal`` the block of a language model, as a layer of the form "residual".

    ``forward`` returns the sum of both residual branches, so that the state after a step is ``x + dt * block(x)``. With
    a step size of 1 (``tf`` is the number of blocks), a block equals ``nn.TransformerEncoderLayer(norm_first=True,
    batch_first=True)``, whose arguments and parameter names it has. States are [samples, positions, d_model].
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        layer_norm_eps: float = 1e-5,
        *,
        causal: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"weft: expected activation to be one of {tuple(ACTIVATIONS)}, got {activation!r}")
        factory = {"device": device, "dtype": dtype}
        self.activation, self.causal = activation, causal
        self.self_attn = Attention(d_model, nhead, dropout, bias, **factory)
        self.linear1 = nn.Linear(d_model, dim_feedforward, bias, **factory)
        self.dropout = Dropout(dropout)
        self.linear2 = nn.Linear(dim_feedforward, d_model, bias, **factory)
        self.norm1, self.norm2 = (nn.LayerNorm(d_model, layer_norm_eps, bias=bias, **factory) for _ in range(2))
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None
    ) -> Tensor:
        """Returns the change of the state per unit of time.

        Args:
            src_mask: [positions, positions] or [samples, positions, positions]. True excludes a pair of positions; a
                floating-point mask is added to the scores.
            src_key_padding_mask: [samples, positions]: True excludes a position.
        """
        change = self._attend_to_itself(src, src_mask, src_key_padding_mask)
        return change + self.dropout2(self._feed_forward(self.norm2(src + change)))

    def _attend_to_itself(self, x: Tensor, mask: Tensor | None, padding: Tensor | None) -> Tensor:
        _require_state(x, self.linear1.in_features)
        return self.dropout1(self.self_attn(self.norm1(x), mask=mask, padding=padding, causal=self.causal))

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(ACTIVATIONS[self.activation](self.linear1(x))))


class DecoderBlock(EncoderBlock):
    """A pre-norm decoder block with attention to the output of an encoder, as a layer of the form "residual".

    Like ``EncoderBlock``, but ``nn.TransformerDecoderLayer``, and causal by default. Pass the encoder's output to
    ``LayerParallel`` as ``memory=weft.PerSample(net.side_input(memory))``.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        layer_norm_eps: float = 1e-5,
        *,
        causal: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        factory = {"device": device, "dtype": dtype}
        super().__init__(
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, causal=causal, bias=bias, **factory
        )
        self.multihead_attn = Attention(d_model, nhead, dropout, bias, **factory)
        self.norm3 = nn.LayerNorm(d_model, layer_norm_eps, bias=bias, **factory)
        self.dropout3 = Dropout(dropout)

    def forward(  # type: ignore[override]
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """Returns the change of the state per unit of time.

        Args:
            memory: the output of an encoder, [samples, positions of the memory, d_model].
            tgt_mask, tgt_key_padding_mask: as in ``EncoderBlock``.
            memory_mask, memory_key_padding_mask: the same for the positions of the memory.
        """
        change = self._attend_to_itself(tgt, tgt_mask, tgt_key_padding_mask)
        attended = self.multihead_attn(
            self.norm2(tgt + change), memory, mask=memory_mask, padding=memory_key_padding_mask
        )
        change = change + self.dropout2(attended)
        return change + self.dropout3(self._feed_forward(self.norm3(tgt + change)))


def _require_state(x: Tensor, width: int) -> None:
    if x.dim() != 3 or x.shape[2] != width:
        raise ValueError(
            f"weft: expected the state to have the shape (samples, positions, {width}), got {tuple(x.shape)}"
        )
