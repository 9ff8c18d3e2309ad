"""torchbraid's recurrent networks, implemented with weft.TimeParallel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

import weft
from weft.layer_parallel import SolveStatistics

from ._module import LPModule
from ._solver import SolverSettings

State = tuple[Tensor, ...]


class GRU_Serial(nn.Module):
    """Runs a cell over a whole sequence on one process.

    Args:
        GRU_model: a cell with ``forward(level, tstart, tstop, x, h)``; ``h`` is a tuple of tensors [layers, batch,
            ...].
        num_layers, hidden_size: the shape of the default initial state.
        dt: the time of a step.
    """

    def __init__(self, GRU_model: nn.Module, num_layers: int, hidden_size: int, dt: float = 1.0) -> None:
        super().__init__()
        self.num_layers = num_layers
        self.hidden_size = hidden_size
        self.dt = dt
        self.GRU_model = GRU_model

    def forward(self, x: Tensor, h: Tensor | State | None = None) -> Tensor | State:
        """Returns the final state for ``x`` [batch, steps, features]."""
        state = _initial(x, h, self.num_layers, self.hidden_size)
        for step in range(x.size(1)):
            state = tuple(self.GRU_model(0, 0.0, self.dt, x[:, step, :], state))
        return _plain(state)


RNN_Serial = GRU_Serial


class GRU_Parallel(LPModule):
    """Runs a cell over a sequence that is split over the ranks, by multigrid in time. Collective.

    Call ``backward`` on all ranks; it uses the gradient of rank 0. All ranks then have the total gradient of the cell.

    Args:
        comm: an mpi4py or weft communicator.
        basic_block: a cell with ``forward(level, tstart, tstop, x, h)``; ``h`` is a tuple of tensors [layers, batch,
            ...]. If it has ``reduceX`` and ``fastForward``, the former runs once for all steps of this rank, and the
            latter takes its result instead of ``x``.
        num_steps: the number of steps on each rank. Ranks may have more or fewer: see Tf.
        hidden_size, num_layers: the shape of the default initial state.
        Tf: the end time of the whole sequence, whose steps have equal lengths.
        max_levels: older name for max_fwd_levels and max_bwd_levels.
        model_compute_steps: has no effect.
    """

    def __init__(
        self,
        comm: Any,
        basic_block: nn.Module,
        num_steps: int,
        hidden_size: int,
        num_layers: int,
        Tf: float,
        max_fwd_levels: int = 1,
        max_bwd_levels: int = 1,
        max_iters: int = 10,
        max_levels: int | None = None,
        model_compute_steps: bool = True,
    ) -> None:
        if max_levels is not None:
            max_fwd_levels = max_bwd_levels = max_levels
        super().__init__(comm, max_fwd_levels, max_bwd_levels, max_iters)
        self.num_layers = num_layers
        self.hidden_size = hidden_size
        self.num_steps = num_steps
        self.Tf = float(Tf)
        self.dt = self.Tf / (num_steps * self._group.size)
        self.GRU_models = basic_block
        self.fwd_app.has_fastforward = hasattr(basic_block, "fastForward") and hasattr(basic_block, "reduceX")
        self._fast_forward_calls = 0
        self._batch = 0
        # Whether one call of the cell may compute several steps; None before it is known. See _Cell.
        self._joins: bool | None = None
        self._agrees: bool | None = None
        # Bypasses nn.Module.__setattr__, which would register the cell a second time.
        object.__setattr__(self, "_network", None)
        self._built_for: Any = None

    def forward(self, x: Tensor, h: Tensor | State | None = None) -> Tensor | State:
        """Collective. Returns the final state on every rank for this rank's steps ``x`` [batch, steps, features]."""
        initial = _initial(x, h, self.num_layers, self.hidden_size)
        if x.dim() != 3:
            raise ValueError(f"torchbraid (weft): expected an input [batch, steps, features], got {tuple(x.shape)}")
        network = self._ready()
        # Turns off weft's tape, which would run backward even for outputs that the program discards.
        with self.timer("forward"), weft.tape(False):
            self._batch = x.size(0)
            self._agree_on_steps(x.size(1))
            steps = self._inputs(x.transpose(0, 1))
            _, final = network(steps, tuple(part.transpose(0, 1).contiguous() for part in initial))
            self._joins = self._agrees
        self._report("forward", 0)
        state = tuple(part.transpose(0, 1) for part in (final if isinstance(final, tuple) else (final,)))
        if state[0].requires_grad:
            state = tuple(_GradientOfFirstRank.apply(part, self._group.rank) for part in state)
        return _plain(state)

    def _agree_on_steps(self, count: int) -> None:
        """Collective. A rank may have more or fewer steps than ``num_steps``."""
        counts = self._group.all_gather(torch.tensor([count])).tolist()
        self._first = sum(counts[: self._group.rank])
        self.dt = self.Tf / max(1, sum(counts))

    def getFastForwardInfo(self) -> tuple[float, int]:
        """Returns the seconds in reduceX and the number of its calls in the last forward pass."""
        seconds = self.timer("reduceX").getTimes()[-1] if self._fast_forward_calls else 0.0
        return seconds, self._fast_forward_calls

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.GRU_models.zero_grad(set_to_none)

    def _statistics(self, which: int) -> SolveStatistics | None:
        return None if self._network is None else self._network.statistics[which]

    def _ready(self) -> weft.TimeParallel:
        settings = (self.fwd_app.solve(), self.bwd_app.solve(), self.fwd_app.cfactor(), self.bwd_app.cfactor())
        built_for = (settings, self.fwd_app.has_fastforward)
        if self._network is None or self._built_for != built_for:
            network = weft.TimeParallel(
                _Cell(self),
                comm=self._group,
                solver="mgrit",
                outputs="last",
                levels=self.fwd_app.max_levels,
                cfactor=settings[2],
                backward_levels=self.bwd_app.max_levels,
                backward_cfactor=settings[3],
                min_coarse=self.fwd_app.min_coarse,
                forward=settings[0],
                backward=settings[1],
            )
            object.__setattr__(self, "_network", network)
            self._built_for = built_for
        return self._network

    def _inputs(self, x: Tensor) -> Tensor:
        """Returns the input of the cell in each step, and in a last column the number of the step."""
        steps, batch = x.shape[:2]
        self._fast_forward_calls = 0
        if self.fwd_app.has_fastforward and steps:
            reduce = _Reduction(self.GRU_models)
            names, values = zip(*reduce.named_parameters(), strict=True)
            shared = torch.ops.weft.share(list(values), self._group._id) if self._group.size > 1 else values
            with self.timer("reduceX"):
                parts = functional_call(reduce, dict(zip(names, shared, strict=True)), (x.flatten(0, 1),))
            self._fast_forward_calls = 1
            self._shapes = [part.shape[1:] for part in parts]
            columns = [part.reshape(steps, batch, -1) for part in parts]
        else:
            columns = [x]
        numbers = torch.arange(self._first, self._first + steps, dtype=x.dtype).view(-1, 1, 1).expand(-1, batch, 1)
        return torch.cat([*columns, numbers], dim=2)


