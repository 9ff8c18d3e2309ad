"""``plan``: measures a network in one process and predicts its training step on many ranks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn

from weft.layer_parallel import LayerParallel, Solve
from weft.time_parallel.network import RecurrentNetwork
from weft.time_parallel.time_parallel import TimeParallel

from .machine import Machine

RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class PlanError(ValueError):
    """The network cannot be planned; the message contains the reason."""


@dataclass(frozen=True)
class Prediction:
    """The training step of one solver on a number of ranks."""

    ranks: int
    solver: str
    """"serial", "pipeline", "mgrit" or "newton"."""
    setting: str
    """Micro-batches, or levels, coarsening factor and iterations."""
    seconds: float
    memory: int
    """Bytes of weights, gradients and states on the rank that needs most."""
    bias: float
    """Relative error of the gradient, measured in one process; 0 for exact solvers."""
    options: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The arguments of the network for this solver."""

    def to_dict(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "options"}


@dataclass(frozen=True)
class Plan:
    """Predictions for numbers of ranks. ``str(plan)`` is a table."""

    network: str
    machine: Machine
    bound: float
    predictions: Sequence[Prediction]
    notes: Sequence[str] = ()
    """Solvers that are not available, with the reason."""

    @property
    def serial(self) -> Prediction:
        return next(each for each in self.predictions if each.solver == "serial")

    def of(self, solver: str) -> list[Prediction]:
        """Returns the predictions of a solver, by the number of ranks."""
        return [each for each in self.predictions if each.solver == solver]

    @property
    def solvers(self) -> list[str]:
        return list(dict.fromkeys(each.solver for each in self.predictions))

    @property
    def ranks(self) -> list[int]:
        return sorted({each.ranks for each in self.predictions})

    def best(self, ranks: int | None = None) -> Prediction:
        """Returns the fastest prediction whose bias is within the bound: with exactly this number of ranks, or with
        any. Serial training is always an option."""
        options = [
            each
            for each in self.predictions
            if each.bias <= self.bound and (ranks is None or each.ranks == ranks or each.solver == "serial")
        ]
        return min(options, key=lambda each: (each.seconds, each.ranks))

    def answer(self, ranks: int | None = None) -> str:
        """Returns the advice in a sentence."""
        best = self.best(ranks)
        where = f"on {ranks} ranks" if ranks is not None else f"on up to {self.ranks[-1]} ranks"
        if best.solver == "serial":
            return f"stay serial: no solver is faster {where} (serial: {_time(best.seconds)} per step)"
        gain = self.serial.seconds / best.seconds
        bias = f", bias {best.bias:.2g}" if best.bias else ""
        return (
            f"use {best.solver} ({best.setting}) on {best.ranks} ranks: {_time(best.seconds)} per step, {gain:.2f} "
            f"times as fast as serial{bias}"
        )

    def __str__(self) -> str:
        machine = self.machine.describe()
        lines = [
            f"{self.network}; latency {machine['latency'] * 1e6:.3g} µs, bandwidth {machine['bandwidth'] / 1e9:.3g} "
            f"GB/s, {machine['cores']} cores and {machine['ranks_per_node']} ranks per node; bias at most "
            f"{self.bound:.0%}; * marks the fastest option",
            "",
            *_aligned([HEAD, *self._rows()]),
            "",
            *(f"{note}" for note in self.notes),
            self.answer(),
        ]
        return "\n".join(lines)

    def _rows(self) -> Iterable[list[str]]:
        for ranks in self.ranks:
            best = self.best(ranks)
            for each in self.predictions:
                if each.ranks == ranks:
                    yield [
                        str(each.ranks),
                        each.solver,
                        each.setting,
                        _time(each.seconds),
                        f"{self.serial.seconds / each.seconds:.2f}",
                        _size(each.memory),
                        f"{each.bias:.2g}" if each.bias else "0",
                        "*" if each == best else "",
                    ]

    def to_json(self) -> str:
        """Returns the plan as JSON."""
        return json.dumps(
            {
                "network": self.network,
                "machine": self.machine.describe(),
                "bound": self.bound,
                "answer": self.answer(),
                "notes": list(self.notes),
                "predictions": [{**each.to_dict(), "best": each == self.best(each.ranks)} for each in self.predictions],
            },
            indent=1,
        )


