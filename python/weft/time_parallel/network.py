"""RecurrentNetwork: the common part of weft.GRU, weft.LSTM and their relatives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from .._tape import grad, tape
from ..communicator import Communicator
from ..layer_parallel.solve import SolveStatistics
from .agreement import agree
from .choice import Choice, Measurement
from .options import SolverOptions
from .recurrence import Recurrence
from .solver import Batch, SequenceSolver, share


class RecurrentNetwork(nn.Module):
    """Stacked layers whose sequence may be split over ranks. Subclasses define the recurrence of a layer.

    Subclasses call ``_set_solver`` in their constructor and have these attributes of torch.nn's recurrent networks:
    """

    input_size: int
    hidden_size: int
    num_layers: int
    batch_first: bool
    dropout: float
    bidirectional: bool

    def _set_solver(self, comm: Communicator | None, solver: str, options: dict[str, Any]) -> None:
        """Raises ValueError or TypeError for options that do not fit."""
        self._solver = SequenceSolver(comm, SolverOptions(solver=solver, **options))
        self.comm = comm

    # ---- defined by subclasses

    @property
    def _widths(self) -> tuple[int, ...]:
        """Sizes of the tensors of a state."""
        raise NotImplementedError

    @property
    def _has_newton(self) -> bool:
        """Whether Newton's method supports this network."""
        return True

    def _recurrence(self, weights: dict[str, Tensor]) -> Recurrence:
        """Returns the recurrence of one layer and direction. The names of its weights have no suffix."""
        raise NotImplementedError

    def _weights(self) -> dict[str, Tensor]:
        """The parameters by name. Faster than named_parameters(), which takes longer than a short sequence."""
        return {name: weight for name, weight in self._parameters.items() if weight is not None}

    # ---- solver

    @property
    def solver(self) -> str:
        """The solver that the constructor got."""
        return self._solver.options.solver

    @property
    def chunks(self) -> int | None:
        """The number of chunks of the pipeline; None before it is known."""
        return self._solver.choice.chunks if self._solver.choice else self._solver.options.chunks

    @property
    def choice(self) -> str | None:
        """The solver in use. With ``solver="auto"`` it is known after the first forward pass."""
        return self._solver.choice.solver if self._solver.choice else None

    @property
    def measurements(self) -> list[Measurement]:
        """Times and errors of the solvers that ``solver="auto"`` measured in the first forward pass."""
        return self._solver.measurements

    @property
    def statistics(self) -> tuple[SolveStatistics | None, SolveStatistics | None]:
        """Statistics of the last forward and backward solve of an iterative solver: those of the slowest layer.

        None if there was no such solve.
        """
        return self._solver.statistics

    # ---- forward

    def _forward(
        self, input: Tensor | PackedSequence, initial: list[Tensor] | None, lengths: Tensor | None
    ) -> tuple[Tensor | PackedSequence, list[Tensor]]:
        packed: PackedSequence | None = None
        if isinstance(input, PackedSequence):
            packed = input
            if lengths is not None:
                raise ValueError("weft: a packed sequence has its own lengths; do not pass `lengths`")
            if self.comm is not None and self.comm.size > 1:
                raise ValueError("weft: a split sequence cannot be packed; pass a padded tensor and `lengths`")
            # The rows stay in the packed (sorted) order until the end.
            sorted_input = PackedSequence(packed.data, packed.batch_sizes)
            x, lengths = pad_packed_sequence(sorted_input)
            if initial is not None and packed.sorted_indices is not None:
                initial = [h.index_select(1, packed.sorted_indices) for h in initial]
        else:
            x = input
        unbatched = packed is None and x.dim() == 2
        if unbatched:
            x = x.unsqueeze(1)
            initial = None if initial is None else [h.unsqueeze(1) for h in initial]
        elif packed is None and self.batch_first:
            x = x.transpose(0, 1)

        batch, states = self._agree(x, initial, lengths)
        y, final = self._layers(batch, states)
        if self._solver.options.outputs == "last":
            return self._last_outputs(final, packed, unbatched)

        if packed is not None:
            assert lengths is not None
            y_packed = pack_padded_sequence(y, lengths)
            if packed.unsorted_indices is not None:
                final = [h.index_select(1, packed.unsorted_indices) for h in final]
            return PackedSequence(
                y_packed.data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
            ), final
        if unbatched:
            return y.squeeze(1), [h.squeeze(1) for h in final]
        return (y.transpose(0, 1) if self.batch_first else y), final

    def _last_outputs(
        self, final: list[Tensor], packed: PackedSequence | None, unbatched: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns the final outputs of the last layer, with its directions side by side, and the final states."""
        if packed is not None and packed.unsorted_indices is not None:
            final = [h.index_select(1, packed.unsorted_indices) for h in final]
        y = torch.cat(list(final[0][-2 if self.bidirectional else -1 :]), dim=1)
        return (y.squeeze(0), [h.squeeze(1) for h in final]) if unbatched else (y, final)

    def _layers(self, batch: Batch, initial: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        weights = share(self._solver.comm, self._weights())
        choice = self._solver.choose(batch, lambda choice: self._trial(choice, batch, initial), self._has_newton)
        self._solver.begin()
        return self._solve(choice, batch, initial, weights, self._dropout_seeds())

    def _solve(
        self, choice: Choice, batch: Batch, initial: list[Tensor], weights: dict[str, Tensor], seeds: list[int]
    ) -> tuple[Tensor, list[Tensor]]:
        directions = 2 if self.bidirectional else 1
        x = batch.x
        final = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(directions):
                suffix = f"_l{layer}{'_reverse' if direction else ''}"
                mine = {name.removesuffix(suffix): w for name, w in weights.items() if name.endswith(suffix)}
                state = tuple(h[layer * directions + direction] for h in initial)
                y, state = self._solver.run(
                    choice, self._recurrence(mine), self._products(x, mine), state, batch, direction == 1
                )
                outputs.append(y)
                final.append(state)
            x = outputs[0] if directions == 1 else torch.cat(outputs, dim=2)
            if seeds and layer + 1 < self.num_layers:
                x = torch.ops.weft.seeded_dropout(x, self.dropout, seeds[layer], batch.offset)
        return x, [torch.stack([state[k] for state in final]) for k in range(len(self._widths))]

    def _products(self, x: Tensor, weights: dict[str, Tensor]) -> Tensor:
        """One product for all steps. The layout follows x: a transposed batch-major input stays batch-major."""
        return torch.ops.weft.input_products(x, weights["weight_ih"], weights.get("bias_ih"))

    # ---- agreement between the ranks

    def _agree(self, x: Tensor, initial: list[Tensor] | None, lengths: Tensor | None) -> tuple[Batch, list[Tensor]]:
        """Checks the arguments on all ranks. Returns the batch and the initial states, which are those of rank 0."""
        problem = self._problem(x, initial, lengths)
        wants_grad = torch.is_grad_enabled() and any(
            t.requires_grad for t in (x, *(initial or []), *self._weights().values()) if isinstance(t, Tensor)
        )
        batch, states = agree(
            self.comm, type(self).__name__, lambda: self._facts(x, lengths), problem, x, initial, lengths, wants_grad
        )
        rows = self.num_layers * (2 if self.bidirectional else 1)
        return batch, states or [x.new_zeros(rows, x.size(1), width) for width in self._widths]

    def _facts(self, x: Any, lengths: Tensor | None) -> dict[str, Any]:
        """Returns the values that must be equal on all ranks."""
        return {
            "batch": x.size(1) if isinstance(x, Tensor) and x.dim() == 3 else None,
            "dtype": str(x.dtype) if isinstance(x, Tensor) else None,
            "network": (type(self).__name__, self.input_size, self.hidden_size, self.num_layers, self.bidirectional),
            "solver": self._solver.options.facts(),
            "masked": lengths is not None,
            "training": self.training,
        }

    def _problem(self, x: Tensor, initial: list[Tensor] | None, lengths: Tensor | None) -> str:
        if not isinstance(x, Tensor) or x.dim() != 3:
            return (
                f"expected a sequence of 2 or 3 dimensions, got {tuple(x.shape) if isinstance(x, Tensor) else type(x)}"
            )
        if x.size(2) != self.input_size:
            return f"expected {self.input_size} features (input_size), got {x.size(2)}"
        if self.solver in ("newton", "mgrit") and x.dtype not in (torch.float32, torch.float64):
            return f'solver="newton" computes in float32 or float64, got {x.dtype}'
        dtype = next(iter(self._weights().values())).dtype
        if x.dtype != dtype:
            return f"expected the weights' dtype {dtype}, got {x.dtype}"
        directions = 2 if self.bidirectional else 1
        for width, h in zip(self._widths, initial or [], strict=False):
            expected = (self.num_layers * directions, x.size(1), width)
            if tuple(h.shape) != expected:
                return f"expected an initial state of shape {expected}, got {tuple(h.shape)}"
        if lengths is not None and (lengths.dim() != 1 or lengths.size(0) != x.size(1) or lengths.is_floating_point()):
            got = f"{lengths.dtype} of shape {tuple(lengths.shape)}"
            return f"expected {x.size(1)} integer lengths, one per row, got {got}"
        return ""

    def _dropout_seeds(self) -> list[int]:
        """Returns a seed per layer; empty without dropout. The masks do not depend on the split."""
        if self.dropout == 0 or not self.training or self.num_layers == 1:
            return []
        comm = None if self.comm is None or self.comm.size == 1 else self.comm._id
        seed = torch.ops.weft.draw_dropout_seed(comm)
        return [torch.ops.weft.dropout_mask_seed(seed, layer) for layer in range(self.num_layers - 1)]

    # ---- choice of the solver

    def _trial(self, choice: Choice, batch: Batch, initial: list[Tensor]) -> list[Tensor]:
        """Collective. A forward and backward pass without effects. Returns its outputs and gradients."""
        with torch.enable_grad(), tape():
            copies = {name: w.detach().requires_grad_() for name, w in self._weights().items()}
            x = batch.x.detach().requires_grad_()
            detached = Batch(x, batch.steps, batch.offset, batch.lengths, wants_grad=True)
            y, _ = self._solve(choice, detached, [h.detach() for h in initial], copies, [])
            return [y.detach(), *grad(y.sum(), [x, *copies.values()])]

    def extra_repr(self) -> str:
        text = super().extra_repr()
        if self.comm is not None:
            text += f", solver={self.solver}" + (f" ({self._solver.choice})" if self._solver.choice else "")
        return text
