"""Predictions for networks of layers: serial, pipeline and multigrid."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

import weft
from weft import _bindings, _tape
from weft.communicator import Communicator, world
from weft.layer_parallel import IterationController, LayerParallel, Solve

from .layer_costs import NetworkCost, measure_layers
from .machine import Machine
from .plan import PlanError, Prediction
from .timing import shortest_seconds

MOST_MICRO_BATCHES = 256
FEW = Solve(relaxations=0, residual=False, skip_downcycle=True, storage="c-points")
"""Cheap solves: F-relaxation, no residuals, a first guess from the coarsest level."""


def default_settings(layers: int) -> list[tuple[int, int, Solve, Solve]]:
    """Returns levels, coarsening factors and solves that suit the number of layers, the cheapest ones first."""
    found = []
    for levels, cfactor in ((2, 4), (2, 8), (2, 16), (3, 4)):
        if layers // cfactor ** (levels - 1) < 2:
            continue
        for forward, backward in ((1, 1), (2, 1), (2, 2), (3, 3)):
            found.append((levels, cfactor, replace(FEW, iterations=forward), replace(FEW, iterations=backward)))
    return found


@dataclass(frozen=True)
class LayerNetwork:
    """The layers of a network with their forms."""

    layers: list[nn.Module]
    forms: list[str]
    tf: float
    comm: Communicator

    def build(self, **options: Any) -> LayerParallel:
        return LayerParallel(self.comm, self.layers, form=self.forms, tf=self.tf, **options)


@dataclass(frozen=True)
class Multigrid:
    """A setting of multigrid, measured in one process."""

    name: str
    description: dict[str, Any]
    seconds: float
    bias: float
    cfactor: int
    options: dict[str, Any]


class LayerMeasurements:
    """The measurements of a network in this process, and the predictions that follow from them. Raises PlanError."""

    def __init__(
        self,
        network: Any,
        x: Any,
        loss: Callable[[Any], Tensor],
        form: str,
        tf: float,
        settings: Sequence[tuple[int, int, Solve, Solve]] | None,
        bound: float,
        repeats: int,
    ) -> None:
        self.net, given = _as_layers(network, form, tf)
        self.notes: list[str] = []
        self.bound = bound
        with _preserved(self.net.layers):
            self.costs, self.serial_seconds = _measure_serial(self.net, x, loss, repeats)
            self.pipelines = _measure_pipelines(self.net, x, loss, repeats, self.notes)
        if settings is None and given is None:
            settings = default_settings(len(self.net.layers))
        candidates = [_options(*each) for each in settings or ()]
        if settings is None and given is not None:
            candidates = [_from_description(given)]
        with _preserved(self.net.layers):
            self.grids = _measure_multigrid(self.net, x, loss, candidates, bound, repeats, self.notes)

    def predict(self, ranks: Sequence[int], machine: Machine) -> list[Prediction]:
        predictions = [Prediction(1, "serial", "", self.serial_seconds, _serial_memory(self.costs), 0.0, {"levels": 1})]
        for count in ranks:
            if self.pipelines and count > 1:
                predictions.append(_predict_pipeline(self.net, self.costs, self.pipelines, count, machine))
            if self.grids:
                predictions.append(_predict_multigrid(self.net, self.costs, self.grids, count, machine, self.bound))
        return predictions


def _as_layers(network: Any, form: str, tf: float) -> tuple[LayerNetwork, dict[str, Any] | None]:
    """Returns the layers, and the description of a LayerParallel network with several levels."""
    comm = world().split(world().rank) if world().size > 1 else world()
    if not isinstance(network, LayerParallel):
        return LayerNetwork(list(network), [form] * len(network), tf, comm), None
    layers = [network.layers[str(number)] for number in range(network.total_layers)]
    several = network.levels > 1 or network.backward_levels > 1
    return LayerNetwork(layers, network._forms, network.tf, comm), network._description if several else None


def _options(levels: int, cfactor: int, forward: Solve, backward: Solve) -> dict[str, Any]:
    return {"levels": levels, "cfactor": cfactor, "forward": forward, "backward": backward}


# ---- measurements in this process


@contextmanager
def _preserved(layers: Sequence[nn.Module]) -> Iterator[None]:
    """Restores buffers, gradients and random numbers at the end."""
    buffers = [(buffer, buffer.detach().clone()) for layer in layers for buffer in layer.buffers()]
    gradients = [(parameter, parameter.grad) for layer in layers for parameter in layer.parameters()]
    random = torch.get_rng_state()
    try:
        yield
    finally:
        for buffer, value in buffers:
            buffer.data.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        torch.set_rng_state(random)


def training_step(net: LayerParallel, x: Any, loss: Callable[[Any], Tensor]) -> None:
    """Computes the gradients of a batch and drops them."""
    weft.backward(net.loss(loss, x))
    for parameter in net.parameters():
        parameter.grad = None


def _step_seconds(net: LayerParallel, x: Any, loss: Callable[[Any], Tensor], repeats: int) -> float:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*did not converge.*")
        return shortest_seconds(lambda: training_step(net, x, loss), repeats)


def _measure_serial(
    net: LayerNetwork, x: Any, loss: Callable[[Any], Tensor], repeats: int
) -> tuple[NetworkCost, float]:
    """Returns the costs of the layers, scaled to the time of a whole step, and this time."""
    try:
        costs = measure_layers(net.layers, net.forms, net.tf / len(net.layers), x, loss, repeats)
        seconds = _step_seconds(net.build(levels=1), x, loss, repeats)
    except Exception as error:
        _tape.reset_tape()
        raise PlanError(f"weft: plan: the network failed with the input {_shapes(x)}: {error}") from error
    return costs, seconds


def _measure_pipelines(
    net: LayerNetwork, x: Any, loss: Callable[[Any], Tensor], repeats: int, notes: list[str]
) -> dict[int, float]:
    """Returns the time of a step on one rank for numbers of micro-batches."""
    rows = len(x) if isinstance(x, Tensor) else len(x[0])
    found: dict[int, float] = {}
    count = 1
    try:
        while count <= min(rows, MOST_MICRO_BATCHES):
            pipeline = net.build(solver="pipeline", micro_batches=count)
            found[count] = _step_seconds(pipeline, x, loss, repeats)
            count *= 2
    except RuntimeError as error:
        _tape.reset_tape()
        notes.append(f"the pipeline cannot use {count} micro-batches: {error}")
    return found


def _measure_multigrid(
    net: LayerNetwork,
    x: Any,
    loss: Callable[[Any], Tensor],
    candidates: Sequence[dict[str, Any]],
    bound: float,
    repeats: int,
    notes: list[str],
) -> list[Multigrid]:
    """Measures, for each grid, the first setting whose bias is within the bound, or else the last one."""
    if not candidates:
        notes.append(f"mgrit is not available: {len(net.layers)} layers are too few for a coarse level")
    found = []
    grids: dict[str, list[dict[str, Any]]] = {}
    for candidate in candidates:
        grids.setdefault(str((candidate["levels"], candidate["cfactor"])), []).append(candidate)
    try:
        for settings in grids.values():
            bias = 0.0
            for options in settings:
                bias = _measure_bias(net, x, loss, options)
                if bias <= bound:
                    break
            found.append(_measure_setting(net, x, loss, options, bias, repeats))
    except (RuntimeError, ValueError) as error:
        _tape.reset_tape()
        notes.append(f"mgrit is not available: {error}")
    return found


def _measure_bias(net: LayerNetwork, x: Any, loss: Callable[[Any], Tensor], options: dict[str, Any]) -> float:
    """Returns the relative error of the gradient of a batch."""
    control = IterationController("report", bound=float("inf"), every=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*did not converge.*")
        training_step(net.build(**options, control=control), x, loss)
    return control.log[0].bias if control.log else 0.0


def _measure_setting(
    net: LayerNetwork, x: Any, loss: Callable[[Any], Tensor], options: dict[str, Any], bias: float, repeats: int
) -> Multigrid:
    grid = net.build(**options)
    seconds = _step_seconds(grid, x, loss, repeats)
    description: dict[str, Any] = dict(grid._description)
    for direction, statistics in zip(("forward", "backward"), grid.statistics, strict=True):
        # Solves that converged took fewer iterations than the limit.
        description[direction] = {**description[direction], "iterations": max(statistics.iterations, 1)}
    iterations = "+".join(str(description[direction]["iterations"]) for direction in ("forward", "backward"))
    name = f"{grid.levels} levels, cfactor {options['cfactor']}, {iterations} iterations"
    cfactor = options["cfactor"] if isinstance(options["cfactor"], int) else 2
    return Multigrid(name, description, seconds, bias, cfactor, options)


def _from_description(description: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of LayerParallel from the description of one."""

    def solve(values: dict[str, Any]) -> Solve:
        merged = {}
        for name, value in values.items():
            if isinstance(value, tuple):  # everywhere, and the levels that differ
                value = {**dict.fromkeys(range(64), value[0]), **value[1]} if value[1] else value[0]
            merged[name] = value
        if merged["guess"] == "callback":
            raise ValueError("weft: plan: an initial guess that is a function cannot be planned")
        return Solve(**merged)

    def cfactor(grid: dict[str, Any]) -> Any:
        everywhere, exceptions = grid["cfactor"]
        return {**dict.fromkeys(range(64), everywhere), **exceptions} if exceptions else everywhere

    forward, backward = description["forward_grid"], description["backward_grid"]
    return {
        "levels": forward["levels"],
        "cfactor": cfactor(forward),
        "min_coarse": forward["min_coarse"],
        "backward_levels": backward["levels"],
        "backward_cfactor": cfactor(backward),
        "forward": solve(description["forward"]),
        "backward": solve(description["backward"]),
    }


