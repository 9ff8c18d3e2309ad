"""GRU and LSTM: torch.nn's recurrent networks with fused recurrences, and with the sequence split over ranks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from . import _objects
from ._tape import grad, tape
from .communicator import Communicator

__all__ = ["GRU", "LSTM"]

SOLVERS: Final = ("auto", "serial", "pipeline")
CANDIDATES: Final = (2, 4, 8, 16)
"""Numbers of chunks that ``solver="auto"`` measures."""

State = tuple[Tensor, ...]
"""The state of one layer and direction: (h,) or (h, c), each [batch, size]."""


@dataclass(frozen=True)
class _Batch:
    """The input of a forward pass in time-major order, with the facts that all ranks have agreed on."""

    x: Tensor
    """This rank's steps: [steps, batch, features]."""
    offset: int
    """Position of this rank's first step in the sequence."""
    lengths: Tensor | None
    """Number of this rank's steps in each row (int64, CPU)."""


class _Recurrent(nn.RNNBase):
    """The common part of GRU and LSTM. Subclasses define the recurrence of one layer and direction."""

    def __init__(
        self, mode: str, *args: Any, comm: Communicator | None, solver: str, chunks: int | None, **options: Any
    ):
        super().__init__(mode, *args, **options)
        if solver not in SOLVERS:
            raise ValueError(f"weft: expected one of the solvers {', '.join(SOLVERS)}, got {solver!r}")
        if chunks is not None and chunks < 1:
            raise ValueError(f"weft: expected at least 1 chunk, got {chunks}")
        self.comm = comm
        self.solver = solver
        self.chunks = chunks
        self.choice: str | None = None if solver == "auto" else solver
        """The solver in use. With ``solver="auto"`` it is known after the first forward pass."""

    # ---- defined by subclasses

    @property
    def _widths(self) -> tuple[int, ...]:
        """Sizes of the tensors of a state."""
        raise NotImplementedError

    def _recur(
        self, weights: dict[str, Tensor], products: Tensor, state: State, lengths: Tensor | None, reverse: bool
    ) -> tuple[Tensor, State]:
        """Runs one layer and direction on its input products. Returns the outputs and the final state."""
        raise NotImplementedError

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

        batch, states = self._agree(x, initial, lengths, input)
        y, final = self._layers(batch, states)

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

    def _layers(self, batch: _Batch, initial: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        weights = self._shared_weights()
        chunks = self._chunks(batch, initial, weights)
        return self._solve(batch, initial, weights, chunks, self._dropout_seeds())

    def _solve(
        self, batch: _Batch, initial: list[Tensor], weights: dict[str, Tensor], chunks: int, seeds: list[int]
    ) -> tuple[Tensor, list[Tensor]]:
        directions = 2 if self.bidirectional else 1
        x = batch.x
        final: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(directions):
                index = layer * directions + direction
                suffix = f"l{layer}{'_reverse' if direction else ''}"
                mine = {
                    name.removesuffix(f"_{suffix}"): w for name, w in weights.items() if name.endswith(f"_{suffix}")
                }
                # One product for all steps. The layout follows x: a transposed batch-major input stays batch-major.
                products = linear(x, mine["weight_ih"], mine.get("bias_ih"))
                y, state = self._chain(mine, products, tuple(h[index] for h in initial), batch, chunks, direction == 1)
                outputs.append(y)
                final.append(state)
            x = outputs[0] if directions == 1 else torch.cat(outputs, dim=2)
            if seeds and layer + 1 < self.num_layers:
                x = torch.ops.weft.seeded_dropout(x, self.dropout, seeds[layer], batch.offset)
        return x, [torch.stack([state[k] for state in final]) for k in range(len(self._widths))]

    def _chain(
        self, weights: dict[str, Tensor], products: Tensor, initial: State, batch: _Batch, chunks: int, reverse: bool
    ) -> tuple[Tensor, State]:
        """Runs the recurrence over the pieces of all ranks. Chunks of the batch travel through the ranks."""
        comm = self.comm
        if comm is None or comm.size == 1:
            return self._recur(weights, products, initial, batch.lengths, reverse)
        rank, last = (comm.size - 1 - comm.rank, 0) if reverse else (comm.rank, comm.size - 1)
        step = -1 if reverse else 1
        outputs = []
        finals = []
        sends = []
        for rows in torch.arange(products.size(1)).chunk(chunks):
            piece = slice(int(rows[0]), int(rows[-1]) + 1)
            state = tuple(h[piece] for h in initial)
            if rank > 0:
                received = comm.recv(like=torch.cat(state, dim=1), source=comm.rank - step)
                state = tuple(received.split(self._widths, dim=1))
            lengths = None if batch.lengths is None else batch.lengths[piece]
            y, state = self._recur(weights, products[:, piece], state, lengths, reverse)
            message = torch.cat(state, dim=1)
            if comm.rank != last:
                sends.append(comm.isend(message, dest=comm.rank + step))
            outputs.append(y)
            finals.append(message)
        for send in sends:
            send.wait()
        final = comm.broadcast(torch.cat(finals), root=last)
        return torch.cat(outputs, dim=1), tuple(final.split(self._widths, dim=1))

    # ---- agreement between the ranks

    def _agree(
        self, x: Tensor, initial: list[Tensor] | None, lengths: Tensor | None, given: Any
    ) -> tuple[_Batch, list[Tensor]]:
        """Checks the arguments on all ranks. Returns the batch and the initial states, which are those of rank 0."""
        problem = self._problem(x, initial, lengths)
        directions = 2 if self.bidirectional else 1
        if self.comm is None or self.comm.size == 1:
            if problem:
                raise ValueError(f"weft: {type(self).__name__}: {problem}")
            if lengths is not None:
                lengths = lengths.to("cpu", torch.int64).contiguous()
            states = initial or [x.new_zeros(self.num_layers * directions, x.size(1), width) for width in self._widths]
            return _Batch(x, 0, lengths), states

        facts = {
            "batch": x.size(1) if x.dim() == 3 else None,
            "dtype": str(x.dtype),
            "network": (type(self).__name__, self.input_size, self.hidden_size, self.num_layers, self.bidirectional),
            "solver": (self.solver, self.chunks),
            "masked": lengths is not None,
            "training": self.training,
        }
        everyone = _objects.all_gather(
            self.comm,
            (
                problem,
                facts,
                x.size(0) if x.dim() == 3 else 0,
                initial is not None,
                None if lengths is None else lengths.tolist(),
            ),
        )
        for rank, (theirs, *_) in enumerate(everyone):
            if theirs:
                raise ValueError(f"weft: {type(self).__name__}: {theirs} (rank {rank})")
        for key in facts:
            values = [entry[1][key] for entry in everyone]
            if any(value != values[0] for value in values):
                listed = ", ".join(f"rank {rank}: {value}" for rank, value in enumerate(values))
                raise ValueError(f"weft: {type(self).__name__}: {key} differs between ranks ({listed})")
        steps = [entry[2] for entry in everyone]
        offset = sum(steps[: self.comm.rank])
        if lengths is not None:
            if any(entry[4] != everyone[0][4] for entry in everyone):
                raise ValueError(
                    f"weft: {type(self).__name__}: lengths differ between ranks; pass those of the whole rows"
                )
            lengths = (lengths.to("cpu", torch.int64) - offset).clamp(0, x.size(0)).contiguous()
        shape = (self.num_layers * directions, x.size(1))
        states = list(initial) if initial else [x.new_zeros(*shape, width) for width in self._widths]
        if everyone[0][3]:
            # In backward, rank 0 gets the gradient of the initial state from the ranks that use it.
            states = list(self.comm.broadcast(torch.cat(states, dim=2)).split(self._widths, dim=2))
        elif any(entry[3] for entry in everyone):
            raise ValueError(f"weft: {type(self).__name__}: an initial state is given on some ranks, but not on rank 0")
        return _Batch(x, offset, lengths), states

    def _problem(self, x: Tensor, initial: list[Tensor] | None, lengths: Tensor | None) -> str:
        if not isinstance(x, Tensor) or x.dim() != 3:
            return (
                f"expected a sequence of 2 or 3 dimensions, got {tuple(x.shape) if isinstance(x, Tensor) else type(x)}"
            )
        if x.size(2) != self.input_size:
            return f"expected {self.input_size} features (input_size), got {x.size(2)}"
        if x.dtype != self.weight_ih_l0.dtype:
            return f"expected the weights' dtype {self.weight_ih_l0.dtype}, got {x.dtype}"
        directions = 2 if self.bidirectional else 1
        for width, h in zip(self._widths, initial or [], strict=False):
            expected = (self.num_layers * directions, x.size(1), width)
            if tuple(h.shape) != expected:
                return f"expected an initial state of shape {expected}, got {tuple(h.shape)}"
        if lengths is not None and (lengths.dim() != 1 or lengths.size(0) != x.size(1) or lengths.is_floating_point()):
            got = f"{lengths.dtype} of shape {tuple(lengths.shape)}"
            return f"expected {x.size(1)} integer lengths, one per row, got {got}"
        return ""

    def _shared_weights(self) -> dict[str, Tensor]:
        """Returns the weights by name. In backward, their gradients are summed over the ranks."""
        named: dict[str, Tensor] = dict(self.named_parameters(recurse=False))
        if self.comm is None or self.comm.size == 1:
            return named
        return dict(zip(named, torch.ops.weft.share(list(named.values()), self.comm._id), strict=True))

    def _dropout_seeds(self) -> list[int]:
        """Returns a seed per layer; empty without dropout. The masks do not depend on the split."""
        if self.dropout == 0 or not self.training or self.num_layers == 1:
            return []
        comm = None if self.comm is None or self.comm.size == 1 else self.comm._id
        seed = torch.ops.weft.draw_dropout_seed(comm)
        return [torch.ops.weft.dropout_mask_seed(seed, layer) for layer in range(self.num_layers - 1)]

    # ---- choice of the solver

    def _chunks(self, batch: _Batch, initial: list[Tensor], weights: dict[str, Tensor]) -> int:
        rows = batch.x.size(1)
        if self.comm is None or self.comm.size == 1 or self.solver == "serial":
            self.choice = "serial"
            return 1
        if self.solver == "pipeline":
            return min(self.chunks or 4 * self.comm.size, max(rows, 1))
        if self.choice is None:
            self.choice, self.chunks = self._measure(batch, initial)
        return 1 if self.choice == "serial" else min(self.chunks or 1, max(rows, 1))

    def _measure(self, batch: _Batch, initial: list[Tensor]) -> tuple[str, int | None]:
        """Collective. Times a forward and backward pass with each candidate and returns the fastest."""
        assert self.comm is not None
        times = {}
        for chunks in (1, *(count for count in CANDIDATES if count <= batch.x.size(1))):
            elapsed = []
            for _ in range(2):  # the first pass warms up
                with torch.enable_grad(), tape():
                    copies = {name: w.detach().requires_grad_() for name, w in self.named_parameters(recurse=False)}
                    self.comm.barrier()
                    start = time.perf_counter()
                    detached = _Batch(batch.x.detach(), batch.offset, batch.lengths)
                    y, _ = self._solve(detached, [h.detach() for h in initial], copies, chunks, [])
                    grad(y.sum(), list(copies.values()))
                    elapsed.append(time.perf_counter() - start)
            times[chunks] = self.comm.all_reduce(torch.tensor(elapsed[-1], dtype=torch.float64), "max").item()
        best = min(times, key=lambda chunks: times[chunks])
        return ("serial", None) if best == 1 else ("pipeline", best)

    def extra_repr(self) -> str:
        text = super().extra_repr()
        if self.comm is not None:
            text += f", solver={self.solver}" + (f" ({self.choice}, chunks={self.chunks})" if self.choice else "")
        return text


class GRU(_Recurrent):
    """torch.nn.GRU with a fused recurrence, whose sequence may be split over the ranks of ``comm``.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype: as in
            torch.nn.GRU. The state_dicts of both classes are interchangeable.
        comm: the ranks over which sequences are split in rank order; None for a single process. All ranks hold the
            weights; after ``weft.backward`` every rank has the same total gradient.
        solver: "serial": one rank computes after the other. "pipeline": chunks of the batch travel through the ranks,
            so that ranks compute at the same time; the result is the same. "auto": measures these on the first batch.
        chunks: the number of chunks of the pipeline; by default four per rank.

    Raises ValueError for arguments that do not fit.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: Any = None, dtype: Any = None, *,
        comm: Communicator | None = None, solver: str = "auto", chunks: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device,
            dtype=dtype, comm=comm, solver=solver, chunks=chunks,
        )  # fmt: skip

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

    def _recur(
        self, weights: dict[str, Tensor], products: Tensor, state: State, lengths: Tensor | None, reverse: bool
    ) -> tuple[Tensor, State]:
        y, h = torch.ops.weft.gru_sequence(
            products, state[0], weights["weight_hh"], weights.get("bias_hh"), lengths, reverse
        )
        return y, (h,)


class LSTM(_Recurrent):
    """torch.nn.LSTM with a fused recurrence, whose sequence may be split over the ranks of ``comm``.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype: as in
            torch.nn.LSTM. The state_dicts of both classes are interchangeable.
        comm, solver, chunks: as in weft.GRU.

    Raises ValueError for arguments that do not fit.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None, *,
        comm: Communicator | None = None, solver: str = "auto", chunks: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size,
            device=device, dtype=dtype, comm=comm, solver=solver, chunks=chunks,
        )  # fmt: skip

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

    def _recur(
        self, weights: dict[str, Tensor], products: Tensor, state: State, lengths: Tensor | None, reverse: bool
    ) -> tuple[Tensor, State]:
        y, h, c = torch.ops.weft.lstm_sequence(
            products, state[0], state[1], weights["weight_hh"], weights.get("bias_hh"), weights.get("weight_hr"),
            lengths, reverse,
        )  # fmt: skip
        return y, (h, c)
