"""GRU: torch.nn.GRU with a fused recurrence, whose sequence may be split over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..communicator import Communicator
from .network import RecurrentNetwork
from .recurrence import Recurrence, State


class GruRecurrence(Recurrence):
    """The recurrence of a GRU. Its inputs are the products of all steps with the weights of the input."""

    name = "GRU"

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.widths = (weight.size(1),)
        self.weights = (weight,) if bias is None else (weight, bias)

    def with_weights(self, weights: Sequence[Tensor]) -> GruRecurrence:
        return GruRecurrence(weights[0], weights[1] if len(weights) > 1 else None)

    @property
    def _bias(self) -> Tensor | None:
        return self.weights[1] if len(self.weights) > 1 else None

    def run(self, x: Tensor, state: State, lengths: Tensor | None, reverse: bool) -> tuple[Tensor, State]:
        y, h = torch.ops.weft.gru_sequence(x, state[0], self.weights[0], self._bias, lengths, reverse)
        return y, (h,)

    def step(self, x: Tensor, state: Tensor, weights: Sequence[Tensor], dt: float = 1) -> Tensor:
        _, (h,) = self.with_weights(weights).run(x.unsqueeze(0), (state,), None, False)
        return h

    def linearize(self, x: Tensor, state: Tensor, full: bool) -> tuple[Tensor, Tensor]:
        return torch.ops.weft.gru_linearize(x, state, self.weights[0], self._bias, full)


class GRU(RecurrentNetwork, nn.RNNBase):
    """torch.nn.GRU with a fused recurrence, whose sequence may be split over the ranks of ``comm``.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype: as in
            torch.nn.GRU. The state_dicts of both classes are interchangeable.
        comm: the ranks over which sequences are split in rank order; None for a single process. All ranks hold the
            weights; after ``weft.backward`` every rank has the same total gradient.
        solver: "serial": one rank computes after the other. "pipeline": chunks of the batch travel through the ranks,
            so that ranks compute at the same time; the result is the same. "newton": all steps at once, by iteration.
            "auto": measures the exact solvers on the first batch.
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