class _GradientOfFirstRank(torch.autograd.Function):
    """The identity, whose gradient is that of rank 0: other ranks contribute zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rank: int) -> Tensor:
        ctx.rank = rank
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return (gradient if ctx.rank == 0 else torch.zeros_like(gradient)), None


class _Reduction(nn.Module):
    """The hoisted part of a cell."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> State:
        return tuple(self.cell.reduceX(x))


class _Cell(nn.Module):
    """A cell of torchbraid as weft.TimeParallel calls it: with rows of one or several steps.

    A cell may depend on the time of a step. The first pass therefore calls it for each step, and compares the results
    with those of one call for several steps. If they are equal, the next passes need fewer calls.
    """

    def __init__(self, owner: GRU_Parallel) -> None:
        super().__init__()
        self.cell = owner.GRU_models
        self._fast = owner.fwd_app.has_fastforward
        self._levels = {**_levels(owner.bwd_app), **_levels(owner.fwd_app)}
        object.__setattr__(self, "_owner", owner)

    def forward(self, x: Tensor, state: State, dt: float = 1) -> State:
        owner = self._owner
        if owner._joins or len(x) == owner._batch:
            return self._call(x, state, dt)
        steps = zip(x.split(owner._batch), *(part.split(owner._batch) for part in state), strict=True)
        results = [self._call(step, tuple(before), dt) for step, *before in steps]
        by_step = tuple(torch.cat(parts) for parts in zip(*results, strict=True))
        if owner._joins is None and owner._agrees is not False:
            owner._agrees = self._agrees(x, state, dt, by_step)
        return by_step

    def _agrees(self, x: Tensor, state: State, dt: float, by_step: State) -> bool:
        try:
            joined = self._call(x, state, dt)
        except Exception:  # a cell for batches of one size
            return False
        return all(_equal(a, b) for a, b in zip(joined, by_step, strict=True))

    def _call(self, x: Tensor, state: State, dt: float) -> State:
        begin = x[0, -1].item() * self._owner.dt
        times = (self._levels.get(int(dt), 0), begin, begin + dt * self._owner.dt)
        by_layer = tuple(part.transpose(0, 1) for part in state)
        if self._fast:
            shapes = self._owner._shapes
            parts = x[:, :-1].split([shape.numel() for shape in shapes], dim=1)
            reduced = tuple(part.reshape(-1, *shape) for part, shape in zip(parts, shapes, strict=True))
            result = self.cell.fastForward(*times, reduced, by_layer)
        else:
            result = self.cell(*times, x[:, :-1], by_layer)
        return tuple(part.transpose(0, 1) for part in result)


def _equal(a: Tensor, b: Tensor) -> bool:
    """Whether the tensors are equal up to rounding."""
    bound = 100 * torch.finfo(b.dtype).eps
    return a.shape == b.shape and torch.allclose(a, b, rtol=bound, atol=bound)


def _levels(app: SolverSettings) -> dict[int, int]:
    """Returns the levels by the number of fine steps in one of their steps."""
    levels, count = {}, 1
    for level in range(app.max_levels):
        levels[count] = level
        count *= app.cfactor()[level]
    return levels


def _initial(x: Tensor, h: Tensor | State | None, num_layers: int, hidden_size: int) -> State:
    if h is None:
        return (x.new_zeros(num_layers, x.size(0), hidden_size),)
    return (h,) if isinstance(h, Tensor) else tuple(h)


def _plain(state: State) -> Tensor | State:
    return state[0] if len(state) == 1 else state
