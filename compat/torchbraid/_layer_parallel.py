"""torchbraid.LayerParallel, implemented with weft.LayerParallel."""

from __future__ import annotations

import copy
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import weft
from weft import _bindings, _objects
from weft.layer_parallel import SerialNetwork, SolveStatistics

from ._blocks import Block, Layers, expand
from ._diagnostics import diagnose
from ._module import LPModule
from ._spatial import Transfer, spatial_functions
from ._splines import spline_makers


class LayerParallel(LPModule):
    """A network of ODE steps and plain layers, distributed over the ranks of an mpi4py communicator. Collective.

    Rank 0 provides the input and gets the output. Call ``backward`` on all ranks; it uses the gradient of rank 0.
    """

    def __init__(
        self,
        comm: Any,
        layer_blocks: Block | Sequence[Block],
        global_steps: int | Sequence[int],
        Tf: float,
        max_fwd_levels: int = 1,
        max_bwd_levels: int = 1,
        max_iters: int = 10,
        spatial_ref_funcs: Sequence[Transfer] | None = None,
        levels_to_coarsen: Sequence[int] | None = None,
        user_mpi_buf: bool = False,
        nsplines: int = 0,
        splinedegree: int = 1,
        spatial_ref_pair: Sequence[Transfer] | None = None,
        max_levels: int | None = None,
    ) -> None:
        _reject_unsupported(user_mpi_buf)
        if max_levels is not None:  # the argument of older versions
            max_fwd_levels = max_bwd_levels = max_levels
        super().__init__(comm, max_fwd_levels, max_bwd_levels, max_iters)
        self._coarsen, self._refine = spatial_functions(spatial_ref_funcs or spatial_ref_pair, levels_to_coarsen)
        makers = expand(layer_blocks, global_steps)
        if nsplines:
            makers = spline_makers(makers, nsplines, splinedegree, float(Tf))
        self.global_steps = len(makers)
        self.Tf = float(Tf)
        self.dt = self.Tf / len(makers)
        self._diagnosing = False
        own = _bindings.load().balanced_range(len(makers), self._group.size, self._group.rank)
        self._layers = Layers(makers, range(*own))
        self.fwd_app.attach(comm, self.global_steps, self.Tf, range(*own))
        self.bwd_app.attach(comm, self.global_steps, self.Tf, range(*own))
        self.layer_models = nn.ModuleList(self._layers.own.values())
        self._discard_network()

    @property
    def local_layers(self) -> nn.Sequential:
        """The layers of this rank."""
        return nn.Sequential(*self.layer_models)

    @property
    def group(self) -> weft.Communicator:
        return self._group

    def numbered_layers(self) -> list[tuple[int, nn.Module]]:
        """Returns this rank's layers with their numbers in the network."""
        return list(zip(self._layers.own, self.layer_models, strict=True))

    # ---- evaluation

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Collective. Returns the output on rank 0; ``args`` and ``kwargs`` are passed to every layer."""
        network = self._ready()
        # Turns off weft's tape, which would run backward even for outputs that the program discards.
        with self.timer("forward"), weft.tape(False):
            y = network(x, *args, **kwargs)
        self._report("forward", 0)
        self._watch_backward(y)
        return y

    def getFineTimePoints(self) -> tuple[list[float], list[Any]]:
        """Returns times and states of this rank's points. Valid between forward and backward."""
        if not self.fwd_app.stores_all:
            raise RuntimeError("torchbraid (weft): getFineTimePoints needs all points; call setFwdStorage(0)")
        if self._network is None or not self._has_states:
            raise RuntimeError(
                "torchbraid (weft): no states are stored; call this after a forward pass and before its backward"
            )
        states = self._network.states()
        return [point * self.dt for point, _ in states], [state for _, state in states]

    def buildSequentialOnRoot(self) -> nn.Module | None:
        """Collective. Returns a plain module with copies of all layers on rank 0; None on other ranks."""
        weights = _objects.gather(self._group, {number: _weights(layer) for number, layer in self._layers.own.items()})
        if self._group.rank != 0:
            return None
        make = self._layers.maker()
        layers = {str(number): copy.deepcopy(make(number)) for number in range(self.global_steps)}
        with torch.no_grad():
            for number, values in ((n, v) for part in weights for n, v in part.items()):
                for target, value in zip(_tensors(layers[str(number)]), values, strict=True):
                    target.copy_(value)
        return SerialNetwork(layers, self._layers.forms, self.Tf).train(self.training)

    def startStateCommunication(self, *_: Any, **__: Any) -> None:
        """Does nothing: weft posts its messages early."""

    def endStateCommunication(self, *_: Any, **__: Any) -> None:
        """Does nothing: forward and backward complete all messages."""

    # ---- statistics

    def diagnostics(self, enable: bool) -> None:
        """Enables getDiagnostics for the following forward passes."""
        self._diagnosing = bool(enable)

    def getDiagnostics(self) -> dict[str, list[Any]]:
        """Collective. Returns norms of the input, the output and the weights of each step."""
        if not self._diagnosing:
            raise RuntimeError("torchbraid (weft): call diagnostics(True) before the forward pass")
        return diagnose(self._group, self.getFineTimePoints, self._layers.own, self.dt)

    # ---- nn.Module

    def train(self, mode: bool = True) -> LayerParallel:
        super().train(mode)
        if self._network is not None:
            self._network.train(mode)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LayerParallel:
        super()._apply(fn, recurse)
        self._layers.apply(fn)
        self._discard_network()
        return self

    def extra_repr(self) -> str:
        rank, size = self._group.rank, self._group.size
        return f"{len(self.layer_models)} of {self.global_steps} layers on rank {rank} of {size}"

    # ---- inner workings

    def _discard_network(self) -> None:
        # Bypasses nn.Module.__setattr__, which would register every weight twice.
        object.__setattr__(self, "_network", None)
        self._grid: Any = None
        self._has_states = False

    def _ready(self) -> weft.LayerParallel:
        """Returns the network. Collective if the time grids changed, because coarse steps then borrow other layers."""
        grid = self._time_grids()
        coarsens = self._coarsen is not None
        solves = (self.fwd_app.solve(coarsens), self.bwd_app.solve(coarsens))
        if self._network is None or self._grid != grid:
            network = weft.LayerParallel(
                self._group,
                self._layers.maker(),
                steps=self.global_steps,
                tf=self.Tf,
                form=self._layers.forms,
                forward=solves[0],
                backward=solves[1],
                coarsen=self._coarsen,
                refine=self._refine,
                relinearize=True,
                keep_states=self.fwd_app.stores_all,
                **grid,
            ).train(self.training)
            object.__setattr__(self, "_network", network)
            self._grid = grid
        elif self._network.solves != solves:
            self._network.solves = solves
        for number, layer in zip(self._layers.own, self.layer_models, strict=True):
            if self._layers.own[number] is not layer:  # the program replaced it
                self._layers.own[number] = self._network.layers[str(number)] = layer
        return self._network

    def _time_grids(self) -> dict[str, int | Mapping[int, int]]:
        return {
            "levels": self.fwd_app.max_levels,
            "cfactor": self.fwd_app.cfactor(),
            "backward_levels": self.bwd_app.max_levels,
            "backward_cfactor": self.bwd_app.cfactor(),
            "min_coarse": self.fwd_app.min_coarse,
        }

    def _watch_backward(self, y: Any) -> None:
        first = tree_leaves(y)[0]
        self._has_states = True
        node = first.grad_fn
        if node is None:
            return
        me, start = weakref.ref(self), 0.0

        def before(_: Any) -> None:
            nonlocal start
            start = time.perf_counter()

        def after(_: Any, __: Any) -> None:  # not called if backward fails
            if (network := me()) is not None:
                network._end_backward(time.perf_counter() - start)

        node.register_prehook(before)
        node.register_hook(after)

    def _end_backward(self, seconds: float) -> None:
        if self._solves():
            self.timer("backward").add(seconds)
        self._report("backward", 1)
        if self._network is not None and self._has_states:
            self._network.release_states()  # frees the memory of the batch
            self._has_states = False

    def _solves(self) -> bool:
        """Whether there are solves to report; one rank with one level is a plain loop."""
        network = self._network
        return network is not None and not (self._group.size == network.levels == network.backward_levels == 1)

    def _statistics(self, which: int) -> SolveStatistics | None:
        return None if self._network is None else self._network.statistics[which]


def _tensors(layer: nn.Module) -> list[Tensor]:
    return [*layer.parameters(), *layer.buffers()]


def _weights(layer: nn.Module) -> list[Tensor]:
    return [tensor.detach().cpu() for tensor in _tensors(layer)]


def _reject_unsupported(user_mpi_buf: bool) -> None:
    if user_mpi_buf and torch.cuda.is_available():
        raise NotImplementedError(
            "torchbraid (weft): states on GPUs are staged through host memory; use user_mpi_buf=False"
        )
