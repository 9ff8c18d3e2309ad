"""GRU: torch.nn.GRU with a fused recurrence, whose sequence may be split over ranks."""

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


class GruRecurrence(Recurrence):
    """The recurrence of a GRU. Its inputs are the products of all steps with the weights of the input."""

    name = "GRU"

    def __init__(self, weight: Tensor, bias: Tensor | None, implicit_step: float = 0) -> None:
        self.widths = (weight.size(1),)
        self.weights = (weight,) if bias is None else (weight, bias)
        self._implicit_step = implicit_step  # 0 for an explicit GRU

    def with_weights(self, weights: Sequence[Tensor]) -> GruRecurrence:
        return GruRecurrence(weights[0], weights[1] if len(weights) > 1 else None, self._implicit_step)

    @property
    def _bias(self) -> Tensor | None:
        return self.weights[1] if len(self.weights) > 1 else None

    def run(self, x: Tensor, state: State, lengths: Tensor | None, reverse: bool) -> tuple[Tensor, State]:
        y, h = torch.ops.weft.gru_sequence(
            x, state[0], self.weights[0], self._bias, lengths, reverse, self._implicit_step
        )
        return y, (h,)

    def step(self, x: Tensor, state: Tensor, weights: Sequence[Tensor], dt: float = 1) -> Tensor:
        if dt > 1 and self._implicit_step == 0:
            return self._repeated(x, state, weights, dt)
        bias = weights[1] if len(weights) > 1 else None
        _, h = torch.ops.weft.gru_sequence(
            x.unsqueeze(0), state, weights[0], bias, None, False, dt * self._implicit_step
        )
        return h

    @staticmethod
    def _repeated(x: Tensor, h: Tensor, weights: Sequence[Tensor], dt: float) -> Tensor:
        """``dt`` steps with the gates of the first: the state decays towards the candidate by z in each of them."""
        from_input = x.chunk(3, 1)
        from_state = linear(h, *weights).chunk(3, 1)
        r = torch.sigmoid(from_input[0] + from_state[0])
        z = torch.sigmoid(from_input[1] + from_state[1])
        n = torch.tanh(from_input[2] + r * from_state[2])
        return n + z**dt * (h - n)

    def linearize(self, x: Tensor, state: Tensor, full: bool) -> tuple[Tensor, Tensor]:
        return torch.ops.weft.gru_linearize(x, state, self.weights[0], self._bias, full, self._implicit_step)


class GRU(RecurrentNetwork, nn.RNNBase):
    """torch.nn.GRU with a fused recurrence, whose sequence may be split over the ranks of ``comm``.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype: as in
            torch.nn.GRU. The state_dicts of both classes are interchangeable.
        comm: the ranks over which sequences are split in rank order; None for a single process. All ranks hold the
            weights; after ``weft.backward`` every rank has the same total gradient.
        solver: "serial": one rank computes after the other. "pipeline": chunks of the batch travel through the ranks,
            so that ranks compute at the same time; the result is the same. "newton": all steps at once, by iteration.
            "mgrit": multigrid in time. "auto": measures all of them on the first batch and keeps the fastest.
        options: options of the solver; see SolverOptions.

    Raises ValueError for arguments that do not fit.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: Any = None, dtype: Any = None, *,
        comm: Communicator | None = None, solver: str = "auto", **options: Any,
    ) -> None:  # fmt: skip
        nn.RNNBase.__init__(
            self, "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device,
            dtype=dtype,
        )  # fmt: skip
        self._set_solver(comm, solver, options)

    def forward(
        self, input: Tensor | PackedSequence, hx: Tensor | None = None, *, lengths: Tensor | None = None
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Returns the outputs of this rank's steps and the final state. Collective over ``comm``.

        Args:
            input: this rank's steps of the sequence; ranks may have different numbers of steps, or none.
            hx: the initial state; that of rank 0 counts.
            lengths: the number of steps of each row of the whole sequence; outputs of later steps are 0.

        Raises ValueError on all ranks if the arguments of a rank do not fit.
        """
        y, final = self._forward(input, None if hx is None else [hx], lengths)
        return y, final[0]

    @property
    def _widths(self) -> tuple[int, ...]:
        return (self.hidden_size,)

    def _recurrence(self, weights: dict[str, Tensor]) -> Recurrence:
        return GruRecurrence(weights["weight_hh"], weights.get("bias_hh"))


class ImplicitGRU(GRU):
    """The implicit GRU of Moon and Cyr (ICLR 2022), with the weights of torch.nn.GRU.

    A step solves ``h' = h + step (1 - z) (n - h')`` for ``h'``, so that it is stable for any step. Coarse levels of
    multigrid take larger steps of the same equation.

    Args:
        step: the time between two steps of the sequence.
        others: as in weft.GRU.

    Raises ValueError for arguments that do not fit.
    """

    def __init__(self, *args: Any, step: float = 1.0, **options: Any) -> None:
        if not step > 0:
            raise ValueError(f"weft: ImplicitGRU: expected a step above 0, got {step}")
        super().__init__(*args, **options)
        self.step = step

    def _recurrence(self, weights: dict[str, Tensor]) -> Recurrence:
        return GruRecurrence(weights["weight_hh"], weights.get("bias_hh"), self.step)