HEAD = ["ranks", "solver", "setting", "time", "speed-up", "memory", "bias", ""]


def plan(
    network: Any,
    x: Any,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    machine: Machine | None = None,
    ranks: Sequence[int] = RANKS,
    bound: float = 0.1,
    form: str = "residual",
    tf: float = 1.0,
    settings: Sequence[tuple[int, int, Solve, Solve]] | None = None,
    threads: int = 1,
    repeats: int = 3,
) -> Plan:
    """Measures a training step in this process and predicts it for each solver and number of ranks.

    Collective if the job has several ranks; each of them makes its own plan.

    Args:
        network: a sequence of modules, an ``nn.Sequential``, a LayerParallel on one rank, or a recurrent network of
            weft.
        x: an input: a batch, or a sequence for a recurrent network.
        loss: a scalar function of the output; by default the mean of its squares.
        machine: by default this machine, whose network is measured with a job of two ranks.
        ranks: the numbers of ranks.
        bound: the largest bias of the gradient that is acceptable.
        form, tf: as in LayerParallel, for sequences of modules.
        settings: levels, coarsening factor, forward and backward solve of multigrid; by default several are tried, or
            those of the LayerParallel network.
        threads: number of torch's threads on each rank; use the same number in training.
        repeats: measurements per value, of which the median counts.

    Raises PlanError if the network cannot be evaluated, and JobError if the network of the machine cannot be measured.
    """
    if isinstance(network, LayerParallel) and network.comm.size > 1:
        raise PlanError("weft: plan: the LayerParallel network must be on one rank")
    if not bound > 0 or repeats < 1 or threads < 1:
        raise PlanError("weft: plan: expected bound, repeats and threads to be above 0")
    if not ranks or min(ranks) < 1:
        raise PlanError(f"weft: plan: expected numbers of ranks of at least 1, got {list(ranks)}")
    recurrent = is_recurrent(network)
    if not recurrent:
        network = _layers_of(network)
    machine = machine or Machine.measure()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        counts = sorted({1, *ranks})
        if recurrent:
            from .recurrent import plan_recurrent

            predictions, notes = plan_recurrent(network, x, loss or mean_square, machine, counts, repeats)
        else:
            from .layers import LayerMeasurements

            measured = LayerMeasurements(network, x, loss or mean_square, form, tf, settings, bound, repeats)
            predictions = measured.predict(counts, machine)
            notes = measured.notes
    finally:
        torch.set_num_threads(before)
    return Plan(_describe(network, x), machine, bound, predictions, notes)


def is_recurrent(network: Any) -> bool:
    return isinstance(network, (RecurrentNetwork, TimeParallel))


def mean_square(y: Any) -> Tensor:
    """The default loss."""
    tensors = [y] if isinstance(y, Tensor) else list(y)
    return sum((t.square().mean() for t in tensors), start=torch.zeros(()))


def _layers_of(network: Any) -> Any:
    if isinstance(network, LayerParallel):
        return network
    if isinstance(network, nn.Module) and not isinstance(network, (nn.Sequential, nn.ModuleList)):
        raise PlanError(
            f"weft: plan: a {type(network).__name__} has no sequence of layers; pass an nn.Sequential, a list of "
            "modules, a LayerParallel or a recurrent network of weft"
        )
    try:
        layers = list(network)
    except TypeError:
        raise PlanError(f"weft: plan: expected a network, got {type(network).__name__}") from None
    if not layers or not all(isinstance(layer, nn.Module) for layer in layers):
        raise PlanError("weft: plan: expected at least one layer, each a torch.nn.Module")
    return layers


def _describe(network: Any, x: Any) -> str:
    shapes = " and ".join("x".join(map(str, t.shape)) for t in ([x] if isinstance(x, Tensor) else x))
    if isinstance(network, list):
        return f"{len(network)} layers, input {shapes}"
    if isinstance(network, LayerParallel):
        return f"{network.total_layers} layers, input {shapes}"
    return f"{type(network).__name__}, input {shapes}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = {1, 2}  # columns of text
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _size(bytes: int) -> str:
    power = min(int(math.log(max(bytes, 1), 1024)), 3)
    return f"{bytes / 1024**power:.3g} {('B', 'KiB', 'MiB', 'GiB')[power]}"
