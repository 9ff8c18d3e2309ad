"""A pass through a LayerParallel network: the functions that the library calls in forward and in backward."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from weft import _call_site

from .dropout import Evaluation, current_evaluation
from .micro_batches import PerSample, rows_of
from .module_state import Place, kind_of, update_copy
from .sharing import BufferUpdates, SharedBuffers
from .solve import SolveStatistics

if TYPE_CHECKING:
    from .network import LayerParallel
    from .serial import State


class HeldLayer:
    """A layer on this rank: its own, or a copy of another rank's."""

    __slots__ = ("buffers", "module", "shared", "takes_dt")

    def __init__(self, module: nn.Module, form: str, shared: list[tuple[str, nn.Module]]) -> None:
        self.module = module
        self.takes_dt = form == "step"
        self.buffers: list[Place] = [(part._buffers, name) for part in module.modules() for name in part._buffers]
        self.shared = shared


class Pass:
    """Owned by the pass and its graph. It refers to the network only during forward, so that a graph that is still
    alive does not keep the network alive."""

    def __init__(
        self,
        network: LayerParallel,
        x: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        loss: Callable[[State, int, int], Tensor] | None = None,
    ) -> None:
        self._network: LayerParallel | None = network
        self._x = x
        self._layers = network._held
        self._library = network._network
        self._warned = network._warned
        self._controlled = network._is_controlled
        self.coarsen, self.refine = network._transfers
        self.guess = network._guess
        self.plain = network._plain and loss is None
        self._loss = loss
        self.updates: BufferUpdates = {}
        self._counts: dict[int, int] = {}
        self.assigned: list[int] = []
        self.extras: list[Tensor] = []
        self.leaves: list[Tensor] = []
        self._args, self._kwargs = args, kwargs
        self._begin = 0  # the first sample of the micro-batch
        self._per_sample: list[int] = []  # indices of the values that are divided into micro-batches
        if args or kwargs:
            self._values, self._structure = tree_flatten((args, kwargs))
            self._prepare_values()

    def _prepare_values(self) -> None:
        """Unwraps PerSample. Replaces tensors that require grad by leaves: their own graphs and hooks are not part of
        the solve."""
        for i, value in enumerate(self._values):
            if isinstance(value, PerSample):
                value = self._values[i] = value.tensor
                self._per_sample.append(i)
            if not self.plain and isinstance(value, Tensor) and value.requires_grad:
                self.extras.append(value)
                self._values[i] = value.detach().requires_grad_()
                self.leaves.append(self._values[i])
        self._args, self._kwargs = tree_unflatten(self._values, self._structure)

    # ---- called by the library

    def begin(self) -> Any:
        assert self._network is not None
        self._network._follow_changes()
        return self._x

    def begin_micro_batch(self, begin: int, end: int, total: int) -> None:
        self._begin = begin
        if not self._per_sample:
            return
        values = list(self._values)
        for i in self._per_sample:
            with torch.set_grad_enabled(values[i].requires_grad):
                values[i] = rows_of(values[i], begin, end, total, "a PerSample argument")
        self._args, self._kwargs = tree_unflatten(values, self._structure)

    def loss(self, y: State, begin: int, end: int) -> Tensor:
        assert self._loss is not None
        token = current_evaluation.set(Evaluation(begin))
        try:
            return self._loss(y, begin, end)
        finally:
            current_evaluation.reset(token)

    def evaluate(self, number: int, x: State, dt: float, keep: bool) -> State:
        layer = self._layers[number]
        if not layer.buffers:
            return self._call(layer, x, dt)
        if keep and layer.shared and not self.plain:
            return self._call_sharing(number, layer, x, dt)
        before = [place[name] for place, name in layer.buffers]
        try:
            return self._call(layer, x, dt)
        finally:
            for (place, name), buffer in zip(layer.buffers, before, strict=True):
                if place.get(name) is not buffer:  # the layer assigned another tensor
                    if keep:
                        self.assigned.append(number)
                    else:
                        place[name] = buffer

    def _call(self, layer: HeldLayer, x: State, dt: float) -> State:
        token = current_evaluation.set(Evaluation(self._begin))
        try:
            if layer.takes_dt:
                return layer.module(x, dt, *self._args, **self._kwargs)
            return layer.module(x, *self._args, **self._kwargs)
        finally:
            current_evaluation.reset(token)

    def _call_sharing(self, number: int, layer: HeldLayer, x: State, dt: float) -> State:
        buffers = SharedBuffers(layer.shared)
        try:
            y = self._call(layer, x, dt)
            self.updates[(self._count(number), number)] = buffers.take_changes()
        except BaseException:
            buffers.restore()
            raise
        return y

    def _count(self, number: int) -> int:
        """Returns how often this layer has updated shared buffers; the pipeline updates them once per micro-batch."""
        count = self._counts[number] = self._counts.get(number, -1) + 1
        return count

    def kind(self, number: int) -> bytes:
        return kind_of(self._layers[number].module)

    def describe(self, number: int) -> bytes:
        assert self._network is not None
        return self._network._lent[number].describe(self._layers[number].module)

    def update(self, number: int, description: bytes) -> None:
        assert self._network is not None
        copy = self._layers[number].module
        updated = update_copy(copy, description)
        if updated is not copy:
            self._network._replace_copy(number, updated)

    def solved(self, backward: bool) -> None:
        direction = "backward" if backward else "forward"
        if direction in self._warned:
            return
        statistics = SolveStatistics(direction, **self._library.statistics()[int(backward)])
        # A controller measures the error, so it need not be estimated; a state that is not finite has another cause.
        known = self._controlled and math.isfinite(statistics.last_change or 0.0)
        if statistics.stalled and not known:
            self._warned.add(direction)
            warnings.warn(_warning(direction, statistics), stacklevel=_call_site.depth_of_caller())

    def end(self) -> None:
        """Called at the end of forward."""
        self._network = self._x = None


def _warning(direction: str, statistics: SolveStatistics) -> str:
    change, known = statistics.last_change, statistics.known
    if change is None or not math.isfinite(change):
        return (
            f"weft: the {direction} solve of LayerParallel did not converge: a state is NaN or infinite; check the "
            "layers and the initial guess (WEFT_DEBUG=1 reports the step at which it appears)"
        )
    history = f", residuals from {known[0]:.3g} to {known[-1]:.3g}" if len(known) > 1 else ""
    return (
        f"weft: the {direction} solve of LayerParallel did not converge: after {statistics.iterations} iterations its "
        f"last sweep still changed the states by {change:.0%}{history}. The "
        f"{'gradients' if direction == 'backward' else 'output'} may be wrong by as much; "
        "use more iterations, fewer levels, a smaller cfactor or a smaller tf"
    )
