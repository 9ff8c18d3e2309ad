"""ParaGRU and ParaLSTM: the cells of ParaRNN, whose recurrent weights are diagonal.

Their exact Jacobians consist of diagonal blocks, so Newton's method converges quadratically at the cost of a diagonal
Jacobian, and the serial recurrence needs no matrix products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..communicator import Communicator
from .network import RecurrentNetwork
from .piece import Piece, in_order
from .recurrence import Recurrence, State
from .sweep import FusedSweep, Sweep


class ParaRecurrence(Recurrence):
    """The recurrence of ParaGRU or ParaLSTM.

    Args:
        operation: the name of its operations, "para_gru" or "para_lstm".
        weight: the factors of the states, then the biases of the gates, one row each.
    """

    exact = True

    def __init__(self, operation: str, states: int, weight: Tensor) -> None:
        self.name = {"para_gru": "ParaGRU", "para_lstm": "ParaLSTM"}[operation]
        self.widths = (weight.size(1),) * states
        self.weights = (weight,)
        self._operation = operation

    def with_weights(self, weights: Sequence[Tensor]) -> ParaRecurrence:
        return ParaRecurrence(self._operation, len(self.widths), weights[0])

    def run(self, x: Tensor, state: State, lengths: Tensor | None, reverse: bool) -> tuple[Tensor, State]:
        run = getattr(torch.ops.weft, f"{self._operation}_sequence")
        y, final = run(x, self.join(state), self.weights[0], lengths, reverse)
        return y, self.split(final)

    def step(self, x: Tensor, state: Tensor, weights: Sequence[Tensor], dt: float = 1) -> Tensor:
        if dt > 1:
            return self._repeated(x, self.split(state), weights[0], dt)
        run = getattr(torch.ops.weft, f"{self._operation}_sequence")
        return run(x.unsqueeze(0), state, weights[0], None, False)[1]

    def _repeated(self, x: Tensor, state: State, a: Tensor, dt: float) -> Tensor:
        """``dt`` steps with the gates of the first."""
        first, second, third = (x + a[-3:].flatten()).chunk(3, 1)
        h = state[0]
        if len(state) == 1:
            kept = torch.sigmoid(-first - a[0] * h) ** dt
            n = torch.tanh(third + a[2] * torch.sigmoid(second + a[1] * h) * h)
            return n + kept * (h - n)
        kept = torch.sigmoid(first + a[0] * h + a[3] * state[1]) ** dt
        g = torch.tanh(third + a[2] * h)
        c = g + kept * (state[1] - g)
        return self.join((torch.sigmoid(second + a[1] * h + a[4] * c) * torch.tanh(c), c))

    def blocks(self, full: bool) -> int:
        return len(self.widths)

    def sweep(self, piece: Piece, states: Tensor, full: bool, scale: float, summary: bool) -> Sweep:
        return FusedSweep(self._operation, self.weights[0], piece, states, scale, summary)

    def adjoint(
        self, piece: Piece, states: Tensor, of_outputs: Tensor, of_last: Tensor
    ) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
        run = getattr(torch.ops.weft, f"{self._operation}_adjoint")
        x, after = (in_order(sequence, piece.reverse) for sequence in (piece.x, states[1:]))
        of_x, of_initial, of_weight = run(
            of_outputs, of_last, x, states[0], after, self.weights[0], piece.lengths, piece.reverse
        )
        return of_x, of_initial, [of_weight]


class _ParaNetwork(RecurrentNetwork):
    """The common part of both networks: parameters and products with the input."""

    _operation: ClassVar[str]
    _states: ClassVar[int]
    _recurrent_weights: ClassVar[int]
    """Number of factors of the states per unit."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: Any = None, dtype: Any = None, *,
        heads: int = 1, comm: Communicator | None = None, solver: str = "auto", **options: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        directions = 2 if bidirectional else 1
        for size in (input_size, hidden_size, *([directions * hidden_size] if num_layers > 1 else [])):
            if size < 1 or heads < 1 or size % heads:
                raise ValueError(f"weft: {type(self).__name__}: {heads} heads do not divide the size {size}")
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.heads = heads
        self._set_solver(comm, solver, options)
        for layer in range(num_layers):
            inputs = (input_size if layer == 0 else directions * hidden_size) // heads
            for suffix in ("", "_reverse")[:directions]:
                shapes = {
                    "weight_ih": (3, heads, hidden_size // heads, inputs),
                    "weight_hh": (self._recurrent_weights, hidden_size),
                    **({"bias": (3, hidden_size)} if bias else {}),
                }
                for name, shape in shapes.items():
                    parameter = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
                    self.register_parameter(f"{name}_l{layer}{suffix}", parameter)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws the weights as ParaRNN does."""
        for name, parameter in self.named_parameters():
            if name.startswith("weight_ih"):
                bound = math.sqrt(6 / (parameter.size(3) + self.hidden_size))
                parameter.uniform_(-bound, bound)
            elif name.startswith("weight_hh"):
                parameter.normal_(0, 2 / math.sqrt(5 * self.hidden_size))
            else:
                parameter.zero_()
                parameter[0] = -torch.linspace(0, 1, self.hidden_size)

    @property
    def _widths(self) -> tuple[int, ...]:
        return (self.hidden_size,) * self._states

    def _products(self, x: Tensor, weights: dict[str, Tensor]) -> Tensor:
        weight = weights["weight_ih"]
        if self.heads == 1:
            return torch.ops.weft.input_products(x, weight.flatten(0, 2))
        by_head = x.unflatten(-1, (self.heads, -1))
        return torch.einsum("tbhi,ghoi->tbgho", by_head, weight).flatten(2)

    def _recurrence(self, weights: dict[str, Tensor]) -> Recurrence:
        factors = weights["weight_hh"]
        bias = weights.get("bias")
        if bias is None:
            bias = factors.new_zeros(3, factors.size(1))
        return ParaRecurrence(self._operation, self._states, torch.cat([factors, bias]))

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}, heads={self.heads}" + (
            super().extra_repr()
        )


class ParaGRU(_ParaNetwork):
    """ParaRNN's GRU, whose sequence may be split over the ranks of ``comm``.

    ``z = sigmoid(x_z + a_z h)``, ``r = sigmoid(x_r + a_r h)``, ``n = tanh(x_n + a_n r h)``, ``h = h + z (n - h)``,
    with products ``x`` of the input and one factor ``a`` per unit.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype: as in
            torch.nn.GRU.
        heads: the products with the input are block-diagonal with this many blocks.
        comm, solver, options: as in weft.GRU.

    Raises ValueError for arguments that do not fit.
    """

    _operation = "para_gru"
    _states = 1
    _recurrent_weights = 3

    def forward(
        self, input: Tensor | PackedSequence, hx: Tensor | None = None, *, lengths: Tensor | None = None
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Collective. Returns the outputs of this rank's steps and the final state. Arguments: see weft.GRU."""
        y, final = self._forward(input, None if hx is None else [hx], lengths)
        return y, final[0]


class ParaLSTM(_ParaNetwork):
    """ParaRNN's LSTM, with one gate for input and forgetting, whose sequence may be split over the ranks of ``comm``.

    ``f = sigmoid(x_f + a_f h + p_f c)``, ``g = tanh(x_g + a_g h)``, ``c' = f c + (1 - f) g``,
    ``o = sigmoid(x_o + a_o h + p_o c')``, ``h = o tanh(c')``, with products ``x`` of the input and one factor ``a`` or
    ``p`` per unit.

    Args: see weft.ParaGRU.
    """

    _operation = "para_lstm"
    _states = 2
    _recurrent_weights = 5

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: tuple[Tensor, Tensor] | None = None,
        *,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, Tensor]]:
        """Collective. Returns the outputs of this rank's steps and the final state (h, c). Arguments: see weft.GRU."""
        y, final = self._forward(input, None if hx is None else list(hx), lengths)
        return y, (final[0], final[1])