# ---- predictions


def _predict_pipeline(
    net: LayerNetwork, costs: NetworkCost, measured: dict[int, float], ranks: int, machine: Machine
) -> Prediction:
    """Selects the fastest number of micro-batches."""
    best: tuple[float, int] | None = None
    for count, seconds in measured.items():
        # A step of `count` micro-batches takes `seconds` on one rank; each gets an equal share.
        part = costs.scaled(seconds / costs.training_seconds / count)
        part = replace(part, state_bytes=costs.state_bytes // count)
        result = _bindings.load().plan_pipeline(
            len(net.layers), ranks, [part.describe()], [0] * count, machine.describe()
        )
        if best is None or result["seconds"] < best[0]:
            best = (result["seconds"], count)
    assert best is not None
    seconds, count = best
    options = {"solver": "pipeline", "micro_batches": count}
    return Prediction(ranks, "pipeline", _counted(count), seconds, pipeline_memory(costs, ranks, count), 0.0, options)


def _counted(micro_batches: int) -> str:
    return "1 micro-batch" if micro_batches == 1 else f"{micro_batches} micro-batches"


def _predict_multigrid(
    net: LayerNetwork,
    costs: NetworkCost,
    grids: Sequence[Multigrid],
    ranks: int,
    machine: Machine,
    bound: float,
) -> Prediction:
    """Selects the fastest setting within the bound, or else the one with the smallest bias."""
    found = []
    for grid in grids:
        replayed = _replay_multigrid(net, costs, grid, 1, machine)
        scale = grid.seconds / replayed  # the replay of one rank then takes the measured time
        seconds = _replay_multigrid(net, costs.scaled(scale), grid, ranks, machine)
        memory = multigrid_memory(costs, ranks, grid.cfactor)
        found.append(Prediction(ranks, "mgrit", grid.name, seconds, memory, grid.bias, grid.options))
    accurate = [each for each in found if each.bias <= bound]
    if accurate:
        return min(accurate, key=lambda each: each.seconds)
    return min(found, key=lambda each: each.bias)


def _replay_multigrid(net: LayerNetwork, costs: NetworkCost, grid: Multigrid, ranks: int, machine: Machine) -> float:
    found = _bindings.load().plan_multigrid(
        len(net.layers), ranks, grid.description, costs.describe(), machine.describe()
    )
    return found["seconds"]


# ---- memory


def _layers_of_rank(count: int, ranks: int, rank: int) -> range:
    return range(*_bindings.load().balanced_range(count, ranks, rank))


def _serial_memory(costs: NetworkCost) -> int:
    return sum(2 * layer.parameter_bytes + layer.graph_bytes for layer in costs.layers)


def pipeline_memory(costs: NetworkCost, ranks: int, micro_batches: int) -> int:
    """Weights, gradients, and the graphs of the micro-batches that a rank holds at the same time."""
    stages = min(ranks, len(costs.layers))
    most = 0
    for rank in range(stages):
        own = [costs.layers[number] for number in _layers_of_rank(len(costs.layers), ranks, rank)]
        held = min(stages - rank + 1, micro_batches) / micro_batches
        most = max(most, sum(2 * layer.parameter_bytes + int(held * layer.graph_bytes) for layer in own))
    return most


def multigrid_memory(costs: NetworkCost, ranks: int, cfactor: int) -> int:
    """Weights, gradients, the graphs of a rank's layers, and three states per coarse point."""
    most = 0
    for rank in range(min(ranks, len(costs.layers))):
        own = [costs.layers[number] for number in _layers_of_rank(len(costs.layers), ranks, rank)]
        states = 3 * -(-len(own) // cfactor) + 1
        graphs = sum(2 * layer.parameter_bytes + layer.graph_bytes for layer in own)
        most = max(most, graphs + states * costs.state_bytes)
    return most


def _shapes(x: Any) -> str:
    return str(tuple(x.shape)) if isinstance(x, Tensor) else str([tuple(t.shape) for t in x])
