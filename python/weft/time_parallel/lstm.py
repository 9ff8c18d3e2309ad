"""LSTM: torch.nn.LSTM with a fused recurrence, whose sequence may be split over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import PackedSequence

from ..communicator import Communicator
from .network import RecurrentNetwork
from .recurrence import Recurrence, State


class LstmRecurrence(Recurrence):
    """The recurrence of an LSTM. Its inputs are the products of all steps with the weights of the input."""

    name = "LSTM"

    def __init__(self, weight: Tensor, bias: Tensor | None, projection: Tensor | None) -> None:
        self.widths = (weight.size(1), weight.size(0) // 4)
        self._given = (weight, bias, projection)
        self.weights = tuple(w for w in self._given if w is not None)

    def with_weights(self, weights: Sequence[Tensor]) -> LstmRecurrence:
        found = iter(weights)
        return LstmRecurrence(*(None if w is None else next(found) for w in self._given))  # type: ignore[arg-type]

    def run(self, x: Tensor, state: State, lengths: Tensor | None, reverse: bool) -> tuple[Tensor, State]:
        y, h, c = torch.ops.weft.lstm_sequence(x, *state, *self._given, lengths, reverse)
        return y, (h, c)

    def step(self, x: Tensor, state: Tensor, weights: Sequence[Tensor], dt: float = 1) -> Tensor:
        if dt > 1:
            return self._repeated(x, self.split(state), weights, dt)
        _, after = self.with_weights(weights).run(x.unsqueeze(0), self.split(state), None, False)
        return self.join(after)

    def _repeated(self, x: Tensor, state: State, weights: Sequence[Tensor], dt: float) -> Tensor:
        """``dt`` steps with the gates of the first: the cell decays towards i g / (1 - f) by f in each of them."""
        weight, bias, projection = self.with_weights(weights)._given
        gates = (x + linear(state[0], weight, bias)).chunk(4, 1)
        f, o = torch.sigmoid(gates[1]), torch.sigmoid(gates[3])
        decay = f**dt
        # 1 - f as a sigmoid: it does not cancel if f is close to 1.
        gain = torch.where(decay < 1, (1 - decay) / torch.sigmoid(-gates[1]), dt)
        c = decay * state[1] + gain * torch.sigmoid(gates[0]) * torch.tanh(gates[2])
        h = o * torch.tanh(c)
        return self.join((h if projection is None else linear(h, projection), c))

    def linearize(self, x: Tensor, state: Tensor, full: bool) -> tuple[Tensor, Tensor]:
        weight, bias, _ = self._given
        return torch.ops.weft.lstm_linearize(x, state, weight, bias, full)


class LSTM(RecurrentNetwork, nn.RNNBase):
    """torch.nn.LSTM with a fused recurrence, whose sequence may be split over the ranks of ``comm``.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype: as in
            torch.nn.LSTM. The state_dicts of both classes are interchangeable.
        comm, solver, options: as in weft.GRU. Newton's method does not support ``proj_size``.

    Raises ValueError for arguments that do not fit.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None, *,
        comm: Communicator | None = None, solver: str = "auto", **options: Any,
    ) -> None:  # fmt: skip
        if proj_size and solver == "newton":
            raise ValueError('weft: LSTM: solver="newton" does not support proj_size; use solver="pipeline"')
        nn.RNNBase.__init__(
            self, "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size,
            device=device, dtype=dtype,
        )  # fmt: skip
        self._set_solver(comm, solver, options)

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

    @property
    def _widths(self) -> tuple[int, ...]:
        return (self.proj_size or self.hidden_size, self.hidden_size)

    @property
    def _has_newton(self) -> bool:
        return self.proj_size == 0

    def _recurrence(self, weights: dict[str, Tensor]) -> Recurrence:
        return LstmRecurrence(weights["weight_hh"], weights.get("bias_hh"), weights.get("weight_hr"))
